"""Epochs of a training on functions."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from mlcd.clouds.functions.provider import EpochFailed, EpochOrder, FunctionCloud
from mlcd.engine.performer import Situation, lost_time
from mlcd.functions import FunctionProblem
from mlcd.run.run import EpochRun
from mlcd.run.step import Step
from mlcd.trial.call import FunctionCall
from mlcd.trial.epoch import Epoch, FailedEpoch
from mlcd.units import Usd


@runtime_checkable
class Restoring(Protocol):
    """A function cloud that needs the epochs of an earlier process before it continues."""

    def restore(self, run_id: str, epochs: Sequence[Epoch]) -> None:
        """Continue after these epochs."""
        ...


@runtime_checkable
class Recovering(Protocol):
    """A function cloud whose calls keep running when mlcd has died."""

    def finished(self, run_id: str, number: int) -> Epoch | None:
        """An epoch that completed but was never recorded; None if there is none."""
        ...

    def lost(self, order: EpochOrder, *, elapsed_seconds: float) -> Usd:
        """Cost of the calls of an abandoned epoch, at most what was authorised."""
        ...


@runtime_checkable
class Itemised(Protocol):
    """A function cloud that lists each call of its last epoch."""

    @property
    def calls(self) -> tuple[FunctionCall, ...]: ...  # noqa: D102


@dataclass(kw_only=True)
class EpochPerformer:
    """Runs epochs on a cloud of functions."""

    cloud: FunctionCloud
    _calls: tuple[FunctionCall, ...] = field(default=(), init=False)

    @property
    def simulated(self) -> bool:
        """See Performer."""
        return self.cloud.simulated

    def restore(self, run: EpochRun) -> None:
        """See Performer."""
        if isinstance(self.cloud, Restoring):
            self.cloud.restore(run.run_id, run.epochs)

    def perform(self, step: Step, situation: Situation[FunctionProblem]) -> Epoch | FailedEpoch:
        """See Performer."""
        order = _order(step, situation.run)
        self._calls = ()
        try:
            outcome: Epoch | FailedEpoch = self.cloud.run_epoch(order)
        except EpochFailed as error:
            outcome = FailedEpoch(
                number=order.number,
                fleet=order.fleet,
                seconds=error.seconds,
                usd=error.usd,
                message=error.message,
                hopeless=error.hopeless,
            )
        self._calls = self._itemised()
        return outcome

    def lost(self, step: Step, situation: Situation[FunctionProblem], *, interrupted: bool) -> Epoch | FailedEpoch:
        """Adopt an epoch that ended while mlcd was down; otherwise charge what its calls took."""
        order = _order(step, situation.run)
        self._calls = self._itemised() if interrupted else ()
        done = None
        if not interrupted and isinstance(self.cloud, Recovering):
            done = self.cloud.finished(order.run_id, order.number)
        if done is not None:
            return done
        seconds, assumed = lost_time(step, situation)
        usd = step.authorised_usd
        if self._calls:
            usd = min(Usd.of(sum(call.usd for call in self._calls)), usd)
        elif isinstance(self.cloud, Recovering):
            usd = min(self.cloud.lost(order, elapsed_seconds=seconds), usd)
        return FailedEpoch(
            number=order.number,
            fleet=order.fleet,
            seconds=seconds,
            usd=usd,
            message="interrupted" if interrupted else f"mlcd ended before the epoch did{assumed}",
            lost=True,
        )

    def calls(self) -> tuple[FunctionCall, ...]:
        """See Performer."""
        return self._calls

    def _itemised(self) -> tuple[FunctionCall, ...]:
        return self.cloud.calls if isinstance(self.cloud, Itemised) else ()


def _order(step: Step, run: EpochRun) -> EpochOrder:
    return EpochOrder(
        number=len(run.epochs) + 1,
        fleet=step.fleet,
        seconds=step.authorised_seconds,
        usd=step.authorised_usd,
        run_id=run.run_id,
    )
