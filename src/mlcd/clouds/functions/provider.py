"""The interface between the epoch loop and whatever runs functions: one call per epoch."""

from dataclasses import dataclass
from typing import Protocol

from mlcd.trial.epoch import Epoch, Fleet
from mlcd.units import Usd


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochOrder:
    """A request for one epoch.

    seconds  the most wall-clock time that was authorised: calls still running then are ended, and the epoch fails
    usd      the most money that was authorised; the cloud must not start calls whose worst case exceeds it
    run_id   the run that orders; everything started and stored carries this name
    """

    number: int
    fleet: Fleet
    seconds: float
    usd: Usd
    run_id: str = ""


class EpochFailed(Exception):
    """The epoch could not be completed; what it cost is charged nevertheless.

    hopeless  whether it would fail again with any fleet, for example because of a bug in the user's model
    """

    def __init__(self, message: str, *, seconds: float, usd: Usd, hopeless: bool = False) -> None:
        super().__init__(message)
        self.message, self.seconds, self.usd, self.hopeless = message, seconds, usd, hopeless


class FunctionCloud(Protocol):
    """Somewhere stateless functions train. It keeps the parameters after each epoch, by run and epoch.

    name       as in `resources.infra`
    simulated  whether time and money there are not real; every result states it
    """

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def simulated(self) -> bool: ...  # noqa: D102

    def run_epoch(self, order: EpochOrder) -> Epoch:
        """Run one epoch from the parameters after epoch `number - 1` to its barrier.

        Raises EpochFailed, ProviderError. An epoch that is run again, after a kill, starts from the same parameters:
        no update is applied twice.
        """
        ...
