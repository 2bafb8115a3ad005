"""Whole searches, a few hundred at random: nothing is ever overspent, and the books are right to the micro-dollar."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.synthetic import Machine, SyntheticCloud, driven, make_engine, make_problem, timeless

from mlcd.clouds.provider import Cloud
from mlcd.clouds.wrappers import Flaky
from mlcd.events import Event, SearchEnded, StepEnded, StepStarted
from mlcd.goal import Goal, Objective
from mlcd.problem import Problem, TrialPolicy
from mlcd.run.run import SearchRun
from mlcd.run.step import Role
from mlcd.space.placed import placed_name
from mlcd.store.store import Store
from mlcd.trial.outcome import Status
from mlcd.trial.plan import plans
from mlcd.trial.trial import Failure, FailureKind
from mlcd.units import Usd

GUARDED = ("heterbo", "heterbo:start=all", "heterbo:paper", "heterbo:prune=off,gate=off", "convbo-budget",
           "cherrypick-budget")  # fmt: skip


def a_search(rng: random.Random, places: Sequence[str] = ()) -> tuple[Problem, Cloud, str, int]:
    """A problem, a cloud that answers it, a strategy and how many trials at once, all from one seed.

    places  where its instance types are, one after another; one cloud if there are none
    """
    machines = {
        placed_name(f"m{i}", places[i % len(places)]) if places else f"m{i}": Machine(
            usd_per_hour=round(10 ** rng.uniform(-1.5, 1.5), 4),
            speed=10 ** rng.uniform(0, 2),
            drag=rng.uniform(0.0, 0.3),
            memory_gib=2 ** rng.uniform(2, 8),
            fewest=rng.choice((1, 1, 1, 2, 5)),
        )
        for i in range(rng.randint(1, 4))
    }
    counts = sorted(rng.sample(range(1, 41), rng.randint(1, 8)))
    hours = 10 ** rng.uniform(-0.5, 1.5)
    reference = next(iter(machines.values()))
    work = hours * 3600 * reference.speed
    runs = [
        (work / speed, work / speed * machine.usd_per_hour / 3600 * n)
        for machine in machines.values()
        for n in counts
        if (speed := machine.samples_per_second(n)) is not None
    ] or [(3600.0, 1.0)]
    tightness = 10 ** rng.uniform(-0.2, 1.2)  # from hopeless to loose
    budget = Usd.of(max(min(usd for _, usd in runs) * tightness, 1e-3)) if rng.random() < 0.6 else None
    deadline = min(seconds for seconds, _ in runs) * tightness if rng.random() < 0.6 else None
    noise = rng.choice((0.0, 0.01, 0.03, 0.1))
    problem = make_problem(
        machines=machines,
        counts=counts,
        work_samples=work,
        goal=Goal(minimize=rng.choice(list(Objective)), budget=budget, deadline_seconds=deadline),
        trial=TrialPolicy(seconds=rng.choice((60.0, 300.0, 600.0)), retries=rng.randint(0, 2)),
        max_trials=rng.randint(1, 20),
        noise=noise,
        sizes=rng.random() < 0.5,
    )
    seed = rng.randrange(10**6)
    cloud: Cloud = SyntheticCloud(machines, noise=noise, seed=seed)
    if rng.random() < 0.5:
        cloud = Flaky(cloud, rate=rng.choice((0.1, 0.4, 1.0)), seed=seed)
    return problem, cloud, rng.choice((*GUARDED, "heterbo", "heterbo")), rng.randint(1, 4)


def run_search(seed: int) -> tuple[SearchRun, list[Event]]:
    problem, cloud, text, parallel = a_search(random.Random(seed))
    events: list[Event] = []
    with Store(None) as store:
        engine = make_engine(problem, cloud, store, text, seed=seed, parallel=parallel, observer=events.append)
        record = driven(engine, store)
    return record, events


def check_limits(record: SearchRun, events: list[Event]) -> None:
    goal = record.problem.goal
    if goal.budget is not None:
        assert record.total_usd <= goal.budget
    if goal.deadline_seconds is not None:
        assert record.total_seconds <= goal.deadline_seconds
    for event in events:
        if isinstance(event, StepStarted | StepEnded | SearchEnded):
            assert event.money.left is None or event.money.left.micros >= 0
            assert event.money.seconds_left is None or event.money.seconds_left >= -1e-6
    assert record.status is not Status.OVERRAN


def check_books(record: SearchRun, events: list[Event]) -> None:
    problem = record.problem
    ended = [event.step for event in events if isinstance(event, StepEnded)]
    assert sorted(ended, key=lambda step: step.number) == list(record.steps), "each step is told of once"
    finished = [step for step in ended if step.role is Role.TRIAL]
    assert [row.number for row in record.trials] == list(range(1, len(record.trials) + 1))
    assert record.search_usd.micros == sum(row.trial.usd.micros for row in finished)
    for row in record.trials:
        trial, price = row.trial, problem.price(row.trial.config)
        unpaid = isinstance(trial, Failure) and trial.kind is FailureKind.CAPACITY
        assert trial.usd == (Usd(0) if unpaid else price.for_seconds(trial.seconds))
        assert trial.usd <= row.authorised_usd
        assert trial.seconds <= row.authorised_seconds
    assert len(record.trials) <= problem.max_trials
    attempts = Counter((row.trial.config, row.trial.attempt) for row in record.trials)
    assert set(attempts.values()) <= {1}
    assert max((row.trial.attempt for row in record.trials), default=1) <= 1 + problem.trial.retries
    trained = sum(attempt.usd.micros for attempt in record.attempts)
    assert record.total_usd.micros == record.search_usd.micros + trained


def check_status(record: SearchRun) -> None:
    problem, goal, history = record.problem, record.problem.goal, record.history

    def fits(usd: Usd, seconds: float) -> bool:
        in_budget = goal.budget is None or record.search_usd + usd <= goal.budget
        return in_budget and (goal.deadline_seconds is None or seconds <= goal.deadline_seconds - record.search_seconds)

    known, choice = plans(problem, history), record.choice
    certain = [plan for plan in known if fits(plan.worst_usd, plan.worst_seconds)]
    if choice is not None and choice not in certain:  # watched: expected to fit, and with a way back if there is any
        assert (choice.config, choice.seconds, choice.usd) in [(plan.config, plan.seconds, plan.usd) for plan in known]
        assert fits(choice.usd, choice.seconds)
        assert fits(choice.worst_usd, choice.worst_seconds - 1e-6), "no more is promised than what is left"
        seconds = problem.trial.planned_seconds(choice.config.nodes)
        usd = problem.price(choice.config).for_seconds(seconds)
        back = [plan for plan in certain if fits(plan.worst_usd + usd, plan.worst_seconds + seconds)]
        assert back or not certain
        assert record.status is Status.DONE or (not certain and record.status is Status.NOTHING_FITS)
        return
    if certain:
        assert record.status is Status.DONE
        assert choice in certain
        assert record.final is not None
        assert record.final.seconds <= choice.worst_seconds if choice else False
        return
    assert record.choice is None
    assert record.final is None
    if history.measured:
        assert record.status is Status.NOTHING_FITS
    elif len(history):
        assert record.status is Status.ALL_FAILED
    else:
        assert record.status is Status.INFEASIBLE
        too_dear = goal.budget is not None and problem.worst_trial_micros.min() > goal.budget.micros
        too_long = goal.deadline_seconds is not None and problem.worst_trial_seconds.min() > goal.deadline_seconds
        apart = goal.budget is not None and goal.deadline_seconds is not None
        assert too_dear or too_long or apart
        assert record.relaxations or apart


@settings(max_examples=100, deadline=None, phases=(Phase.explicit, Phase.generate), derandomize=True,
          suppress_health_check=[HealthCheck.too_slow])  # fmt: skip
@given(st.integers(0, 2**32))
def test_a_search_keeps_its_promise(seed: int) -> None:
    kept_promise(seed)


def kept_promise(seed: int) -> SearchRun:
    record, events = run_search(seed)
    check_limits(record, events)
    check_books(record, events)
    check_status(record)
    return record


def test_150_searches_keep_their_promise_and_cover_what_can_happen() -> None:
    """Every end is seen, tight ends among them: else these tests would prove little."""
    seen: Counter[str] = Counter()
    for seed in range(150):
        record = kept_promise(seed)
        seen[record.status] += 1
        budget = record.problem.goal.budget
        if record.status is Status.DONE and budget is not None:
            seen["tight"] += record.total_usd.micros > 0.8 * budget.micros
        seen["failures"] += bool(record.history.failures)
    for what in (Status.DONE, Status.NOTHING_FITS, Status.ALL_FAILED, Status.INFEASIBLE, "tight", "failures"):
        assert seen[what] >= 2, seen


@pytest.mark.parametrize("seed", range(8))
def test_a_search_can_be_repeated_from_its_seed(seed: int) -> None:
    first, second = run_search(seed)[0], run_search(seed)[0]
    assert replace(first, steps=timeless(first.steps)) == replace(second, steps=timeless(second.steps))
