"""Search beside the run on simulated clouds: stretches, moves, what they take, and that nothing is paid twice."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.synthetic import Listed, Machine, SyntheticCloud, driven, make_engine, make_problem, stored, timeless

from mlcd.clouds.provider import JobProgress, Lease, Order, Purpose
from mlcd.deciders.account import Accounts
from mlcd.engine.stretch import points_after
from mlcd.errors import ProviderError
from mlcd.goal import Goal, Objective
from mlcd.problem import Problem, TrialPolicy
from mlcd.run.attempt import Ending
from mlcd.run.run import SearchRun
from mlcd.run.step import Role, Step
from mlcd.space import Config
from mlcd.store.store import Store
from mlcd.trial.outcome import Status
from mlcd.trial.trial import Failure, FailureKind
from mlcd.units import Usd

MACHINES = {
    "slow": Machine(usd_per_hour=1.0, speed=10.0),
    "even": Machine(usd_per_hour=1.0, speed=10.1),
    "fast": Machine(usd_per_hour=4.0, speed=20.0),
}
SLOW, EVEN, FAST = (Config.deployment(name, 1) for name in MACHINES)
WORK = 72_000.0  # 7,200 s on slow, 3,600 s on fast
START = 42.0  # seconds that the synthetic cloud takes to start one node
TRIAL = TrialPolicy(seconds=300.0, extra_seconds_per_3_nodes=0.0, extension=0.0, watchdog_seconds=0.0)
RESTART = 100.0
KEPT = (300 - START) * 10  # of a trial of slow that runs alone
REST = RESTART + (WORK - KEPT) / 10  # seconds of a training on slow that continues from it


@pytest.fixture
def store() -> Iterator[Store]:
    with Store(None) as opened:
        yield opened


def problem(**others: object) -> Problem:
    made: dict[str, Any] = {"goal": Goal(minimize=Objective.TIME), "noise": 0.0, "trial": TRIAL, "beside": True}
    made = {**made, "restart_seconds": RESTART, "work_samples": WORK, **others}
    return make_problem(machines=MACHINES, counts=(1,), **made)


def run_of(
    store: Store,
    configs: tuple[Config, ...],
    *,
    of: Problem | None = None,
    parallel: int = 1,
    at_once: int | None = None,
) -> SearchRun:
    chosen = Listed(configs=configs, at_once=at_once)
    return driven(
        make_engine(of or problem(), SyntheticCloud(MACHINES), store, chosen=chosen, parallel=parallel), store
    )


def trainings(run: SearchRun) -> list[Step]:
    return [step for step in run.steps if step.role is Role.TRAINING]


def test_the_training_starts_with_the_first_deployment_that_fits(store: Store) -> None:
    run = run_of(store, (SLOW, EVEN))
    assert [(step.round, step.role, step.config) for step in run.steps] == [
        (1, Role.TRIAL, SLOW),
        (2, Role.TRIAL, EVEN),
        (2, Role.TRAINING, SLOW),
        (3, Role.TRAINING, SLOW),
    ]
    first, last = trainings(run)
    assert first.final.ending is Ending.CONTINUED
    assert first.final.seconds == 300.0
    assert run.trials[0].trial.reached_samples == pytest.approx(KEPT)  # it ran alone: a part of the training
    assert run.trials[1].trial.reached_samples == 0.0
    assert first.final.reached_samples == pytest.approx(KEPT + (300 - RESTART) * 10)
    assert last.final.ending is Ending.DONE
    # One restart and no pause: the rest of the training takes as long as in one piece, and the second trial no time.
    assert run.total_seconds == pytest.approx(300 + REST)
    assert [a.ending for a in run.attempts] == [Ending.DONE]
    assert run.attempts[0].seconds == pytest.approx(REST)
    assert run.total_usd == Usd(sum(s.outcome.usd.micros for s in run.steps if s.outcome is not None))


def test_it_moves_where_a_trial_shows_that_it_pays(store: Store) -> None:
    run = run_of(store, (SLOW, FAST))
    moved, last = run.attempts
    assert (moved.ending, moved.config, moved.seconds) == (Ending.MOVED, SLOW, 300.0)
    assert moved.next_plan is not None
    assert moved.next_plan.config == FAST
    done = KEPT + (300 - RESTART) * 10
    assert moved.reached_samples == pytest.approx(done)
    assert last.config == FAST
    assert last.seconds == pytest.approx(RESTART + (WORK - done) / 20)
    assert run.total_seconds == pytest.approx(600 + last.seconds)
    assert run.choice is not None
    assert run.choice.config == FAST


@pytest.mark.parametrize(("restart_seconds", "ends_on"), [(250.0, [SLOW]), (100.0, [SLOW, FAST])])
def test_a_gain_that_the_restart_eats_is_no_reason_to_move(
    store: Store, restart_seconds: float, ends_on: list[Config]
) -> None:
    """After the trials, staying takes 492 s and moving 496 s; with a shorter restart 342 s and 271 s."""
    short = problem(restart_seconds=restart_seconds, work_samples=8000.0)
    run = run_of(store, (SLOW, FAST), of=short)
    assert [a.config for a in run.attempts] == ends_on


def test_a_restart_takes_its_time_once_however_many_stretches_follow(store: Store) -> None:
    run = run_of(store, (SLOW, FAST, EVEN))
    moved, last = run.attempts
    stretches = [step for step in trainings(run) if step.config == FAST]
    assert len(stretches) == 2
    assert stretches[0].authorisation.attempt == stretches[1].authorisation.attempt == 2
    assert last.seconds == pytest.approx(RESTART + (WORK - moved.reached_samples) / 20)


def test_each_stretch_is_authorised_what_the_one_before_left(store: Store) -> None:
    noisy = problem(noise=0.03)
    run = run_of(store, (SLOW, EVEN), of=noisy)
    first, last = trainings(run)
    assert last.authorised_usd <= first.authorised_usd - first.final.usd
    assert last.authorised_seconds <= first.authorised_seconds - first.final.seconds
    assert last.final.seconds <= last.authorised_seconds


def test_trials_of_one_round_start_from_the_same_checkpoint_and_the_furthest_leaves_the_next(store: Store) -> None:
    run = run_of(store, (SLOW, FAST), parallel=2)
    assert [(step.round, step.role, step.config) for step in run.steps] == [
        (1, Role.TRIAL, SLOW),
        (1, Role.TRIAL, FAST),
        (2, Role.TRAINING, FAST),
    ]
    assert [step.trial.reached_samples for step in run.trials] == pytest.approx([KEPT, 2 * KEPT])
    assert run.attempts[0].seconds == pytest.approx(RESTART + (WORK - 2 * KEPT) / 20)


def test_the_deadline_is_used_once(store: Store) -> None:
    """Thrown, the trial of `fast` would not fit beside the reserve for `slow`; beside, it does."""
    goal = Goal(minimize=Objective.TIME, deadline_seconds=300 + START + 7200 + 30)
    assert [s.config for s in run_of(store, (SLOW, FAST), of=problem(goal=goal, beside=False)).trials] == [SLOW]
    with Store(None) as other:
        run = run_of(other, (SLOW, FAST), of=problem(goal=goal))
    assert [s.config for s in run.trials] == [SLOW, FAST]
    assert run.status is Status.DONE
    assert run.total_seconds < goal.deadline_seconds if goal.deadline_seconds else False


def test_money_for_trials_and_training_adds_up(store: Store) -> None:
    """A budget that holds the training and one trial of `slow`, and no cent more, allows no other trial."""
    enough = Usd.of(300 / 3600) + Usd.of(REST / 3600) + Usd.of(4 * 300 / 3600)
    tight = problem(goal=Goal(minimize=Objective.TIME, budget=enough - Usd.of("0.01")))
    assert [s.config for s in run_of(store, (SLOW, FAST), of=tight, parallel=2, at_once=1).trials] == [SLOW]
    with Store(None) as other:
        loose = problem(goal=Goal(minimize=Objective.TIME, budget=enough + Usd.of("0.01")))
        run = run_of(other, (SLOW, FAST), of=loose, parallel=2, at_once=1)
    assert [s.config for s in run.trials] == [SLOW, FAST]


@pytest.mark.parametrize("parallel", [1, 8])
@pytest.mark.parametrize(
    "goal", [Goal(minimize=Objective.COST), Goal(minimize=Objective.TIME, budget=Usd.of(20))], ids=["cost", "budget"]
)
def test_where_money_counts_the_training_waits_for_trials_that_are_parts_of_it(
    store: Store, goal: Goal, parallel: int
) -> None:
    """However many may run at once: several at once cost as much money, and only the work of one of them is kept."""
    run = run_of(store, (FAST, SLOW, EVEN), of=problem(goal=goal), parallel=parallel)
    assert [step.role for step in run.steps] == [Role.TRIAL] * 3 + [Role.TRAINING]
    first, *later = [step.trial.reached_samples for step in run.trials]
    assert first == pytest.approx((300 - START) * 20)
    assert later == pytest.approx([first + 200 * 10, first + 200 * 10 + 200 * 10.1])  # a restart is part of each
    (trained,) = run.attempts
    assert trained.seconds == pytest.approx(RESTART + (WORK - later[-1]) / MACHINES[trained.config.instance].speed)


def test_a_budget_for_many_trainings_is_no_reason_to_wait(store: Store) -> None:
    ample = problem(goal=Goal(minimize=Objective.TIME, budget=Usd.of(1000)))
    run = run_of(store, (FAST, SLOW, EVEN), of=ample, parallel=8)
    beside = [step.role for step in run.steps if step.round == 2]
    assert beside == [Role.TRIAL, Role.TRIAL, Role.TRAINING], "after the first trial, as without a budget"


def test_a_training_that_waits_starts_beside_a_trial_when_the_deadline_presses(store: Store) -> None:
    with Store(None) as other:
        pressed = problem(goal=Goal(minimize=Objective.COST, deadline_seconds=300 + REST + 200))
        run = run_of(other, (SLOW, EVEN), of=pressed)
    assert [step.role for step in run.steps] == [Role.TRIAL, Role.TRIAL, Role.TRAINING, Role.TRAINING]


def test_a_training_that_ends_first_ends_the_trials_beside_it(store: Store) -> None:
    """The trial is expected to end before the training, and takes longer."""

    class Late(SyntheticCloud):
        def lease(self, order: Order) -> Lease:
            self.step_seconds = 8000.0 if order.config == FAST else 30.0
            return super().lease(order)

    longer = problem(trial=replace(TRIAL, extension=0.5, watchdog_seconds=9000.0))
    run = driven(make_engine(longer, Late(MACHINES), store, chosen=Listed(configs=(SLOW, FAST))), store)
    assert run.status is Status.DONE
    training = trainings(run)[-1]
    late = run.trials[-1].trial
    assert isinstance(late, Failure)
    assert late.kind is FailureKind.CANCELLED
    rest = RESTART + (WORK - run.trials[0].trial.reached_samples) / 10
    assert late.seconds == training.final.seconds == pytest.approx(rest)
    assert late.usd == Usd.of(4).for_seconds(late.seconds)
    assert run.total_seconds == pytest.approx(run.trials[0].trial.seconds + rest)
    assert run.choice is not None
    assert run.choice.config == SLOW


@pytest.mark.parametrize("killed_at", range(1, 7))
@pytest.mark.parametrize(
    ("goal", "parallel"),
    [
        (Goal(minimize=Objective.TIME), 2),
        (Goal(minimize=Objective.COST), 1),
        (Goal(minimize=Objective.COST, deadline_seconds=600 + REST + 10), 1),
    ],
    ids=["beside", "waits", "pressed"],
)
def test_a_run_killed_anywhere_resumes_to_the_same_answer(
    store: Store, goal: Goal, parallel: int, killed_at: int
) -> None:
    searched = problem(goal=goal)
    whole = run_of(store, (SLOW, EVEN, FAST), of=searched, parallel=parallel)

    class Killed(BaseException):
        pass

    class Mortal(SyntheticCloud):
        count = 0

        def lease(self, order: Order) -> Lease:
            Mortal.count += 1
            if Mortal.count == killed_at:
                raise Killed
            return super().lease(order)

    with Store(None) as other:
        chosen = Listed(configs=(SLOW, EVEN, FAST))
        engine = make_engine(searched, Mortal(MACHINES), other, chosen=chosen, parallel=parallel)
        try:
            engine.drive()
        except Killed:
            engine = make_engine(searched, Mortal(MACHINES), other, chosen=chosen, parallel=parallel, add=False)
            engine.drive()
        resumed = stored(other)
    assert timeless(resumed.steps) == timeless(whole.steps)
    assert resumed.total_usd == whole.total_usd
    assert resumed.total_seconds == whole.total_seconds


def test_a_trial_that_the_cloud_refuses_leaves_the_round_to_be_repeated(store: Store) -> None:
    class Down(SyntheticCloud):
        down = True

        def lease(self, order: Order) -> Lease:
            if self.down and order.config == EVEN and order.purpose is Purpose.TRIAL:
                raise ProviderError("down")
            return super().lease(order)

    cloud = Down(MACHINES)
    chosen = Listed(configs=(SLOW, EVEN))
    with pytest.raises(ProviderError):
        make_engine(problem(), cloud, store, chosen=chosen).drive()
    cloud.down = False
    run = driven(make_engine(problem(), cloud, store, chosen=chosen, add=False), store)
    assert run.total_seconds == pytest.approx(300 + REST)


def test_the_strategy_is_told_where_the_training_runs(store: Store) -> None:
    seen = []

    class Asking(Listed):
        def suggest(self, problem, history, remaining, count):  # type: ignore[no-untyped-def]  # as Listed's
            seen.append(remaining.training)
            return super().suggest(problem, history, remaining, count)

    driven(make_engine(problem(), SyntheticCloud(MACHINES), store, chosen=Asking(configs=(SLOW, EVEN))), store)
    first, starting, running = seen
    assert first is None
    assert starting.seconds == pytest.approx(REST)  # it starts with this trial
    assert running.seconds == pytest.approx(REST - 300)  # and has no start-up any more


def test_a_training_slower_than_its_trial_keeps_a_reserve_for_the_rest(store: Store) -> None:
    """The bound is carried: it never grows while the training runs, unless it is broken."""
    run = run_of(store, (SLOW, EVEN), of=problem(noise=0.05))
    steps = run.steps[:3]
    accounts = Accounts()
    before = accounts.at(replace(run, verdict=None, steps=run.steps[:1]), 300.0).incumbent()
    after = accounts.at(replace(run, verdict=None, steps=steps), 600.0).training
    assert before is not None
    assert after is not None
    assert after.worst_seconds <= before.worst_seconds - 300
    assert after.worst_usd <= before.worst_usd - Usd.of(1).for_seconds(300)


def test_points_after_an_instant_are_on_the_line_between_those_around_it() -> None:
    points = [JobProgress(40.0, 0.0), JobProgress(100.0, 600.0), JobProgress(200.0, 1600.0)]
    assert list(points_after(points, 0.0)) == points
    assert list(points_after(points, 70.0)) == [
        JobProgress(0.0, 0.0),
        JobProgress(30.0, 300.0),
        JobProgress(130.0, 1300.0),
    ]
    assert list(points_after(points, 100.0)) == [JobProgress(0.0, 0.0), JobProgress(100.0, 1000.0)]
