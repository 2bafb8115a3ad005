"""Whole searches beside the training, at random: no limit is broken, whatever the trials bring; the books are right."""

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.property.test_search_property import a_search, check_limits
from tests.synthetic import driven, make_engine

from mlcd.clouds.provider import Cloud
from mlcd.clouds.wrappers import NoisyRun, SlowerRun
from mlcd.events import Event
from mlcd.problem import Problem
from mlcd.run.attempt import Ending
from mlcd.run.run import SearchRun
from mlcd.run.step import Role
from mlcd.store.store import Store
from mlcd.trial.outcome import Status
from mlcd.units import Usd


def beside_search(seed: int, *, allowance: float = 0.0) -> tuple[Problem, Cloud, str, int]:
    """A problem with a training beside its trials, a cloud, a strategy, and how many trials at once."""
    rng = random.Random(f"beside|{seed}")
    problem, cloud, text, parallel = a_search(rng)
    restart = rng.choice((0.0, 60.0, 300.0))
    return replace(problem, beside=True, restart_seconds=restart, slowdown=allowance), cloud, text, parallel


def run_beside(
    seed: int, *, slower: float = 0.0, allowance: float = 0.0, run_noise: float = 0.0
) -> tuple[SearchRun, list[Event]]:
    """A search beside its training; final runs are `slower` than trials, with `allowance` for that, or differ."""
    problem, cloud, text, parallel = beside_search(seed, allowance=allowance)
    if slower:
        cloud = SlowerRun(cloud, share=slower)
    if run_noise:
        cloud = NoisyRun(cloud, sigma=run_noise, seed=seed)
    events: list[Event] = []
    with Store(None) as store:
        engine = make_engine(problem, cloud, store, text, seed=seed, parallel=parallel, observer=events.append)
        return driven(engine, store), events


def check_books(run: SearchRun) -> None:
    """Every step is paid at its price, once, within what was authorised for it."""
    assert run.total_usd == Usd(sum(step.outcome.usd.micros for step in run.steps if step.outcome is not None))
    assert run.total_usd == sum((a.usd for a in run.attempts), run.search_usd)
    assert run.total_seconds == pytest.approx(run.step_seconds)
    for step in run.steps:
        assert step.outcome is not None
        assert step.outcome.usd <= step.authorised_usd
        assert step.outcome.seconds <= step.authorised_seconds * (1 + 1e-9)


def check_open(run: SearchRun) -> None:
    """Whenever a round starts, everything that is open then was authorised together: its sum is within the limits."""
    goal = run.problem.goal
    for number in sorted({step.round for step in run.steps}):
        started = [step for step in run.steps if step.round == number]
        before = sum(s.outcome.usd.micros for s in run.steps if s.round < number and s.outcome is not None)
        if goal.budget is not None:
            assert before + sum(step.authorised_usd.micros for step in started) <= goal.budget.micros
        if goal.deadline_seconds is not None:
            longest = max(step.started_seconds + step.authorised_seconds for step in started)
            assert longest <= goal.deadline_seconds * (1 + 1e-9)


@settings(max_examples=60, deadline=None, phases=(Phase.explicit, Phase.generate), derandomize=True,
          suppress_health_check=[HealthCheck.too_slow])  # fmt: skip
@given(st.integers(0, 2**32))
def test_a_search_beside_its_training_keeps_its_promise(seed: int) -> None:
    kept_promise(seed)


def kept_promise(seed: int) -> SearchRun:
    run, events = run_beside(seed)
    check_limits(run, events)
    check_books(run)
    check_open(run)
    assert run.status.is_final
    if any(step.role is Role.TRAINING for step in run.steps):
        assert run.status is Status.DONE or (run.status is Status.NOTHING_FITS and not chose_for_certain(run))
    return run


def chose_for_certain(run: SearchRun) -> bool:
    """Whether the choice is certain to fit; else the training was watched, without a way back."""
    goal, choice, verdict = run.problem.goal, run.choice, run.verdict
    assert choice is not None
    assert verdict is not None
    before = run.search_usd
    fits = goal.budget is None or before + choice.worst_usd < goal.budget
    deadline = goal.deadline_seconds
    return fits and (deadline is None or verdict.search_seconds + choice.worst_seconds < deadline - 1e-6)


@settings(max_examples=60, deadline=None, phases=(Phase.explicit, Phase.generate), derandomize=True,
          suppress_health_check=[HealthCheck.too_slow])  # fmt: skip
@given(st.integers(0, 2**32))
def test_a_slower_training_within_its_allowance_breaks_nothing(seed: int) -> None:
    run, events = run_beside(seed, slower=0.1, allowance=0.1)
    check_limits(run, events)
    check_books(run)


@settings(max_examples=60, deadline=None, phases=(Phase.explicit, Phase.generate), derandomize=True,
          suppress_health_check=[HealthCheck.too_slow])  # fmt: skip
@given(st.integers(0, 2**32))
def test_a_training_much_slower_than_its_trials_never_costs_more_than_the_budget(seed: int) -> None:
    run, _ = run_beside(seed, slower=0.6)
    budget = run.problem.goal.budget
    assert budget is None or run.spent <= budget


@settings(max_examples=60, deadline=None, phases=(Phase.explicit, Phase.generate), derandomize=True,
          suppress_health_check=[HealthCheck.too_slow])  # fmt: skip
@given(st.integers(0, 2**32))
def test_trainings_that_differ_from_their_trials_never_cost_more_than_the_budget(seed: int) -> None:
    run, _ = run_beside(seed, run_noise=0.05)
    budget = run.problem.goal.budget
    assert budget is None or run.spent <= budget
    for step in run.steps:
        assert step.outcome is not None
        assert budget is None or step.authorised_usd <= budget


def test_150_searches_keep_their_promise_and_cover_what_can_happen() -> None:
    seen: Counter[str] = Counter()
    for seed in range(150):
        run = kept_promise(seed)
        seen[run.status] += 1
        for step in run.steps:
            if step.role is Role.TRAINING:
                seen[step.final.ending] += 1
            elif step.trial.reached_samples > 0:
                seen["kept"] += 1
        budget, deadline = run.problem.goal.budget, run.problem.goal.deadline_seconds
        seen["tight"] += budget is not None and run.spent.micros > 0.8 * budget.micros
        seen["pressed"] += deadline is not None and run.total_seconds > 0.8 * deadline
    for what in (Status.DONE, Status.NOTHING_FITS, Ending.CONTINUED, Ending.MOVED, Ending.DONE, "kept", "tight",
                 "pressed"):  # fmt: skip
        assert seen[what] >= 3, seen
