"""The seam between the epoch loop and whatever runs functions: one call an epoch."""

from dataclasses import dataclass
from typing import Protocol

from mlcd.trial.epoch import Epoch, Fleet
from mlcd.units import Usd


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochOrder:
    """What is wanted of a cloud of functions.

    seconds  the most wall clock that was authorised: calls still running then are ended, and the epoch fails
    usd      the most that was authorised; the cloud must not start calls whose worst case does not fit in it
    run_id   whose it is; everything started and stored bears this name
    """

    number: int
    fleet: Fleet
    seconds: float
    usd: Usd
    run_id: str = ""


class EpochFailed(Exception):
    """The epoch could not be ended; what it cost all the same is charged.

    hopeless  whether it would fail again with any fleet, such as for a mistake in the user's model
    """

    def __init__(self, message: str, *, seconds: float, usd: Usd, hopeless: bool = False) -> None:
        super().__init__(message)
        self.message, self.seconds, self.usd, self.hopeless = message, seconds, usd, hopeless


class FunctionCloud(Protocol):
    """Somewhere stateless functions train. The parameters after each epoch are kept there, by run and epoch.

    name       as in `resources.infra`
    simulated  whether time and money there are not real; said in every result
    """

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def simulated(self) -> bool: ...  # noqa: D102

    def run_epoch(self, order: EpochOrder) -> Epoch:
        """One epoch from the parameters that epoch `number - 1` left, to the barrier.

        Raises EpochFailed, ProviderError. An epoch that is run again, after a kill, starts from the same parameters:
        nothing is applied twice.
        """
        ...
