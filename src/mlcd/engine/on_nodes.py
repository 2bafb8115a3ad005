"""The steps of a training on nodes: trials, and the training itself."""

from dataclasses import dataclass, field

from mlcd.clouds.provider import Cloud
from mlcd.deciders.account import Accounts
from mlcd.engine.performer import Situation
from mlcd.engine.training import Training
from mlcd.engine.trials import lost_trial, measure_trial, saved_samples
from mlcd.problem import Problem
from mlcd.run.run import SearchRun
from mlcd.run.step import Outcome, Role, Step
from mlcd.search.strategy import Elastic
from mlcd.trial.call import FunctionCall


@dataclass(kw_only=True)
class NodePerformer:
    """Trials and training attempts on one cloud.

    guarded  whether to keep the limits: a training that would break one is then moved or stopped
    elastic  predicts, during training, what every other configuration would take; None: no predictions
    """

    cloud: Cloud
    guarded: bool = True
    elastic: Elastic | None = None
    _accounts: Accounts = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._accounts = Accounts(guarded=self.guarded)

    @property
    def simulated(self) -> bool:
        """See Performer."""
        return self.cloud.simulated

    def restore(self, run: SearchRun) -> None:
        """Nothing to restore: leases of an earlier process end themselves."""

    def perform(self, step: Step, situation: Situation[Problem]) -> Outcome:
        """See Performer."""
        if step.role is Role.TRIAL:
            return measure_trial(self.cloud, step, situation)
        return self._training(step, situation).run()

    def lost(self, step: Step, situation: Situation[Problem], *, interrupted: bool) -> Outcome:  # noqa: ARG002
        """See Performer."""
        if step.role is Role.TRIAL:
            return lost_trial(step, situation, reached_samples=saved_samples(self.cloud, situation.run.run_id))
        return self._training(step, situation).lost()

    def calls(self) -> tuple[FunctionCall, ...]:
        """None: nodes make no function calls."""
        return ()

    def _training(self, step: Step, situation: Situation[Problem]) -> Training:
        return Training(cloud=self.cloud, step=step, situation=situation, accounts=self._accounts, elastic=self.elastic)
