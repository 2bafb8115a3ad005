from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from mlcd.errors import BadInput
from mlcd.models.parallel import ClusterSetting, ParallelModel, Refined, StepTime
from mlcd.models.timed import Steps
from mlcd.models.universal import KnownJob, universal
from mlcd.problem import Problem
from mlcd.search.scavenger.grid import GridStrategy, ScavengerSettings, by_type, predicted
from mlcd.trial.plan import Plan, Remaining
from mlcd.trial.trial import History, Suggestion

DEFAULTS = ScavengerSettings(confirm=1)
"""One run: the predicted best, because the ledger requires a measurement."""


@dataclass(frozen=True, kw_only=True)
class ScavengerUniversal(GridStrategy):
    """No search for this job: coefficients of other jobs predict the best, and the training begins there.

    The ledger promises only measured deployments, so the first minutes of the training are a trial.

    jobs  fitted models of earlier runs on the same kind of nodes; passed by mlcd, not by the user
    """

    name: ClassVar[str] = "scavenger-universal"
    given: ClassVar[tuple[str, ...]] = ("jobs",)

    settings: ScavengerSettings = DEFAULTS
    jobs: tuple[KnownJob, ...] = ()

    def planned(
        self,
        problem: Problem,  # noqa: ARG002
        history: History,  # noqa: ARG002
        settings: Sequence[ClusterSetting],  # noqa: ARG002
    ) -> tuple[ClusterSetting, ...]:
        """None."""
        return ()

    def suggest(self, problem: Problem, history: History, remaining: Remaining, count: int) -> tuple[Suggestion, ...]:
        """The predicted best. Raises BadInput if no other job is known."""
        if not self.jobs:
            raise BadInput(
                "search.strategy: scavenger-universal knows no other job: run one with a batch to choose on these nodes"
                " first (scavenger-partial)"
            )
        return super().suggest(problem, history, remaining, count)

    def prospects(self, problem: Problem, history: History) -> tuple[Plan, ...]:
        """A plan for every configuration, by the other jobs' coefficients where this one was not measured."""
        found: list[Plan] = []
        for instance, grid in by_type(problem).items():
            model = self._steps(tuple(grid))
            runs = tuple(
                StepTime(setting=setting, seconds=setting.batch / trial.samples_per_second)
                for trial in history.measured
                for setting, config in grid.items()
                if trial.config == config and config.instance == instance
            )
            bent: Steps = Refined(model=model, runs=runs) if runs else model
            found += [predicted(problem, history, config, bent) for config in grid.values()]
        return tuple(found)

    def _steps(self, settings: Sequence[ClusterSetting]) -> ParallelModel:
        return universal(self.jobs, largest_local_batch=max(s.local_batch for s in settings))
