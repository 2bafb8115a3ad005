from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from mlcd.models.parallel import ClusterSetting, Refined, StepTime
from mlcd.models.timed import Steps
from mlcd.problem import Problem
from mlcd.search.scavenger.grid import GridStrategy, law_of
from mlcd.trial.plan import Plan, plans
from mlcd.trial.trial import History


@dataclass(frozen=True, kw_only=True)
class ScavengerFull(GridStrategy):
    """Runs every configuration briefly, each from the last one's checkpoint, and chooses the best measured one."""

    name: ClassVar[str] = "scavenger-full"

    def planned(
        self,
        problem: Problem,  # noqa: ARG002
        history: History,  # noqa: ARG002
        settings: Sequence[ClusterSetting],
    ) -> tuple[ClusterSetting, ...]:
        """Every configuration."""
        return tuple(settings)

    def steps(self, runs: tuple[StepTime, ...]) -> Steps | None:
        """The fitted law, corrected by what was measured at each K."""
        return Refined(model=law_of(runs), runs=runs) if len(runs) >= 2 else None

    def prospects(self, problem: Problem, history: History) -> tuple[Plan, ...]:
        """As measured: after all of them there is nothing to predict."""
        return (
            plans(problem, history) if len(history.tried) == len(problem.space) else super().prospects(problem, history)
        )
