"""What plans, trials and histories promise: bounds, ties, limits of a server, retries."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.synthetic import failed, make_problem, measured

from mlcd.goal import Goal, Objective, Slo
from mlcd.problem import Batching, TrialPolicy
from mlcd.space import Config
from mlcd.trial.plan import Plan, Remaining, best, best_fitting, margin_sigmas, plans, speed_to_beat, stop_at, tie
from mlcd.trial.trial import FailureKind, History, Load, Measurement
from mlcd.units import MOST_SECONDS, MOST_USD, Usd

SMALL, BIG = Config.deployment("c5.small", 1), Config.deployment("p2.one", 16)
EVERYTHING = Remaining(usd=None, seconds=None, allowed=np.ones(24, dtype=bool))


def test_the_bound_covers_an_uncertain_amount_of_work() -> None:
    known = make_problem(assurance=0.975)
    estimated = replace(known, work_error=0.4)
    trial = measured(known, SMALL, 10.0, error=0.3)
    exact, bound = Plan.of(known, trial), Plan.of(estimated, trial)
    assert bound.seconds == exact.seconds
    sigmas = margin_sigmas(0.975)
    assert exact.worst_seconds == pytest.approx(exact.seconds * np.exp(sigmas * 0.3))
    assert bound.worst_seconds == pytest.approx(exact.seconds * np.exp(sigmas * 0.5)), "3, 4 and 5"


def planned(seconds: float, usd: int, **changed: Any) -> Plan:
    return replace(
        Plan(config=SMALL, seconds=seconds, usd=Usd(usd), worst_seconds=seconds, worst_usd=Usd(usd)), **changed
    )


@pytest.mark.parametrize("beyond", [{"worst_seconds": 2 * MOST_SECONDS}, {"worst_usd": MOST_USD + Usd(1)}])
def test_a_plan_that_the_books_cannot_hold_never_fits(beyond: dict[str, Any]) -> None:
    assert EVERYTHING.fits(planned(10.0, 10))
    assert not EVERYTHING.fits(planned(10.0, 10, **beyond))


def test_values_within_noise_are_equal_and_the_other_unit_decides() -> None:
    assert (tie(make_problem(noise=0.05)), tie(make_problem(noise=0.0))) == (0.05, 0.01)
    quick, cheap, slow = planned(100.0, 50), planned(103.0, 10), planned(120.0, 1)
    fastest = make_problem(noise=0.05)
    assert best(fastest, [quick, cheap, slow]) is cheap, "3% slower is not slower with 5% of noise"
    assert best(make_problem(noise=0.0), [quick, cheap, slow]) is quick
    cheapest = make_problem(noise=0.05, goal=Goal(minimize=Objective.COST))
    least, faster = planned(100.0, 1000), planned(50.0, 1030)
    assert best(cheapest, [least, faster]) is faster


def test_a_training_is_stopped_early_enough_to_release_its_nodes() -> None:
    assert [stop_at(seconds) for seconds in (100.0, 1000.0)] == [94.0, 970.0]
    assert [stop_at(seconds) for seconds in (10_000.0, 20_000.0, 1e6)] == [9_700.0, 19_700.0, 999_700.0]


# ---- a server's limits


def loaded(p50: float, p95: float, p99: float, *, rate: float = 100.0, errors: int = 0) -> Measurement:
    trial = measured(make_problem(), SMALL, rate)
    assert isinstance(trial, Measurement)
    load = Load(p50_seconds=p50, p95_seconds=p95, p99_seconds=p99, requests=100, errors=errors)
    return replace(trial, load=load)


def serving(**changed: Any) -> Goal:
    return Goal(**{"minimize": Objective.COST, "slo": Slo(seconds=0.1), **changed})


@pytest.mark.parametrize(("percentile", "kept"), [(50, True), (95, True), (99, False)])
def test_a_latency_limit_is_on_its_percentile(percentile: int, kept: bool) -> None:
    slow_tail = loaded(0.05, 0.09, 0.2)
    assert slow_tail.meets(serving(slo=Slo(seconds=0.1, percentile=percentile))) is kept


def test_errors_and_a_rate_below_the_requested_break_the_limits() -> None:
    assert loaded(0.05, 0.06, 0.07).meets(serving())
    assert not loaded(0.05, 0.06, 0.07, errors=1).meets(serving())
    assert loaded(0.05, 0.06, 0.07, rate=100.0).meets(serving(rate=100.0))
    assert not loaded(0.05, 0.06, 0.07, rate=99.0).meets(serving(rate=100.0))


def test_what_breaks_the_latency_limit_is_not_planned() -> None:
    problem = make_problem(goal=serving())
    kept, broken = loaded(0.05, 0.06, 0.07), replace(loaded(0.05, 0.06, 0.2), config=BIG)
    assert [plan.config for plan in plans(problem, History((broken, kept)))] == [SMALL]
    assert best_fitting(problem, History((broken,)), EVERYTHING) is None


def test_a_rate_above_the_requested_has_no_value() -> None:
    problem = replace(make_problem(goal=serving(rate=50.0)), verify_seconds=60.0, work_samples=1000.0)
    plan = Plan.of(problem, loaded(0.05, 0.06, 0.07, rate=100.0))
    assert plan.seconds == 1000.0 / 50.0
    assert (plan.worst_seconds, plan.worst_usd) == (60.0, problem.price(SMALL).for_seconds(60.0))


# ---- histories


def test_only_transient_failures_are_repeated_and_only_so_often() -> None:
    problem = make_problem()
    transient = {kind for kind in FailureKind if kind.is_transient}
    assert transient == {FailureKind.LAUNCH, FailureKind.INTERRUPTED, FailureKind.STOPPED, FailureKind.LOST}
    for kind in FailureKind:
        once, twice = failed(problem, SMALL, kind), failed(problem, SMALL, kind, attempt=2)
        again = [suggestion.config for suggestion in History((once,)).to_retry(1)]
        assert again == ([SMALL] if kind in transient else [])
        is_stopped = kind is FailureKind.STOPPED  # by the user: that is no failure of the trial
        assert bool(History((once, twice)).to_retry(1)) is is_stopped
        assert bool(History((once,)).to_retry(0)) is is_stopped


def test_what_failed_was_tried() -> None:
    problem = make_problem()
    history = History((failed(problem, SMALL, FailureKind.HANG), measured(problem, BIG, 5.0)))
    assert history.tried == {SMALL, BIG}


def test_a_sample_is_worth_less_at_a_larger_batch() -> None:
    by_noise = Batching(reference=64, noise_scale=64.0)
    assert [by_noise.worth(batch) for batch in (64, 192)] == [1.0, 0.5]


def test_a_trials_worst_case_has_its_extension_and_the_watchdog() -> None:
    policy = TrialPolicy(seconds=100.0, extra_seconds_per_3_nodes=10.0, extension=0.5, watchdog_seconds=7.0)
    assert (policy.planned_seconds(4), policy.extended_seconds(4), policy.worst_seconds(4)) == (110.0, 165.0, 172.0)


@pytest.mark.parametrize("minimize", list(Objective))
def test_at_the_speed_to_beat_a_training_is_as_good_as_the_best_measured(minimize: Objective) -> None:
    problem = make_problem(work_samples=1e6, goal=Goal(minimize=minimize))
    history = History(tuple(measured(problem, config, 900.0) for config in problem.space.configs[:2]))
    config = problem.space.configs[-1]
    speed = speed_to_beat(problem, history, config)
    known = min(plan.value(problem) for plan in plans(problem, history))
    assert problem.goal.scale(problem.dollars_per_second)[-1] * 1e6 / speed == pytest.approx(known)
    assert speed_to_beat(problem, History(), config) == 0


def test_under_limits_the_speed_to_beat_is_what_all_of_them_need() -> None:
    config = Config.deployment("p2.one", 4)
    limits: tuple[tuple[str | None, float | None], ...] = (("100", None), (None, 7200.0), ("100", 7200.0))
    needed = []
    for usd, seconds in limits:
        goal = Goal(minimize=Objective.TIME, budget=None if usd is None else Usd.of(usd), deadline_seconds=seconds)
        problem = make_problem(work_samples=1e6, goal=goal)
        speed = speed_to_beat(problem, History((measured(problem, SMALL, 900.0),)), config)
        assert speed == speed_to_beat(problem, History(), config), "whatever was measured"
        if usd is not None:
            assert problem.price(config).for_seconds(1e6 / speed).dollars <= 100.001
        needed.append(speed)
    assert needed[2] == max(needed[:2])
    assert needed[1] == pytest.approx(1e6 / 7200)
    assert needed[0] != pytest.approx(needed[1])
    unknown = replace(make_problem(goal=Goal(minimize=Objective.TIME, budget=Usd.of(100))), work_known=False)
    assert speed_to_beat(unknown, History(), config) == 0
