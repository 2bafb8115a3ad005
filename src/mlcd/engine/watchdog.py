"""The engine's own bound on every call into a cloud: what does not return in time is abandoned, never waited for.

A call runs in a thread of its own; the thread that called waits for it, passes its events on, and gives up when its
time is over. Python cannot end a thread that is stuck in a system call, so an abandoned one is asked to stop, and its
events and its outcome are ignored from then on.
"""

import contextlib
import ctypes
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from mlcd.engine.performer import Situation
from mlcd.errors import Interrupted
from mlcd.events import Event, RunProgress, Warned
from mlcd.functions import FunctionProblem
from mlcd.problem import Problem
from mlcd.run.moment import Moment, elapsed_between
from mlcd.run.step import Step
from mlcd.units import format_seconds

POLL_SECONDS = 0.2
"""How often a waiting thread looks whether the run was stopped."""
MOST_WAITING = 1_000
"""Events that wait to be passed on; while there are more, progress is not told: a cloud may report faster than it is
shown."""
MAY_STILL_RUN = "what it started may still run and cost money: `mlcd down` lists and ends it, or end it at the provider"

T = TypeVar("T")
P = TypeVar("P", bound=Problem | FunctionProblem)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How long the engine waits for a cloud.

    late_seconds       after its authorised time, a real lease that still reports progress is ended
    abandon_seconds    after its authorised time, a real step whose cloud has not returned is abandoned
    simulated_seconds  real time after which a simulated step is abandoned
    recover_seconds    for a call outside a step, such as the question what a lost step saved
    interrupt_seconds  for a cloud to give its nodes back after Ctrl-C; pressed again, it is not waited for
    """

    late_seconds: float = 300.0
    abandon_seconds: float = 600.0
    simulated_seconds: float = 3600.0
    recover_seconds: float = 600.0
    interrupt_seconds: float = 120.0

    def lost_seconds(self, *, interrupted: bool) -> float:
        """How long to wait for what a cloud knows of a step that mlcd no longer watches."""
        return min(self.recover_seconds, self.interrupt_seconds) if interrupted else self.recover_seconds

    def step_seconds(self, authorised_seconds: float, *, simulated: bool) -> float:
        """Real time after which a step is abandoned."""
        return self.simulated_seconds if simulated else authorised_seconds + self.abandon_seconds


class Overdue(Exception):
    """A call did not return within `seconds` of real time; it was abandoned."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"did not return within {seconds:,.0f} s")
        self.seconds = seconds


class _Stop(threading.Event):
    """The stop of one call: its own, or that of the whole run, which ends a `wait` within POLL_SECONDS."""

    def __init__(self, run: threading.Event) -> None:
        super().__init__()
        self._run = run

    def is_set(self) -> bool:
        """Whether the call is to end."""
        return super().is_set() or self._run.is_set()

    @property
    def is_passed_on(self) -> bool:
        """Whether those who wait have been told."""
        return super().is_set()


@dataclass(slots=True)
class _Result(Generic[T]):
    value: T | None = None
    error: BaseException | None = None


def watched(work: Callable[[Situation[P]], T], situation: Situation[P], *, most_seconds: float, bounds: Bounds) -> T:
    """What `work` returns or raises, with the situation for it. Raises Overdue after `most_seconds` of real time.

    Events are passed on by the calling thread. Ctrl-C, which Python delivers to the main thread, is raised in `work`
    too, so that it gives its nodes back; then it is raised here, at the latest after bounds.interrupt_seconds.
    """
    inbox: SimpleQueue[Event | _Result[T]] = SimpleQueue()
    stop = _Stop(situation.stop)

    def tell(event: Event) -> None:
        if inbox.qsize() < MOST_WAITING or not isinstance(event, RunProgress):
            inbox.put(event)

    inner = replace(situation, tell=tell, stop=stop)

    def body() -> None:
        result: _Result[T] = _Result()
        with contextlib.suppress(KeyboardInterrupt):  # an interrupt that comes when the work has just ended
            try:
                result.value = work(inner)
            except BaseException as error:
                result.error = error
            inbox.put(result)

    thread = threading.Thread(target=body, name="mlcd cloud", daemon=True)
    until = time.monotonic() + most_seconds
    try:
        thread.start()
        result = _wait(inbox, situation, stop, until, bounds)
    except BaseException as error:
        stop.set()
        if isinstance(error, KeyboardInterrupt):
            _interrupt(thread)
            thread.join(bounds.interrupt_seconds)
        if thread.is_alive() and not isinstance(error, Overdue):
            situation.tell(Warned(text=f"the cloud did not stop; {MAY_STILL_RUN}"))
        raise
    if result is None:
        stop.set()
        raise Overdue(most_seconds)
    if result.error is not None:
        raise result.error
    return result.value  # type: ignore[return-value]  # there is no error, so `work` has returned it


def abandoned(step: Step, situation: Situation[P], began: Moment, problem: str) -> tuple[float, str]:
    """(seconds, message) of a step that was abandoned; tells the user.

    Charged are the engine's own time and the whole authorised time, whichever is longer: nodes that nobody could end go
    on until they end themselves.
    """
    passed = elapsed_between(began, situation.moment()).seconds
    seconds = max(passed, step.authorised_seconds) if math.isfinite(step.authorised_seconds) else passed
    message = f"{problem}: it was abandoned, and {format_seconds(seconds)} are charged; {MAY_STILL_RUN}"
    situation.tell(Warned(text=message))
    return seconds, message


def _wait(
    inbox: "SimpleQueue[Event | _Result[T]]",
    situation: Situation[P],
    stop: _Stop,
    until: float,
    bounds: Bounds,
) -> _Result[T] | None:
    """The result, after its events; None when the time is over. Raises Interrupted where a stop is ignored."""
    while True:
        now = time.monotonic()
        if now >= until:
            if stop.is_set():
                raise Interrupted("the cloud did not stop with the run")
            return None
        if situation.stop.is_set() and not stop.is_passed_on:
            stop.set()
            until = min(until, now + bounds.interrupt_seconds)
        with contextlib.suppress(Empty):
            item = inbox.get(timeout=min(POLL_SECONDS, max(until - now, 0.0)))
            if isinstance(item, _Result):
                return item
            situation.tell(item)


def _interrupt(thread: threading.Thread) -> None:
    """Raise KeyboardInterrupt in a thread, as soon as it runs Python again."""
    if thread.ident is not None and thread.is_alive():
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(KeyboardInterrupt))
