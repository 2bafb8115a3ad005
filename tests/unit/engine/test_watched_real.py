"""A watched training on nodes that look real: it is looked at in time, and moves, stays or ends; no wall clock."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from tests.clocks import FakeClocks
from tests.synthetic import Listed, Machine, SyntheticCloud, SyntheticLease, driven, make_engine, make_problem, stored
from tests.unit.engine.test_training import Attempt, steady

from mlcd.clouds.provider import JobProgress, Lease, LeaseFailed, Order, Purpose
from mlcd.goal import Goal, Objective
from mlcd.problem import STOP_SECONDS, Problem
from mlcd.run.attempt import Ending
from mlcd.run.run import SearchRun
from mlcd.run.step import Role
from mlcd.space import Config
from mlcd.store.store import Store
from mlcd.trial.outcome import Status
from mlcd.trial.trial import FailureKind
from mlcd.units import Usd

MACHINES = {"slow": Machine(usd_per_hour=0.5, speed=20.0), "fast": Machine(usd_per_hour=10.0, speed=300.0)}
SLOW, FAST = (Config.deployment(name, 1) for name in MACHINES)
WORK = 1e6
FAST_SECONDS, SLOW_SECONDS = 42 + WORK / 300, 42 + WORK / 20
TRIALS_USD = (0.5 + 10.0) * 600 / 3600
LOOK = 42 + 600.0 + STOP_SECONDS
BUDGET = Usd.of(round(TRIALS_USD + 1.1 * 10.0 * FAST_SECONDS / 3600, 6))
CLOSE = 1.1
"""The limit, as a multiple of what is expected: the upper bound is 15% more."""


@dataclass
class Timed(Attempt):
    """A training whose clock goes with its points."""

    clocks: FakeClocks | None = None

    def progress(self) -> Iterator[JobProgress]:
        before = 0.0
        for point in super().progress():
            if self.clocks is not None:
                self.clocks.wait(point.seconds - before)
            before = point.seconds
            yield point


class Nodes(SyntheticCloud):
    """Real to the engine. Trials are exact, but nobody knows; trainings are scripted."""

    def __init__(self, *attempts: Attempt, saved: float = 0.0) -> None:
        super().__init__(MACHINES, simulated=False)
        self.noise, self.attempts, self.saved = 0.03, list(attempts), saved
        self.orders: list[Order] = []
        for attempt in attempts:
            attempt.cloud = self  # type: ignore[assignment]

    def reached_samples(self, run_id: str) -> float:
        return self.saved

    def lease(self, order: Order) -> Lease:
        if order.purpose is Purpose.TRIAL:
            return SyntheticLease(self, self.true_samples_per_second(order.config), self.startup_seconds(order.config))
        self.orders.append(order)
        return self.attempts[len(self.orders) - 1]


def problem(goal: Goal | None = None, **others: Any) -> Problem:
    goal = goal or Goal(minimize=Objective.TIME, budget=BUDGET)
    made = make_problem(watched=True, machines=MACHINES, counts=(1,), goal=goal, work_samples=WORK)
    return replace(made, noise=0.03, **others)


def train(cloud: Nodes, *configs: Config, given: Problem | None = None, clocks: FakeClocks | None = None) -> SearchRun:
    chosen = Listed(configs=configs or (SLOW, FAST))
    with Store(None) as store:
        engine = make_engine(given or problem(), cloud, store, chosen=chosen, moments=clocks or FakeClocks())
        return driven(engine, store)


def at(speed: float, *, work: float = WORK, **others: Any) -> Timed:
    """A training at a speed, after as long a start as its trial's."""
    return Timed(steady(speed, work, since=42.0), stopping=STOP_SECONDS - 1, **others)


def ends(run: SearchRun) -> list[tuple[Config, Ending]]:
    return [(attempt.config, attempt.ending) for attempt in run.attempts]


@pytest.mark.parametrize("saved", [0.0, 20_000.0])
def test_a_real_training_that_is_too_slow_moves_to_its_fallback_when_it_is_looked_at(saved: float) -> None:
    cloud = Nodes(at(250.0, reached=saved), at(20.0, work=WORK - saved))
    run = train(cloud)
    assert ends(run) == [(FAST, Ending.MOVED), (SLOW, Ending.DONE)]
    moved = run.attempts[0]
    assert LOOK - STOP_SECONDS <= moved.seconds <= LOOK, "the nodes are released within the look"
    assert "is too slow" in moved.message
    assert "continues on 1 x slow" in moved.message
    assert moved.next_plan is not None
    assert moved.next_plan.config == SLOW
    assert moved.samples_per_second == pytest.approx(250.0)
    assert moved.reached_samples == saved
    assert run.status is Status.DONE
    assert run.spent <= BUDGET


def test_one_that_is_fast_enough_stays() -> None:
    run = train(Nodes(at(290.0)))
    assert ends(run) == [(FAST, Ending.DONE)]
    assert run.steps[-1].watch is not None
    assert run.status is Status.DONE


def test_a_slow_start_is_no_reason_to_move_before_the_look() -> None:
    """A third of the speed for five minutes, then as its trial: when it is looked at, its own speed fits."""
    first = steady(100.0, 20_000.0, since=42.0)
    rest = [(s + first[-1][0], n + first[-1][1]) for s, n in steady(310.0, WORK - 20_000.0, since=10.0)]
    run = train(Nodes(Timed([*first, *rest], stopping=1.0)), given=problem())
    assert ends(run) == [(FAST, Ending.DONE)]


