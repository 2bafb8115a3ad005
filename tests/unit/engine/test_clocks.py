"""Time that is charged and counted against the deadline, whatever happens to the clocks."""

import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.clocks import FakeClocks
from tests.synthetic import Listed, Machine, SyntheticCloud, make_engine, make_problem, measured, stored

from mlcd.clouds.provider import Lease, Order, Purpose
from mlcd.engine import Engine
from mlcd.engine.clock import Moments, WallClock, _this_boot, boot_seconds, lost_time, read_moment
from mlcd.events import Event, Warned
from mlcd.goal import Goal, Objective
from mlcd.problem import Problem
from mlcd.run.moment import AGREEMENT_SECONDS, Moment, elapsed_between
from mlcd.run.run import SearchRun
from mlcd.run.step import Role
from mlcd.space import Config
from mlcd.store.store import Store
from mlcd.trial.outcome import Status
from mlcd.units import HOUR

MACHINES = {"a": Machine(usd_per_hour=1.0, speed=10.0)}
A = Config.deployment("a", 1)
WORK = 36_000.0
DAY = 86_400.0


class Killed(BaseException):
    """mlcd died here."""


class Dying(SyntheticCloud):
    """A cloud that looks real; `kill` is called when nodes are leased for a purpose."""

    def __init__(self, purpose: Purpose | None = None, kill: Callable[[], None] = lambda: None) -> None:
        super().__init__(MACHINES, simulated=False, work_samples=WORK)
        self.purpose, self.kill = purpose, kill

    def lease(self, order: Order) -> Lease:
        if order.purpose is self.purpose:
            self.kill()
        return super().lease(order)


@pytest.fixture
def store() -> Iterator[Store]:
    with Store(None) as opened:
        yield opened


def engine(
    store: Store, cloud: SyntheticCloud, moments: Moments, *, add: bool = True, deadline_seconds: float | None = None
) -> tuple[Engine[Problem], list[str]]:
    goal = Goal(minimize=Objective.TIME, deadline_seconds=deadline_seconds)
    problem = make_problem(machines=MACHINES, counts=(1,), work_samples=WORK, goal=goal)
    warned: list[str] = []

    def hear(event: Event) -> None:
        if isinstance(event, Warned):
            warned.append(event.text)

    chosen = Listed(configs=(A,))
    return make_engine(problem, cloud, store, chosen=chosen, add=add, moments=moments, observer=hear), warned


def killed(store: Store, clocks: FakeClocks, purpose: Purpose, *, deadline_seconds: float | None = None) -> SearchRun:
    """A run that died while a trial or its training was in flight."""

    def die() -> None:
        raise Killed

    first, _ = engine(store, Dying(purpose, die), clocks, deadline_seconds=deadline_seconds)
    with pytest.raises(Killed):
        first.drive()
    return stored(store)


# ---- the time between two moments


def test_within_one_start_the_boot_clock_counts_and_a_wall_clock_that_was_set_is_reported() -> None:
    clocks = FakeClocks()
    then = clocks()
    clocks.wait(500.0)
    assert elapsed_between(then, clocks()).seconds == 500.0
    assert elapsed_between(then, clocks()).note == ""
    clocks.set_wall(AGREEMENT_SECONDS / 2)
    assert elapsed_between(then, clocks()).note == "", "network time corrects a clock by less"
    clocks.set_wall(-HOUR)
    back = elapsed_between(then, clocks())
    assert (back.seconds, back.most_seconds) == (500.0, 500.0)
    assert back.note.startswith("the wall clock was set back by")
    clocks.set_wall(2 * HOUR)
    assert elapsed_between(then, clocks()).seconds == 500.0
    assert "forward" in elapsed_between(then, clocks()).note


def test_after_a_restart_the_wall_clock_counts_unless_it_contradicts_the_uptime() -> None:
    clocks = FakeClocks()
    then = clocks()
    clocks.restart(down_seconds=100.0)
    clocks.wait(300.0)
    passed = elapsed_between(then, clocks())
    assert (passed.seconds, passed.most_seconds) == (400.0, 400.0)
    assert "restarted" in passed.note
    clocks.set_wall(-200.0)
    contradicted = elapsed_between(then, clocks())
    assert (contradicted.seconds, contradicted.most_seconds) == (300.0, math.inf)
    assert "contradicts" in contradicted.note
    clocks.set_wall(-DAY)
    assert elapsed_between(then, clocks()).seconds == 300.0, "it has been up for that long"
    assert "set back" in elapsed_between(then, clocks()).note


