"""The interface between the loop and what carries steps out."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Protocol, TypeVar, runtime_checkable

from mlcd.engine import clock
from mlcd.events import Event
from mlcd.functions import FunctionProblem
from mlcd.problem import Problem
from mlcd.run.run import Run
from mlcd.run.step import Outcome, Step
from mlcd.trial.call import FunctionCall

INTERRUPTED = "interrupted with the run"
"""The message of a step that the user interrupted."""

P_co = TypeVar("P_co", bound=Problem | FunctionProblem, covariant=True)
P_contra = TypeVar("P_contra", bound=Problem | FunctionProblem, contravariant=True)


@dataclass(frozen=True, kw_only=True)
class Situation(Generic[P_co]):
    """What a performer knows when a step starts.

    run              the run when the step started, without the step itself
    elapsed_seconds  seconds on the run's clock; call it again while the step runs
    tell             passes an event on, from any thread
    stop             set when the step should end soon: the run was interrupted
    moment           reads the clocks
    useless          set when the training beside a trial has ended: the trial is then ended too
    latest           the run now, with the steps in flight; None where the step runs alone
    """

    run: Run[P_co]
    elapsed_seconds: Callable[[], float]
    tell: Callable[[Event], None]
    stop: threading.Event = field(default_factory=threading.Event)
    moment: clock.Moments = clock.read_moment
    useless: threading.Event = field(default_factory=threading.Event)
    latest: Callable[[], Run[P_co]] | None = None

    @property
    def now(self) -> Run[P_co]:
        """The run now."""
        return self.run if self.latest is None else self.latest()


class Performer(Protocol[P_contra]):
    """Carries steps out. Only the loop calls it, after the step was authorised and recorded."""

    @property
    def simulated(self) -> bool:
        """Whether a step that was lost can be run again at no cost, with the same outcome."""
        ...

    def restore(self, run: Run[P_contra]) -> None:
        """Prepare to continue a run of an earlier process. Called once, before anything else."""
        ...

    def perform(self, step: Step, situation: Situation[P_contra]) -> Outcome:
        """Carry out `step` within its authorised time and cost. Raises Interrupted, ProviderError, KeyboardInterrupt.

        A failure of the job is an outcome, not an exception.
        """
        ...

    def lost(self, step: Step, situation: Situation[P_contra], *, interrupted: bool) -> Outcome:
        """The outcome of a real step that mlcd no longer watches: what is charged, or what it achieved meanwhile.

        interrupted  True: the user interrupted it just now; False: mlcd died
        """
        ...

    def calls(self) -> tuple[FunctionCall, ...]:
        """The function calls of the last step, if it was an epoch and the cloud lists them."""
        ...


@runtime_checkable
class HandsOver(Protocol[P_contra]):
    """A performer that has something to hand over when a run has ended, besides what its steps brought."""

    def hand_over(self, run: Run[P_contra], folder: Path) -> None:
        """Write it into `folder`, the run's outputs. Raises ProviderError, OSError."""
        ...


def lost_time(step: Step, situation: Situation[Problem] | Situation[FunctionProblem]) -> tuple[float, str]:
    """The seconds that a step is charged which mlcd no longer watches, and what was assumed, "; ..." or ""."""
    passed = clock.lost_time(step, situation.run, situation.moment())
    return clock.charged_seconds(step, passed), f"; {passed.note}" if passed.note else ""
