"""Events that the engine sends to observers: frozen values for progress lines, logs and the web page."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mlcd.run.money import Money
from mlcd.run.run import Run
from mlcd.run.step import Step
from mlcd.space import Config
from mlcd.trial.plan import Plan
from mlcd.trial.watched import Watch


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBegan:
    """A run is stored and starts now, or continues: it then has steps that ended earlier."""

    run: Run[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStarted:
    """A step is authorised and recorded, and starts now."""

    step: Step
    money: Money


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEnded:
    """A step is paid and stored; `incumbent` is the best measured configuration that fits now, or None."""

    step: Step
    incumbent: Plan | None
    money: Money


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchEnded:
    """No more trials: why, and what was chosen (None when nothing fits).

    is_done  whether the trials did all of the work: the choice is what the last of them took
    watch    how the training is watched, if its upper bound does not fit the limits
    """

    stopped: str
    choice: Plan | None
    money: Money
    is_done: bool = False
    watch: Watch | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """The training or verification: the fraction of the work done, 1 at its end.

    A training that continues from a checkpoint starts at what that holds, anything else at 0.
    """

    config: Config
    fraction: float
    money: Money


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned:
    """Something the user should know now: a limit is at risk, or a job does not do what its file says."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded:
    """The run has ended, or stopped after its search; everything about it is stored. Not sent when interrupted."""

    run: Run[Any]


Event = RunBegan | StepStarted | StepEnded | SearchEnded | RunProgress | Warned | RunEnded
Observer = Callable[[Event], None]


def ignore(event: Event) -> None:
    """An observer that does nothing."""
