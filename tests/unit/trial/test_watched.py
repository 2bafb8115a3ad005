"""Trainings that are expected to fit, and where they move if they do not."""

from dataclasses import replace

import numpy as np
import pytest
from tests.synthetic import Machine, make_problem, measured

from mlcd.goal import Goal, Objective
from mlcd.ledger import Ledger
from mlcd.problem import Problem
from mlcd.run.authorisation import Authorisation, Refusal
from mlcd.space import Config
from mlcd.trial.plan import Plan, Remaining
from mlcd.trial.trial import History
from mlcd.trial.watched import best_watched, may_be_watched, watched
from mlcd.units import Usd

D = Config.deployment
MACHINES = {"slow": Machine(usd_per_hour=0.5, speed=1.0), "fast": Machine(usd_per_hour=10.0, speed=1.0)}
WORK = 1e6


def case(budget: float, fast_usd: float = 10.0, slow_usd: float = 8.0) -> tuple[Problem, History]:
    """One node each: `slow` takes 16 times as long as `fast` and costs less."""
    goal = Goal(minimize=Objective.TIME, budget=Usd.of(budget))
    problem = replace(
        make_problem(watched=True, machines=MACHINES, counts=(1,), goal=goal, work_samples=WORK), noise=0.03
    )
    hours = {"slow": slow_usd / 0.5, "fast": fast_usd / 10.0}
    trials = (measured(problem, D(name, 1), WORK / (3600 * h)) for name, h in hours.items())
    return problem, History(tuple(replace(t, relative_error=0.03, startup_seconds=0.0) for t in trials))


def bare(problem: Problem) -> Remaining:
    everything = np.ones(len(problem.space), dtype=bool)
    return Remaining(usd=problem.goal.budget, seconds=problem.goal.deadline_seconds, allowed=everything)


def test_what_is_expected_to_fit_is_watched_with_a_way_back() -> None:
    problem, history = case(budget=11.2)
    (found,) = watched(problem, history, bare(problem))
    assert found.plan.config == D("fast", 1)
    assert found.fallback is not None
    assert found.fallback.config == D("slow", 1)
    assert 0.99 < found.chance < 1  # four deviations of room
    plan = found.plan.value(problem)
    assert plan < found.value(problem) < plan + 0.01 * (plan + found.seconds + found.fallback.value(problem))


@pytest.mark.parametrize(
    ("budget", "fast_usd", "slow_usd"),
    [
        (12.0, 10.0, 8.0),  # certain to fit: nothing to watch
        (9.9, 10.0, 8.0),  # not expected to fit
        (11.2, 10.0, 8.5),  # $1.68 to watch and $9.80 for the way back do not fit
    ],
)
def test_without_a_way_back_or_a_need_nothing_is_watched(budget: float, fast_usd: float, slow_usd: float) -> None:
    problem, history = case(budget, fast_usd, slow_usd)
    assert not list(watched(problem, history, bare(problem)))


def test_where_nothing_is_certain_to_fit_the_likeliest_is_watched_without_a_way_back() -> None:
    problem, history = case(budget=10.5, slow_usd=40.0)
    found = best_watched(problem, history, bare(problem), None)
    assert found is not None
    assert found.fallback is None
    assert found.value(problem) == pytest.approx(found.plan.value(problem) / found.chance)
    problem, history = case(budget=10.0, fast_usd=9.999, slow_usd=40.0)
    assert best_watched(problem, history, bare(problem), None) is not None  # just over one half
    assert best_watched(replace(problem, slowdown=0.05), history, bare(problem), None) is None


def test_a_watched_training_must_be_expected_to_be_better() -> None:
    problem, history = case(budget=11.2)
    slow, fast = (Plan.of(problem, trial) for trial in history.measured)
    assert best_watched(problem, history, bare(problem), slow) is not None
    assert best_watched(problem, history, bare(problem), replace(fast, seconds=0.9 * fast.seconds)) is None


def test_only_a_training_of_known_length_under_a_limit_is_watched() -> None:
    problem, _ = case(budget=11.2)
    remaining = bare(problem)
    assert may_be_watched(problem, remaining)
    assert not may_be_watched(replace(problem, work_error=0.1), remaining)
    assert not may_be_watched(replace(problem, verify_seconds=60.0), remaining)
    assert not may_be_watched(problem, replace(remaining, guarded=False))
    assert not may_be_watched(problem, replace(remaining, usd=None))


def test_the_ledger_authorises_a_watched_training_up_to_what_remains() -> None:
    problem, history = case(budget=11.2)
    ledger = Ledger(problem=problem, history=history)
    slow, fast = (Plan.of(problem, trial) for trial in history.measured)
    assert fast.worst_usd > Usd.of("11.2")
    answer = ledger.authorise_run(fast)
    assert isinstance(answer, Authorisation)
    assert answer.usd == Usd.of("11.2")
    spent = replace(ledger, spent=Usd.of("0.8"))  # too little for the way back
    assert isinstance(spent.authorise_run(fast), Refusal)
    assert isinstance(spent.authorise_run(slow), Authorisation)