def test_the_uptime_of_another_machine_says_nothing() -> None:
    clocks = FakeClocks()
    then = clocks()
    clocks.replace_machine(uptime_seconds=1e6)
    clocks.wait(60.0)
    passed = elapsed_between(then, clocks())
    assert (passed.seconds, passed.most_seconds) == (60.0, 60.0)
    clocks.set_wall(-DAY)
    assert elapsed_between(then, clocks()).seconds == 0.0
    assert elapsed_between(then, clocks()).most_seconds == math.inf


def test_a_run_of_an_earlier_version_has_the_wall_clock_alone() -> None:
    clocks = FakeClocks()
    then = Moment(wall_seconds=clocks.wall_seconds)
    clocks.wait(70.0)
    assert elapsed_between(then, clocks()).seconds == 70.0
    assert elapsed_between(then, clocks()).note == ""
    clocks.set_wall(-DAY)
    assert elapsed_between(then, clocks()).most_seconds == math.inf


@pytest.mark.skipif(not Path("/proc/uptime").exists(), reason="only Linux tells how long it has been up")
def test_the_boot_clock_is_the_systems() -> None:
    """It counts suspended time too, as /proc/uptime does, and nobody can set it."""
    times = [float(Path("/proc/uptime").read_text().split()[0])]
    times.append(boot_seconds())
    times.append(float(Path("/proc/uptime").read_text().split()[0]) + 0.01)  # it has hundredths
    assert times == sorted(times)


def test_this_machine_has_moments() -> None:
    first, second = read_moment(), read_moment()
    assert first.boot == second.boot != ""
    assert first.boot_seconds is not None
    assert second.boot_seconds is not None
    assert first.boot_seconds <= second.boot_seconds <= boot_seconds()
    assert elapsed_between(first, second).note == ""


# ---- what a killed step is charged


@pytest.mark.parametrize("purpose", list(Purpose))
@pytest.mark.parametrize("by_seconds", [-HOUR, HOUR, -400 * DAY, 400 * DAY])
def test_setting_the_wall_clock_changes_neither_the_charge_nor_the_deadline(
    store: Store, purpose: Purpose, by_seconds: float
) -> None:
    clocks = FakeClocks()
    before = killed(store, clocks, purpose, deadline_seconds=5 * HOUR)
    clocks.wait(200.0)
    clocks.set_wall(by_seconds)
    again, warned = engine(store, Dying(), clocks, add=False, deadline_seconds=5 * HOUR)
    run = again.drive()
    lost = next(step for step in run.steps if step.number == before.in_flight[0].number)
    assert lost.outcome is not None
    assert lost.outcome.seconds == 200.0
    assert lost.outcome.usd == lost.price.for_seconds(200.0)
    way = "back" if by_seconds < 0 else "forward"
    assert f"the wall clock was set {way}" in str(getattr(lost.outcome, "message", ""))
    assert any(f"the wall clock was set {way}" in text for text in warned)
    assert run.status is Status.DONE
    assert lost.ended_seconds == pytest.approx(before.in_flight[0].started_seconds + 200.0)


def test_a_step_is_charged_in_full_where_the_clocks_contradict_each_other(store: Store) -> None:
    clocks = FakeClocks()
    before = killed(store, clocks, Purpose.TRIAL, deadline_seconds=5 * HOUR)
    clocks.wait(200.0)
    clocks.restart()
    clocks.set_wall(-HOUR)
    again, warned = engine(store, Dying(), clocks, add=False, deadline_seconds=5 * HOUR)
    run = again.drive()
    (step,) = before.in_flight
    lost = run.steps[0].trial
    assert lost.seconds == step.authorised_seconds
    assert lost.usd == step.price.for_seconds(step.authorised_seconds)
    assert "set back" in str(getattr(lost, "message", ""))
    assert any("set back" in text for text in warned)
    assert run.steps[1].started_seconds >= step.authorised_seconds, "what is charged counts against the deadline"


def test_the_deadline_does_not_restart_when_the_wall_clock_is_set_back_over_a_restart(store: Store) -> None:
    clocks = FakeClocks()
    killed(store, clocks, Purpose.RUN, deadline_seconds=5 * HOUR)
    clocks.wait(4 * HOUR)
    clocks.restart()
    clocks.wait(2 * HOUR)
    clocks.set_wall(-3 * HOUR)  # plausible for the wall clock alone: it shows 3 h, of which 2 h are proved
    again, _ = engine(store, Dying(), clocks, add=False, deadline_seconds=5 * HOUR)
    assert again._elapsed() >= 3 * HOUR
    clocks.set_wall(-30 * DAY)
    assert again._elapsed() >= 2 * HOUR
    run = again.drive()
    (lost,) = run.earlier
    assert lost.seconds == next(step for step in run.steps if step.role is Role.TRAINING).authorised_seconds


