"""What the engine tells whoever watches: frozen values, for progress lines, logs and the web page alike."""

from collections.abc import Callable
from dataclasses import dataclass

from mlcd.space import Config
from mlcd.trial.epoch import Epoch, FailedEpoch, Fleet
from mlcd.trial.plan import Plan
from mlcd.trial.record import TrialRow
from mlcd.units import Usd


@dataclass(frozen=True, slots=True, kw_only=True)
class Money:
    """The account at an instant; None where there is no limit.

    reserved  kept to train on the incumbent, at its upper bound
    left      neither spent, committed to running trials, nor reserved
    """

    spent: Usd
    reserved: Usd
    left: Usd | None
    elapsed_seconds: float
    reserved_seconds: float
    seconds_left: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialStarted:
    """A trial was authorised and is on its way."""

    number: int
    config: Config
    reason: str
    money: Money


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialFinished:
    """A trial is paid and stored; `incumbent` is the best deployment that fits now."""

    row: TrialRow
    incumbent: Plan | None
    money: Money


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchEnded:
    """No more trials: why, and what was chosen (None when nothing fits)."""

    stopped: str
    choice: Plan | None
    money: Money


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """The final training: the fraction of the work done, 0 at its start and 1 at its end."""

    config: Config
    fraction: float
    money: Money


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned:
    """Something the user should know now: a limit is in danger, a job does not do what its file says."""

    text: str


Event = TrialStarted | TrialFinished | SearchEnded | RunProgress | Warned
Observer = Callable[[Event], None]


def ignore(event: Event) -> None:
    """For callers that do not want to know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochStarted:
    """An epoch on functions is authorised and written down, and will start."""

    number: int
    fleet: Fleet
    spent: Usd
    left: Usd | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochFinished:
    """An epoch on functions is paid and stored, whether it came to its barrier or not."""

    outcome: Epoch | FailedEpoch
    spent: Usd
    left: Usd | None
    elapsed_seconds: float


EpochEvent = EpochStarted | EpochFinished | Warned
EpochObserver = Callable[[EpochEvent], None]


def ignore_epochs(event: EpochEvent) -> None:
    """For callers that do not want to know."""
