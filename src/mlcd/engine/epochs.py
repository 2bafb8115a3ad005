"""Epochs of a training on functions."""

import io
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mlcd.clouds.functions.provider import EpochOrder, FunctionCloud
from mlcd.engine.checked import cloud_name, is_simulated
from mlcd.engine.checked_epochs import CheckedFunctions
from mlcd.engine.performer import INTERRUPTED, Situation, lost_time
from mlcd.engine.watchdog import Bounds, Overdue, abandoned, watched
from mlcd.errors import ProviderError
from mlcd.events import Warned
from mlcd.functions import FunctionProblem
from mlcd.home import private_folder, write_private
from mlcd.run.run import MODEL_FILE, EpochRun
from mlcd.run.step import Step
from mlcd.trial.call import FunctionCall
from mlcd.trial.epoch import Epoch, FailedEpoch


@dataclass(kw_only=True)
class EpochPerformer:
    """Runs epochs on a cloud of functions; `bounds` says how long it waits for the cloud."""

    cloud: FunctionCloud
    bounds: Bounds = field(default_factory=Bounds)
    _calls: tuple[FunctionCall, ...] = field(default=(), init=False)

    @property
    def simulated(self) -> bool:
        """See Performer."""
        return is_simulated(self.cloud)

    def restore(self, run: EpochRun) -> None:
        """See Performer. Raises ProviderError where the cloud does not answer."""
        situation: Situation[FunctionProblem] = Situation(
            run=run, elapsed_seconds=lambda: 0.0, tell=lambda _event: None
        )
        try:
            watched(
                lambda inner: self._checked(inner).restore(inner.run.run_id, inner.run.epochs),
                situation,
                most_seconds=self.bounds.recover_seconds,
                bounds=self.bounds,
            )
        except Overdue as late:
            raise ProviderError(f"the cloud {cloud_name(self.cloud)}: restore() {late}") from late

    def perform(self, step: Step, situation: Situation[FunctionProblem]) -> Epoch | FailedEpoch:
        """See Performer."""
        order = _order(step, situation.run)
        self._calls = ()
        began = situation.moment()
        most = self.bounds.step_seconds(order.seconds, simulated=self.simulated)
        try:
            outcome, calls = watched(
                lambda inner: self._checked(inner).run_epoch(order), situation, most_seconds=most, bounds=self.bounds
            )
        except Overdue as late:
            seconds, message = abandoned(step, situation, began, f"the cloud {cloud_name(self.cloud)} {late}")
            return FailedEpoch(
                number=order.number, fleet=order.fleet, seconds=seconds, usd=step.authorised_usd, message=message
            )
        self._calls = calls
        return outcome

    def lost(self, step: Step, situation: Situation[FunctionProblem], *, interrupted: bool) -> Epoch | FailedEpoch:
        """Adopt an epoch that ended while mlcd was down; otherwise charge what its calls took."""
        order = _order(step, situation.run)
        seconds, assumed = lost_time(step, situation)
        usd, done = step.authorised_usd, None
        self._calls = ()
        try:
            done, self._calls, usd = watched(
                lambda inner: self._checked(inner).after(order, interrupted=interrupted, elapsed_seconds=seconds),
                situation,
                most_seconds=self.bounds.lost_seconds(interrupted=interrupted),
                bounds=self.bounds,
            )
        except Overdue as late:
            situation.tell(Warned(text=f"the cloud {cloud_name(self.cloud)} {late}: the epoch is charged in full"))
        if done is not None:
            return done
        return FailedEpoch(
            number=order.number,
            fleet=order.fleet,
            seconds=seconds,
            usd=min(usd, step.authorised_usd),
            message=INTERRUPTED if interrupted else f"mlcd ended before the epoch did{assumed}",
            lost=True,
        )

    def hand_over(self, run: EpochRun, folder: Path) -> None:
        """Write the trained model, as MODEL_FILE; nothing where none was trained. See HandsOver."""
        if not run.epochs or self.simulated:
            return
        found = CheckedFunctions(cloud=self.cloud).parameters(run.run_id, run.epochs[-1].number)
        if found is not None:
            data = io.BytesIO()
            np.save(data, found, allow_pickle=False)
            write_private(private_folder(folder) / MODEL_FILE, data.getvalue())

    def calls(self) -> tuple[FunctionCall, ...]:
        """See Performer."""
        return self._calls

    def _checked(self, situation: Situation[FunctionProblem]) -> CheckedFunctions:
        return CheckedFunctions(cloud=self.cloud, warn=lambda text: situation.tell(Warned(text=text)))


def _order(step: Step, run: EpochRun) -> EpochOrder:
    return EpochOrder(
        number=len(run.epochs) + 1,
        fleet=step.fleet,
        seconds=step.authorised_seconds,
        usd=step.authorised_usd,
        run_id=run.run_id,
    )
