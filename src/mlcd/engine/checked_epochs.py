"""What a cloud of functions says, checked before anything else sees it (see mlcd.engine.checked)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from mlcd.clouds.functions.provider import EpochFailed, EpochOrder, FunctionCloud
from mlcd.engine.checked import (
    MOST_MICROS,
    MOST_SECONDS,
    cloud_name,
    instance_of,
    is_simulated,
    number,
    text_of,
)
from mlcd.engine.clock import boot_seconds
from mlcd.errors import MlcdError, ProviderError
from mlcd.trial.call import FunctionCall
from mlcd.trial.epoch import Epoch, FailedEpoch, Phase
from mlcd.units import Usd, format_seconds
from mlcd.untrusted import Malformed, printable

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_LOSS = 1e30
"""The largest loss that an epoch may have."""


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


@runtime_checkable
class KeepsParameters(Protocol):
    """A function cloud that really trains a model."""

    def parameters(self, run_id: str, number: int) -> bytes:
        """The model's parameters after an epoch: float32, little-endian."""
        ...


@dataclass(kw_only=True)
class CheckedFunctions:
    """A cloud of functions during one step.

    warn   called with what the user should know
    clock  the engine's own, in seconds
    """

    cloud: FunctionCloud
    warn: Callable[[str], None] = lambda _text: None
    clock: Callable[[], float] = boot_seconds

    def restore(self, run_id: str, epochs: Sequence[Epoch]) -> None:
        """See Restoring. Raises ProviderError for whatever goes wrong, and MlcdErrors."""
        cloud = self.cloud
        if isinstance(cloud, Restoring):
            try:
                cloud.restore(run_id, epochs)
            except MlcdError:
                raise
            except (Exception, SystemExit) as error:  # somebody else's cloud
                raise ProviderError(f"the cloud {cloud_name(cloud)}: restore() raised {text_of(error)}") from error

    def run_epoch(self, order: EpochOrder) -> tuple[Epoch | FailedEpoch, tuple[FunctionCall, ...]]:
        """The outcome of one epoch and its calls, in full even where they cost more than was authorised.

        Raises MlcdErrors, and exceptions that are no errors, such as Ctrl-C.
        """
        began = self.clock()
        try:
            outcome = self._outcome(order, began)
        except Malformed as problem:
            return self._failed(order, began, f"run_epoch(): {problem}"), ()
        except MlcdError:
            raise
        except (Exception, SystemExit) as error:  # somebody else's cloud: any error of it is its failure
            return self._failed(order, began, f"run_epoch() raised {text_of(error)}"), ()
        if outcome.usd > order.usd or outcome.seconds > order.seconds:
            took = f"{outcome.usd} and {format_seconds(outcome.seconds)}"
            most = f"{order.usd} and {format_seconds(order.seconds)} were authorised"
            self.warn(f"epoch {order.number} overran: it took {took}, {most}; all of it is charged")
        return outcome, self._calls()

    def after(
        self, order: EpochOrder, *, interrupted: bool, elapsed_seconds: float
    ) -> tuple[Epoch | None, tuple[FunctionCall, ...], Usd]:
        """(the epoch if it ended unwatched, its calls, what it cost) of an epoch that mlcd no longer watches."""
        cloud = self.cloud
        if interrupted and (calls := self._calls()):
            return None, calls, min(Usd.of(sum((call.usd for call in calls), Decimal(0))), order.usd)
        if not isinstance(cloud, Recovering):
            return None, (), order.usd
        try:
            done = None if interrupted else cloud.finished(order.run_id, order.number)
            if done is not None:
                return self._epoch(done, order), (), order.usd
            return None, (), min(_money(cloud.lost(order, elapsed_seconds=elapsed_seconds), "lost()"), order.usd)
        except MlcdError:
            raise
        except Malformed as problem:
            self.warn(f"the cloud {cloud_name(cloud)}: {problem}: the epoch is charged in full")
        except (Exception, SystemExit) as error:  # somebody else's cloud
            self.warn(f"the cloud {cloud_name(cloud)} raised {text_of(error)}: the epoch is charged in full")
        return None, (), order.usd

    def parameters(self, run_id: str, number: int) -> "NDArray[np.float32] | None":
        """See KeepsParameters; None where the cloud keeps none. Raises ProviderError for whatever goes wrong."""
        cloud = self.cloud
        if not isinstance(cloud, KeepsParameters):
            return None
        what = f"the cloud {cloud_name(cloud)}: parameters()"
        try:
            data = instance_of(cloud.parameters(run_id, number), bytes, "the answer")
        except MlcdError:
            raise
        except Malformed as problem:
            raise ProviderError(f"{what}: {problem}") from problem
        except (Exception, SystemExit) as error:  # somebody else's cloud
            raise ProviderError(f"{what} raised {text_of(error)}") from error
        if not data or len(data) % 4:
            raise ProviderError(f"{what} returned {len(data)} bytes, which are no float32")
        return np.frombuffer(data, dtype="<f4").astype(np.float32)

    # ---- inside

    def _outcome(self, order: EpochOrder, began: float) -> Epoch | FailedEpoch:
        """What the cloud answers, checked. Raises Malformed, and what the cloud raises besides EpochFailed."""
        try:
            epoch = self._epoch(self.cloud.run_epoch(order), order)
        except EpochFailed as failed:
            return self._failure(failed, order, began)
        return replace(epoch, seconds=self._charged(epoch.seconds, began))

    def _epoch(self, found: object, order: EpochOrder) -> Epoch:
        epoch = instance_of(found, Epoch, "the answer")
        if epoch.number != order.number or epoch.fleet != order.fleet:
            raise Malformed(
                "the answer", f"is epoch {epoch.number} of {epoch.fleet}, not {order.number} of {order.fleet}"
            )
        number(epoch.loss, "loss", least=-MOST_LOSS, most=MOST_LOSS)
        if number(epoch.seconds, "seconds", most=MOST_SECONDS) == 0 and is_simulated(self.cloud):
            raise Malformed("seconds", "should be above 0: an epoch takes time")
        _money(epoch.usd, "usd")
        for name in ("fetch", "compute", "update"):
            phase = instance_of(getattr(epoch, name), Phase, name)
            number(phase.mean_seconds, f"{name}.mean_seconds", most=MOST_SECONDS)
            number(phase.max_seconds, f"{name}.max_seconds", most=MOST_SECONDS)
        for name in ("calls", "failed", "cold_starts"):
            number(instance_of(getattr(epoch, name), int, name), name, most=2**53)
        for name in ("memory_share", "cpu_share"):
            if getattr(epoch, name) is not None:
                number(getattr(epoch, name), name)
        return epoch

    def _failure(self, failed: EpochFailed, order: EpochOrder, began: float) -> FailedEpoch:
        seconds = number(failed.seconds, "EpochFailed.seconds", most=MOST_SECONDS)
        return FailedEpoch(
            number=order.number,
            fleet=order.fleet,
            seconds=self._charged(seconds, began),
            usd=_money(failed.usd, "EpochFailed.usd"),
            message=printable(str(failed.message)),
            hopeless=failed.hopeless is True,
        )

    def _failed(self, order: EpochOrder, began: float, message: str) -> FailedEpoch:
        """An epoch whose cost is not known: all that was authorised is charged."""
        passed = 0.0 if is_simulated(self.cloud) else max(self.clock() - began, 0.0)
        return FailedEpoch(
            number=order.number,
            fleet=order.fleet,
            seconds=passed,
            usd=order.usd,
            message=f"the cloud {cloud_name(self.cloud)}: {message}",
        )

    def _charged(self, seconds: float, began: float) -> float:
        """The time to count: the engine's where that is longer than what a real cloud says."""
        return max(seconds, 0.0 if is_simulated(self.cloud) else self.clock() - began)

    def _calls(self) -> tuple[FunctionCall, ...]:
        """The calls of the last epoch that are what they should be."""
        try:
            found = self.cloud.calls if isinstance(self.cloud, Itemised) else ()
            return tuple(_call(each) for each in found)
        except MlcdError:
            raise
        except Malformed as problem:
            self.warn(f"the cloud {cloud_name(self.cloud)}: calls: {problem}; they are not listed")
        except (Exception, SystemExit) as error:  # somebody else's cloud
            self.warn(f"the cloud {cloud_name(self.cloud)}: calls raised {text_of(error)}; they are not listed")
        return ()


def _call(found: object) -> FunctionCall:
    call = instance_of(found, FunctionCall, "a call")
    usd = instance_of(call.usd, Decimal, "usd")
    if not usd.is_finite() or not 0 <= usd <= MOST_MICROS // 10**6:
        raise Malformed("usd", f"should be an amount from $0, is {usd}")
    for name in ("seconds", "fetch_seconds", "compute_seconds", "update_seconds", "waited_seconds"):
        number(getattr(call, name), name, most=MOST_SECONDS)
    for name in ("epoch", "shard", "attempt", "memory_mb", "puts", "gets"):
        number(instance_of(getattr(call, name), int, name), name, most=2**53)
    return call


def _money(value: object, name: str) -> Usd:
    usd = instance_of(value, Usd, name)
    if not 0 <= usd.micros <= MOST_MICROS:
        raise Malformed(name, f"should be an amount from $0 to {Usd(MOST_MICROS)}, is {usd}")
    return usd
