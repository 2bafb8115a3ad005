from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from mlcd.models.parallel import Law, ParallelModel, Refined, StepTime, fit
from mlcd.models.timed import Steps
from mlcd.problem import Problem
from mlcd.search.scavenger.partial import PartialSettings, ScavengerPartial
from mlcd.trial.plan import Plan
from mlcd.trial.trial import History


@lru_cache(maxsize=64)
def _overlap(runs: tuple[StepTime, ...]) -> ParallelModel:
    return fit(runs, Law.OVERLAP)


@dataclass(frozen=True, slots=True, kw_only=True)
class GoodputSettings(PartialSettings):
    """Options of `scavenger-goodput:option=value`."""

    replan: bool = True
    """Whether K and B may change while the training runs; off: they stay as they began. docs/scavenger.md shows the
    effect on measured trainings."""


DEFAULTS = GoodputSettings()


@dataclass(frozen=True, kw_only=True)
class ScavengerGoodput(ScavengerPartial):
    """Beyond the paper: Pollux's overlap law, corrected by the timed runs, and a new plan while the training runs.

    The engine asks for its `outlook` every few seconds of the training, with the current noise: a change of K or B
    that pays for its restart goes through a checkpoint.
    """

    name: ClassVar[str] = "scavenger-goodput"

    settings: GoodputSettings = DEFAULTS

    def steps(self, runs: tuple[StepTime, ...]) -> Steps | None:
        """Communication hidden behind computing, as far as the runs show it."""
        return Refined(model=_overlap(runs), runs=runs) if len(runs) >= 2 else None

    def outlook(self, problem: Problem, history: History) -> tuple[Plan, ...]:
        """See mlcd.search.strategy.Elastic."""
        return self.prospects(problem, history) if self.settings.replan else ()
