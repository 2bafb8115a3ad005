"""A training after the search that is watched: it goes on where it fits, and moves where it turns out too slow."""

from dataclasses import replace

import pytest
from tests.synthetic import Listed, Machine, SyntheticCloud, driven, make_engine, make_problem

from mlcd.clouds.wrappers import SlowerRun
from mlcd.goal import Goal, Objective
from mlcd.run.attempt import Ending
from mlcd.run.run import SearchRun
from mlcd.space import Config
from mlcd.store.store import Store
from mlcd.trial.outcome import Status
from mlcd.units import Usd

D = Config.deployment
MACHINES = {"slow": Machine(usd_per_hour=0.5, speed=20.0), "fast": Machine(usd_per_hour=10.0, speed=300.0)}
FAST, SLOW = D("fast", 1), D("slow", 1)
SLOW_USD, FAST_USD = 0.5 * (1e6 / 20 + 42) / 3600, 10.0 * (1e6 / 300 + 42) / 3600  # with 42 s to start


class Slower(SlowerRun):
    """Its trials are exact, but nobody knows: two runs may differ by 3%."""

    noise = 0.03


def run_of(
    *,
    budget: float,
    configs: tuple[Config, ...] = (SLOW, FAST),
    slower: float = 0.0,
    kept: bool = False,
    noise: float = 0.03,
) -> SearchRun:
    """A run whose training is slower than its trials by a share."""
    goal = Goal(minimize=Objective.TIME, budget=Usd.of(round(budget, 6)))
    problem = make_problem(watched=True, machines=MACHINES, counts=(1,), goal=goal, work_samples=1e6)
    problem = replace(problem, noise=noise, keeps_work=kept)
    cloud = Slower(SyntheticCloud(MACHINES), share=slower)
    cloud.noise = noise
    with Store(None) as store:
        return driven(make_engine(problem, cloud, store, chosen=Listed(configs=configs)), store)


TRIALS_USD = (0.5 + 10.0) * 600 / 3600


def test_the_training_starts_where_it_is_expected_to_fit() -> None:
    run = run_of(budget=TRIALS_USD + 1.1 * FAST_USD)  # its upper bound is 15% more
    assert run.verdict is not None
    assert run.verdict.choice is not None
    assert run.verdict.choice.config == FAST
    budget = run.problem.goal.budget
    assert budget is not None
    watch, start = run.verdict.watch, run.steps[-1]
    assert watch is not None
    assert watch.chance > 0.9
    assert watch.fallback is not None
    assert watch.fallback.config == SLOW
    assert start.watch == watch
    assert run.search_usd + start.authorised_usd == budget, "no more than that is authorised"
    assert run.search_usd + run.verdict.choice.worst_usd > budget, "the upper bound is said as it is"
    assert [(a.config, a.ending) for a in run.attempts] == [(FAST, Ending.DONE)]
    assert run.status is Status.DONE


@pytest.mark.parametrize("slower", [0.11, 0.14])
def test_it_moves_to_the_way_back_if_it_is_too_slow_and_keeps_the_budget(slower: float) -> None:
    run = run_of(budget=TRIALS_USD + 1.1 * FAST_USD, slower=slower)
    first, second = run.attempts
    assert (first.config, first.ending) == (FAST, Ending.MOVED)
    assert first.seconds == pytest.approx(42 + 606.0)  # to start, as long as a trial, and to save
    assert "too slow" in first.message
    assert second.config == SLOW
    assert run.problem.goal.budget is not None
    assert run.spent <= run.problem.goal.budget
    assert run.status is Status.DONE


def test_where_the_fallback_is_three_times_slower_too_the_training_stops_at_the_budget() -> None:
    run = run_of(budget=TRIALS_USD + 1.1 * FAST_USD, slower=2.0)
    assert [(a.config, a.ending) for a in run.attempts] == [(FAST, Ending.MOVED), (SLOW, Ending.STOPPED)]
    assert run.problem.goal.budget is not None
    assert run.spent <= run.problem.goal.budget


def test_a_training_that_is_slower_but_still_fits_goes_on() -> None:
    run = run_of(budget=TRIALS_USD + 1.1 * FAST_USD, slower=0.05)
    assert [(a.config, a.ending) for a in run.attempts] == [(FAST, Ending.DONE)]


@pytest.mark.parametrize(("slower", "expected"), [(0.15, [FAST]), (0.2, [FAST, SLOW])])
def test_it_stays_only_where_the_upper_bound_of_its_own_speed_fits(slower: float, expected: list[Config]) -> None:
    """With a noise of 7% that bound is 6% more than expected. What was authorised, all that remained, is no bound."""
    run = run_of(budget=TRIALS_USD + 1.25 * FAST_USD, slower=slower, noise=0.07)
    assert [attempt.config for attempt in run.attempts] == expected


def test_what_it_did_is_kept_where_trials_keep_their_work() -> None:
    run = run_of(budget=TRIALS_USD + 1.1 * FAST_USD, slower=0.4, kept=True)
    moved = [attempt for attempt in run.attempts if attempt.ending is Ending.MOVED]
    assert all(attempt.reached_samples > 0 for attempt in moved)
    thrown = run_of(budget=TRIALS_USD + 1.1 * FAST_USD, slower=0.4)
    assert thrown.attempts[0].reached_samples == 0


def test_without_a_way_back_a_training_that_is_too_slow_ends_when_that_shows() -> None:
    budget = 10.0 * 600 / 3600 + 1.05 * FAST_USD
    assert run_of(budget=budget, configs=(FAST,)).status is Status.DONE
    run = run_of(budget=budget, configs=(FAST,), slower=0.2)
    (only,) = run.attempts
    assert only.ending is Ending.MOVED
    assert run.status is Status.NOTHING_FITS
    assert run.spent < Usd.of(round(0.5 * budget, 6))


def test_the_same_under_a_deadline() -> None:
    goal = Goal(minimize=Objective.COST, deadline_seconds=1200 + 1.1 * (1e6 / 20 + 42))
    problem = replace(
        make_problem(watched=True, machines=MACHINES, counts=(1,), goal=goal, work_samples=1e6), noise=0.03
    )
    for slower, expected in ((0.0, [SLOW]), (0.12, [SLOW, FAST])):
        cloud = Slower(SyntheticCloud(MACHINES), share=slower)
        with Store(None) as store:
            run = driven(make_engine(problem, cloud, store, chosen=Listed(configs=(SLOW, FAST))), store)
        assert [attempt.config for attempt in run.attempts] == expected
        assert run.status is Status.DONE