def test_what_ended_beside_a_lost_step_is_a_lower_bound_of_its_time(store: Store) -> None:
    """A restart hides how long a step ran; a step of its round that ended later does not."""
    clocks = FakeClocks()
    before = killed(store, clocks, Purpose.TRIAL)
    (step,) = before.in_flight
    clocks.wait(250.0)
    mate = replace(step, number=2).ended(
        measured(before.problem, A, speed=10.0, seconds=250.0), seconds=250.0, moment=clocks()
    )
    clocks.restart(down_seconds=0.0)
    clocks.wait(10.0)
    clocks.set_wall(-DAY)
    run = replace(before, steps=(step, mate))
    assert lost_time(step, run, clocks()).seconds == 260.0


def test_a_wall_clock_that_jumps_while_a_step_runs_changes_nothing(store: Store) -> None:
    clocks = FakeClocks()

    def jump() -> None:
        clocks.wait(30.0)
        clocks.set_wall(-7 * DAY)

    run = engine(store, Dying(Purpose.RUN, jump), clocks, deadline_seconds=2 * HOUR)[0].drive()
    assert run.status is Status.DONE
    assert run.steps[-1].ended_seconds == 30.0
    ends = [step.ended_seconds for step in run.steps]
    assert ends == sorted(ends, key=lambda end: end or 0.0)


@pytest.mark.parametrize("late_seconds", [0.0, 30 * DAY])
def test_a_run_that_is_resumed_after_its_last_step_did_not_overrun(
    store: Store, monkeypatch: pytest.MonkeyPatch, late_seconds: float
) -> None:
    clocks = FakeClocks()

    def die(*_: object) -> None:
        raise Killed

    first, _ = engine(store, Dying(), clocks, deadline_seconds=2 * HOUR)
    with monkeypatch.context() as patched:
        patched.setattr(store, "finish", die)
        with pytest.raises(Killed):
            first.drive()
    clocks.wait(late_seconds)
    again, _ = engine(store, Dying(), clocks, add=False, deadline_seconds=2 * HOUR)
    run = again.drive()
    assert run.status is Status.DONE
    assert WallClock(moments=clocks).elapsed_seconds(run) == late_seconds


# ---- the real clocks, through the store


@pytest.mark.parametrize("by_seconds", [-HOUR, HOUR])
def test_a_killed_run_whose_wall_clock_was_set_is_charged_by_the_boot_clock(tmp_path: Path, by_seconds: float) -> None:
    """The boot clock is this machine's own; the wall clock was an hour off when the run was killed."""

    def die() -> None:
        raise Killed

    def off() -> Moment:
        now = read_moment()
        return replace(now, wall_seconds=now.wall_seconds + by_seconds)

    began = boot_seconds()
    with Store(tmp_path) as store, pytest.raises(Killed):
        engine(store, Dying(Purpose.TRIAL, die), off)[0].drive()
    with Store(tmp_path) as store:
        (step,) = stored(store).in_flight
        assert step.started_moment is not None
        assert step.started_moment.wall_seconds == step.started_at
        again, warned = engine(store, Dying(), read_moment, add=False)
        lost = again.drive().steps[0].trial
    assert 0 < lost.seconds <= boot_seconds() - began
    assert lost.usd.micros > 0
    assert any("the wall clock was set" in text for text in warned)


# ---- systems without a clock of the boot


@pytest.mark.parametrize(("platform", "clock"), [("darwin", "CLOCK_MONOTONIC_RAW"), ("win32", "")])
def test_without_a_boot_clock_the_next_best_is_read(monkeypatch: pytest.MonkeyPatch, platform: str, clock: str) -> None:
    asked: list[int] = []

    def clock_gettime(which: int) -> float:
        asked.append(which)
        return 5.0

    monkeypatch.delattr(time, "CLOCK_BOOTTIME", raising=False)
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(time, "clock_gettime", clock_gettime)
    monkeypatch.setattr(time, "monotonic", lambda: 7.0)
    assert boot_seconds() == (5.0 if clock else 7.0)
    assert asked == ([getattr(time, clock)] if clock else [])


def test_without_a_boot_clock_each_process_is_a_machine_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(time, "CLOCK_BOOTTIME", raising=False)
    first, again, other = (_this_boot.__wrapped__(process) for process in (1, 1, 2))
    assert len({first, again, other}) == 3
    assert {machine for _, machine in (first, again, other)} == {""}
