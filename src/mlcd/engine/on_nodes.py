"""The steps of a training on nodes: trials, and the training itself."""

import math
from dataclasses import dataclass, field

from mlcd.clouds.provider import Cloud, Lease, Order
from mlcd.clouds.wrappers import Resumed
from mlcd.deciders.account import Accounts
from mlcd.engine.checked import CheckedCloud, checked_cloud, cloud_name, is_simulated, outlives_mlcd
from mlcd.engine.performer import Situation
from mlcd.engine.stretch import TrainingNodes
from mlcd.engine.training import Training
from mlcd.engine.trials import lost_trial, measure_trial, overdue
from mlcd.engine.watchdog import Bounds, Overdue, watched
from mlcd.errors import ProviderError
from mlcd.problem import Problem
from mlcd.run.kept_work import keeps_work, reached_before
from mlcd.run.run import SearchRun
from mlcd.run.step import Outcome, Role, Step
from mlcd.search.strategy import Elastic
from mlcd.trial.call import FunctionCall


@dataclass(kw_only=True)
class NodePerformer:
    """Trials and training attempts on one cloud.

    guarded  whether to keep the limits: a training that would break one is then moved or stopped
    elastic  predicts, during training, what every other configuration would take; None: no predictions
    bounds   how long to wait for the cloud
    """

    cloud: Cloud
    guarded: bool = True
    elastic: Elastic | None = None
    bounds: Bounds = field(default_factory=Bounds)
    _accounts: Accounts = field(init=False, repr=False)
    _held: TrainingNodes | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self._accounts = Accounts(guarded=self.guarded)

    @property
    def simulated(self) -> bool:
        """See Performer."""
        return is_simulated(self.cloud)

    def restore(self, run: SearchRun) -> None:
        """Nothing to restore: leases of an earlier process end themselves."""

    def perform(self, step: Step, situation: Situation[Problem]) -> Outcome:
        """See Performer."""

        def carry_out(inner: Situation[Problem]) -> Outcome:
            cloud = checked_cloud(self._cloud_for(step, inner), step, inner, self.bounds)
            if step.role is Role.TRIAL:
                return measure_trial(cloud, step, inner)
            training = self._training(cloud, step, inner)
            self._held = None
            try:
                return training.run()
            finally:
                self._held = training.held

        began = situation.moment()
        most = step.authorised_seconds
        if step.role is Role.TRAINING:
            most = self._training(checked_cloud(self.cloud, step, situation, self.bounds), step, situation).most_seconds
        most = self.bounds.step_seconds(most, simulated=self.simulated)
        try:
            return watched(carry_out, situation, most_seconds=most, bounds=self.bounds)
        except Overdue as late:
            return overdue(step, situation, began, f"the cloud {cloud_name(self.cloud)} {late}")

    def lost(self, step: Step, situation: Situation[Problem], *, interrupted: bool) -> Outcome:
        """See Performer."""
        run = situation.run

        def settle(inner: Situation[Problem]) -> Outcome:
            if step.role is Role.TRAINING:
                self.close()
            cloud = checked_cloud(self.cloud, step, inner, self.bounds)
            if step.role is Role.TRIAL:
                kept = keeps_work(inner.now, step)
                reached = cloud.reached_samples(run.run_id) if kept else 0.0
                return lost_trial(step, inner, interrupted=interrupted, reached_samples=reached)
            return self._training(cloud, step, inner).lost(interrupted=interrupted)

        try:
            most = self.bounds.lost_seconds(interrupted=interrupted)
            return watched(settle, situation, most_seconds=most, bounds=self.bounds)
        except Overdue:  # the step is charged all the same; what it saved is not known
            if step.role is Role.TRIAL:
                return lost_trial(step, situation, interrupted=interrupted)
            silent = _Silent(
                name=cloud_name(self.cloud), simulated=self.simulated, outlives_mlcd=outlives_mlcd(self.cloud)
            )
            unsaved = CheckedCloud(cloud=silent)
            return self._training(unsaved, step, situation).lost(interrupted=interrupted)

    def close(self) -> None:
        """Give back the nodes that a training has kept between two stretches."""
        held, self._held = self._held, None
        if held is not None:
            held.release()

    def calls(self) -> tuple[FunctionCall, ...]:
        """None: nodes make no function calls."""
        return ()

    def _cloud_for(self, step: Step, situation: Situation[Problem]) -> Cloud:
        """The cloud; a simulated one starts and saves as a job does that continues the run's training."""
        if not (self.simulated and keeps_work(situation.now, step)):
            return self.cloud
        base = reached_before(situation.run, step)
        restart_seconds = situation.run.problem.restart_seconds if base > 0 else 0.0
        work = situation.run.problem.work_samples if step.role is Role.TRIAL else math.inf
        return Resumed(self.cloud, base_samples=base, restart_seconds=restart_seconds, work_samples=work)

    def _training(self, cloud: CheckedCloud, step: Step, situation: Situation[Problem]) -> Training:
        held = self._held
        if held is not None and held.order.attempt != step.authorisation.attempt:
            raise RuntimeError(f"attempt {held.order.attempt} at the training still holds its nodes")
        return Training(
            cloud=cloud, step=step, situation=situation, accounts=self._accounts, elastic=self.elastic, held=held
        )


@dataclass(frozen=True, kw_only=True)
class _Silent:
    """A cloud that does not answer: nothing is leased there, and nothing is known to be saved."""

    name: str
    simulated: bool
    outlives_mlcd: bool
    noise: float = 0.0

    def lease(self, order: Order) -> Lease:
        raise ProviderError(f"the cloud {self.name} does not answer: {order.config} was not leased")
