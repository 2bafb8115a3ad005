"""The bound on every call into a cloud, and Ctrl-C while one runs."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from textwrap import dedent

import pytest
from tests.synthetic import SyntheticCloud, make_problem, make_run
from tests.unmeasured import UNMEASURED

from mlcd.engine.performer import Situation
from mlcd.engine.watchdog import MOST_WAITING, Bounds, Overdue, watched
from mlcd.errors import Interrupted
from mlcd.events import Event, RunProgress, Warned
from mlcd.problem import Problem
from mlcd.run.money import Money
from mlcd.space import Config
from mlcd.units import ZERO

QUICK = Bounds(abandon_seconds=0.1, interrupt_seconds=0.2)


def situation(tell: Callable[[Event], None] = lambda _event: None) -> Situation[Problem]:
    run = make_run(make_problem(), SyntheticCloud(), "listed", run_id="run-1")
    return Situation(run=run, elapsed_seconds=lambda: 0.0, tell=tell)


def test_what_a_call_returns_raises_and_tells_is_passed_on_by_the_calling_thread() -> None:
    seen: list[tuple[Event, int]] = []
    here = threading.get_ident()

    def work(inner: Situation[Problem]) -> int:
        assert threading.get_ident() != here
        inner.tell(Warned(text="one"))
        inner.tell(Warned(text="two"))
        return 7

    outside = situation(lambda event: seen.append((event, threading.get_ident())))
    assert watched(work, outside, most_seconds=60.0, bounds=QUICK) == 7
    assert seen == [(Warned(text="one"), here), (Warned(text="two"), here)]

    class Odd(BaseException):
        pass

    def fail(_inner: Situation[Problem]) -> None:
        raise Odd

    with pytest.raises(Odd):
        watched(fail, outside, most_seconds=60.0, bounds=QUICK)


def test_progress_that_is_told_faster_than_it_is_heard_does_not_pile_up() -> None:
    heard: list[Event] = []
    all_told = threading.Event()

    def slow(event: Event) -> None:
        assert all_told.wait(30)
        heard.append(event)

    money = Money(spent=ZERO, reserved=ZERO, left=None, elapsed_seconds=0.0, reserved_seconds=0.0, seconds_left=None)
    progress = RunProgress(config=Config.deployment("a", 1), fraction=0.5, money=money)

    def work(inner: Situation[Problem]) -> None:
        for _ in range(5 * MOST_WAITING):
            inner.tell(progress)
        inner.tell(Warned(text="the last"))
        all_told.set()

    watched(work, situation(slow), most_seconds=60.0, bounds=QUICK)
    assert MOST_WAITING <= len(heard) <= MOST_WAITING + 2
    assert heard[-1] == Warned(text="the last")


def test_a_call_that_never_returns_is_abandoned_asked_to_stop_and_not_heard_again() -> None:
    events: list[Event] = []
    go, stopped, told = threading.Event(), threading.Event(), threading.Event()

    def work(inner: Situation[Problem]) -> None:
        go.wait()
        if inner.stop.is_set():
            stopped.set()
        inner.tell(Warned(text="late"))
        told.set()

    with pytest.raises(Overdue):
        watched(work, situation(events.append), most_seconds=0.1, bounds=QUICK)
    go.set()
    assert told.wait(30)
    assert stopped.is_set()
    assert events == []


def test_a_stop_of_the_run_reaches_the_call_and_is_not_waited_for_long() -> None:
    outside = situation()
    outside.stop.set()

    def obeys(inner: Situation[Problem]) -> str:
        assert inner.stop.wait(30)
        return "stopped"

    assert watched(obeys, outside, most_seconds=60.0, bounds=QUICK) == "stopped"
    go = threading.Event()
    with pytest.raises(Interrupted):
        watched(lambda _inner: go.wait(), outside, most_seconds=60.0, bounds=QUICK)
    go.set()


def test_a_stop_of_the_run_is_seen_by_the_call_at_once() -> None:
    outside = situation()

    def looks(inner: Situation[Problem]) -> bool:
        outside.stop.set()
        return inner.stop.is_set()

    assert watched(looks, outside, most_seconds=60.0, bounds=QUICK)


CTRL_C = """
    import os, signal, sys, threading, time
    from mlcd.engine.watchdog import Bounds, watched
    from tests.unit.engine.test_watchdog import situation

    def polls(inner):
        try:
            print("ready", flush=True)
            while True:
                time.sleep(0.01)
        finally:
            print("released", flush=True)

    def is_stuck(inner):
        print("ready", flush=True)
        threading.Event().wait()

    bounds = Bounds(interrupt_seconds=0.5 if sys.argv[1] == "is_stuck" else 60.0)
    told = []
    try:
        work = {"polls": polls, "is_stuck": is_stuck}[sys.argv[1]]
        watched(work, situation(told.append), most_seconds=600.0, bounds=bounds)
    except KeyboardInterrupt:
        print("interrupted", [event.text[:22] for event in told], flush=True)
"""


@pytest.mark.parametrize(
    ("work", "said"),
    [
        ("polls", ["ready", "released", "interrupted []"]),
        ("is_stuck", ["ready", "interrupted ['the cloud did not stop']"]),
    ],
)
def test_ctrl_c_releases_what_was_leased_and_does_not_wait_for_what_is_stuck(work: str, said: list[str]) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", dedent(CTRL_C), work],
        env={**os.environ, **UNMEASURED}, stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    first = process.stdout.readline().strip()
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=60)
    assert [first, *rest.splitlines()] == said