def test_a_speed_that_is_still_unknown_is_too_slow() -> None:
    waiting = Timed([(2.0 * n, 0.0) for n in range(1, 500)], stopping=1.0)
    run = train(Nodes(waiting, at(20.0)))
    assert ends(run) == [(FAST, Ending.MOVED), (SLOW, Ending.DONE)]
    assert "no measurable progress" in run.attempts[0].message
    assert run.attempts[0].seconds <= LOOK


def test_without_a_fallback_it_ends_when_it_is_looked_at_and_is_not_tried_again() -> None:
    budget = Usd.of(round(10.0 * 600 / 3600 + CLOSE * 10.0 * FAST_SECONDS / 3600, 6))
    goal = Goal(minimize=Objective.TIME, budget=budget)
    run = train(Nodes(at(200.0)), FAST, given=problem(goal))
    assert ends(run) == [(FAST, Ending.MOVED)]
    assert run.status is Status.NOTHING_FITS
    waiting = Timed([(2.0 * n, 0.0) for n in range(1, 500)], stopping=1.0)
    assert ends(train(Nodes(waiting), FAST, given=problem(goal))) == [(FAST, Ending.MOVED)]


def test_a_speed_that_is_still_unknown_is_too_slow_even_if_there_is_time() -> None:
    goal = Goal(minimize=Objective.COST, deadline_seconds=CLOSE * SLOW_SECONDS)
    late = Timed([*((2.0 * n, 0.0) for n in range(1, 400)), *steady(20.0, WORK, since=800.0)], stopping=1.0)
    assert ends(train(Nodes(late), SLOW, given=problem(goal))) == [(SLOW, Ending.MOVED)]


def slowing(clocks: FakeClocks) -> Timed:
    """As fast as its trial when it is looked at; later a tenth of that."""
    first = steady(20.0, 20.0 * 1000, since=42.0)
    rest = [(s + first[-1][0], n + first[-1][1]) for s, n in steady(2.0, WORK, since=10.0, step=100.0)]
    return Timed([*first, *rest], stopping=1.0, clocks=clocks)


def test_a_watched_training_never_runs_through_the_deadline() -> None:
    clocks = FakeClocks()
    goal = Goal(minimize=Objective.COST, deadline_seconds=CLOSE * SLOW_SECONDS)
    cloud = Nodes(slowing(clocks))
    run = train(cloud, SLOW, given=problem(goal), clocks=clocks)
    assert ends(run) == [(SLOW, Ending.STOPPED)]
    assert run.final is not None
    assert "stopped before the deadline" in run.final.message
    assert goal.deadline_seconds is not None
    assert run.final.seconds <= goal.deadline_seconds
    assert cloud.orders[0].seconds <= goal.deadline_seconds, "its nodes end themselves too"
    assert run.status.exit_code == 5


def test_a_watched_training_that_slows_down_later_moves_if_something_fits_by_then() -> None:
    clocks = FakeClocks()
    goal = Goal(minimize=Objective.COST, deadline_seconds=CLOSE * SLOW_SECONDS)
    run = train(Nodes(slowing(clocks), at(300.0)), SLOW, FAST, given=problem(goal), clocks=clocks)
    assert ends(run) == [(SLOW, Ending.MOVED), (FAST, Ending.DONE)]
    assert run.attempts[0].seconds > LOOK + STOP_SECONDS
    assert run.attempts[0].next_plan is not None
    assert run.attempts[0].next_plan.config == FAST


def test_a_restart_after_the_look_is_judged_anew() -> None:
    """Nothing of the work is saved, and the money for the fast one is gone: what is left is enough for the slow one."""
    gone = LeaseFailed(FailureKind.LOST, "node 0 is gone", seconds=700.0)
    early = Timed(steady(300.0, 180_000.0, since=42.0), gone)
    run = train(Nodes(early, at(20.0)))
    assert ends(run) == [(FAST, Ending.RESTARTED), (SLOW, Ending.DONE)]
    assert run.steps[-1].watch is None
    assert run.spent <= BUDGET


def test_after_a_pause_that_takes_the_time_of_a_watched_choice_the_best_certain_one_is_trained_on() -> None:
    clocks = FakeClocks()
    goal = Goal(minimize=Objective.COST, deadline_seconds=CLOSE * SLOW_SECONDS)
    cloud = Nodes(at(300.0))
    with Store(None) as store:
        engine = make_engine(problem(goal), cloud, store, chosen=Listed(configs=(SLOW, FAST)), moments=clocks)
        engine.search_only = True
        searched = engine.drive()
        assert searched.verdict is not None
        assert searched.verdict.watch is not None
        assert searched.choice is not None
        assert searched.choice.config == SLOW
        clocks.wait(0.2 * SLOW_SECONDS)
        chosen = Listed(configs=(SLOW, FAST))
        make_engine(problem(goal), cloud, store, chosen=chosen, add=False, moments=clocks).drive()
        run = stored(store)
    assert ends(run) == [(FAST, Ending.DONE)]
    assert run.steps[-1].role is Role.TRAINING
    assert run.steps[-1].watch is None
