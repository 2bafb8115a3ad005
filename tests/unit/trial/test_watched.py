"""Trainings that are expected to fit, and where they move if they do not."""

from dataclasses import replace

import numpy as np
import pytest
from tests.synthetic import Machine, make_problem, measured

from mlcd.goal import Goal, Objective
from mlcd.ledger import Ledger
from mlcd.problem import STOP_SECONDS, Problem
from mlcd.run.authorisation import Authorisation, Refusal
from mlcd.space import Config
from mlcd.trial.plan import Plan, Remaining
from mlcd.trial.trial import History
from mlcd.trial.watched import (
    LEAST_TRAINING_SECONDS,
    Place,
    Watch,
    best_watched,
    look_seconds,
    may_be_watched,
    watched,
)
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


def watch_of(place: Place) -> Watch:
    assert place.watch is not None
    return place.watch


def test_what_is_expected_to_fit_is_watched_with_a_way_back() -> None:
    problem, history = case(budget=11.2)
    (found,) = watched(problem, history, bare(problem))
    assert found.plan.config == D("fast", 1)
    fallback = watch_of(found).fallback
    assert fallback is not None
    assert fallback.config == D("slow", 1)
    assert 0.99 < watch_of(found).chance < 1  # almost three deviations of room
    plan = found.plan.value(problem)
    assert plan < found.value(problem) < plan + 0.01 * (plan + watch_of(found).seconds + fallback.value(problem))


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
    watch = watch_of(found)
    assert watch.fallback is None
    assert found.value(problem) == pytest.approx(found.plan.value(problem) / watch.chance)
    problem, history = case(budget=10.0, fast_usd=9.699, slow_usd=40.0)  # 3% are kept to save and release the nodes
    assert best_watched(problem, history, bare(problem), None) is not None  # just over one half
    assert best_watched(replace(problem, slowdown=0.05), history, bare(problem), None) is None
    dearer, trials = case(budget=10.0, fast_usd=9.701, slow_usd=40.0)
    assert best_watched(dearer, trials, bare(dearer), None) is None


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
    assert isinstance(ledger.authorise_run(fast), Refusal), "its upper bound does not fit"
    (found,) = watched(problem, history, ledger.remaining())
    assert found.plan == fast, "the plan keeps its own bounds"
    answer = ledger.authorise_run(fast, found.watch)
    assert isinstance(answer, Authorisation)
    assert answer.usd == Usd.of("11.2")
    assert answer.seconds == pytest.approx(1.12 * 3600), "the money lasts no longer"
    spent = replace(ledger, spent=Usd.of("0.8"))  # too little for the look and the fallback
    assert isinstance(spent.authorise_run(fast, found.watch), Refusal)
    assert isinstance(spent.authorise_run(slow), Authorisation)
    unwatched = replace(ledger, problem=replace(problem, watched=False))
    assert isinstance(unwatched.authorise_run(fast, found.watch), Refusal)
    open_trial = replace(ledger, open=(Authorisation(choice=slow.config, attempt=1, usd=Usd(0), seconds=0.0),))
    assert isinstance(open_trial.authorise_run(fast, found.watch), Refusal), "nothing else runs during a look"


def test_the_fallback_is_judged_with_its_restart() -> None:
    """Two cents more than the look and the fallback need without a restart, which costs four cents there."""
    problem, history = case(budget=11.2)
    restarting = replace(problem, restart_seconds=300.0)
    slow, fast = history.measured
    look = restarting.price(fast.config).for_seconds(look_seconds(restarting, fast.config, fast))
    most = (Usd.of("11.18") - look).dollars
    plan = Plan.of(restarting, slow)
    fits = replace(slow, samples_per_second=slow.samples_per_second * plan.worst_usd.dollars / most)
    assert Plan.of(restarting, fits).worst_usd + look <= Usd.of("11.2")
    assert not list(watched(restarting, History((fits, fast)), bare(restarting)))
    quicker = replace(fits, samples_per_second=1.01 * fits.samples_per_second)
    assert list(watched(restarting, History((quicker, fast)), bare(restarting)))


def test_a_look_takes_a_start_a_trial_and_the_time_to_save() -> None:
    problem, history = case(budget=11.2)
    planned, fast = problem.trial.planned_seconds(1), D("fast", 1)
    trial = replace(history.measured[1], startup_seconds=40.0, seconds=planned)
    assert look_seconds(problem, fast, trial) == 40.0 + planned + STOP_SECONDS
    assert look_seconds(replace(problem, restart_seconds=180.0), fast, trial) == 180.0 + planned + STOP_SECONDS
    extended = replace(trial, seconds=1.5 * planned + 40.0)
    assert look_seconds(problem, fast, extended) == 40.0 + 1.5 * planned + STOP_SECONDS
    tiny = replace(problem, trial=replace(problem.trial, seconds=1.0))
    assert look_seconds(tiny, fast, replace(trial, seconds=41.0)) == 40.0 + LEAST_TRAINING_SECONDS + STOP_SECONDS


def test_a_deployment_that_the_training_left_is_not_watched_again() -> None:
    problem, history = case(budget=11.2)
    assert not list(watched(problem, history, bare(problem), left={D("fast", 1)}))
