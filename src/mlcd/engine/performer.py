"""The seam between the loop and whatever carries a step out."""

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from mlcd.events import Event
from mlcd.functions import FunctionProblem
from mlcd.problem import Problem
from mlcd.run.run import Run
from mlcd.run.step import Outcome, Step
from mlcd.trial.call import FunctionCall

P_co = TypeVar("P_co", bound=Problem | FunctionProblem, covariant=True)
P_contra = TypeVar("P_contra", bound=Problem | FunctionProblem, contravariant=True)


@dataclass(frozen=True, kw_only=True)
class Situation(Generic[P_co]):
    """What a performer knows when a step starts.

    run              the run when it started, the step itself not in it
    elapsed_seconds  seconds on the run's clock; call it again while the step runs
    tell             passes an event on, from any thread
    stop             set when the step should end soon: the run was interrupted
    """

    run: Run[P_co]
    elapsed_seconds: Callable[[], float]
    tell: Callable[[Event], None]
    stop: threading.Event = field(default_factory=threading.Event)


class Performer(Protocol[P_contra]):
    """Carries steps out. Only the loop calls it, after the step was authorised and written down."""

    @property
    def simulated(self) -> bool:
        """Whether a step that was lost can be run again at no cost, with the same outcome."""
        ...

    def restore(self, run: Run[P_contra]) -> None:
        """Continue a run of an earlier process; called once, before anything else."""
        ...

    def perform(self, step: Step, situation: Situation[P_contra]) -> Outcome:
        """Carry it out: never longer or dearer than authorised. Raises Interrupted, ProviderError, KeyboardInterrupt.

        What fails is an outcome, not an exception.
        """
        ...

    def lost(self, step: Step, situation: Situation[P_contra], *, interrupted: bool) -> Outcome:
        """What is charged for a real step that nobody watches any more, or that ended unwatched.

        interrupted  by the user, just now; else mlcd died
        """
        ...

    def calls(self) -> tuple[FunctionCall, ...]:
        """The calls of the last step, where it was an epoch on functions whose cloud itemises them."""
        ...


def lost_seconds(step: Step) -> float:
    """The time that a step has run unwatched, by the wall clock: at most what was authorised."""
    seconds = max(time.time() - step.started_at, 0.0)
    return min(seconds, step.authorised_seconds) if step.authorised_seconds < math.inf else seconds
