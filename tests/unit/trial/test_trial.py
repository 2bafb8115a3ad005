"""Values that cannot be built wrong: problems, policies, trials, plans."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.synthetic import failed, make_problem, measured

from mlcd.goal import Goal, Objective
from mlcd.problem import Problem, TrialPolicy
from mlcd.space import Config, Knob, Space
from mlcd.trial.outcome import Status
from mlcd.trial.plan import Plan, Remaining, best, error_within, log_margin, margin_sigmas, stop_at
from mlcd.trial.trial import Failure, FailureKind, History, Measurement
from mlcd.units import Usd

CONFIG = Config.deployment("c5.small", 1)
GOOD: dict[str, Any] = {
    "config": CONFIG,
    "attempt": 1,
    "samples_per_second": 5.0,
    "relative_error": 0.1,
    "iterations": 3,
    "startup_seconds": 1.0,
    "seconds": 2.0,
    "usd": Usd(1),
}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"samples_per_second": 0.0}, "positive and finite"),
        ({"samples_per_second": float("nan")}, "positive and finite"),
        ({"samples_per_second": float("inf")}, "positive and finite"),
        ({"relative_error": -0.1}, "must not be negative"),
        ({"relative_error": float("inf")}, "must not be negative"),
        ({"startup_seconds": 3.0}, "start-up must be within"),
        ({"startup_seconds": -1.0}, "start-up must be within"),
        ({"iterations": 0}, "at least one iteration"),
        ({"attempt": 0}, "count from 1"),
        ({"seconds": -1.0}, "must be finite and not negative"),
        ({"seconds": float("inf")}, "must be finite and not negative"),
        ({"usd": Usd(-1)}, "less than \\$0"),
    ],
)
def test_a_wrong_measurement_cannot_be_built(wrong: dict[str, Any], message: str) -> None:
    Measurement(**GOOD)
    with pytest.raises(ValueError, match=message):
        Measurement(**{**GOOD, **wrong})


@pytest.mark.parametrize(("name", "value"), [("attempt", 0), ("seconds", float("nan")), ("usd", Usd(-5))])
def test_a_wrong_failure_cannot_be_built(name: str, value: object) -> None:
    good: dict[str, Any] = {"config": CONFIG, "attempt": 1, "kind": FailureKind.HANG, "message": "m", "seconds": 1.0,
                            "usd": Usd(0)}  # fmt: skip
    Failure(**good)
    with pytest.raises(ValueError, match=r"count from 1|must be finite|less than"):
        Failure(**{**good, name: value})


def test_the_interval_is_symmetric_in_the_logarithm() -> None:
    low, high = Measurement(**GOOD).speed_interval()
    assert low * high == pytest.approx(25)
    assert high / 5 == pytest.approx(np.exp(0.196))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"seconds": 0.0}, "more than 0 seconds"),
        ({"extension": -0.1}, "must not be negative"),
        ({"watchdog_seconds": -1.0}, "must not be negative"),
        ({"retries": -1}, "must not be negative"),
        ({"precision": 0.0}, "between 0 and 1"),
    ],
)
def test_a_wrong_policy_cannot_be_built(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrialPolicy(**wrong)


def test_the_papers_trial_times() -> None:
    policy = TrialPolicy()
    assert [policy.planned_seconds(n) for n in (1, 3, 4, 6, 7, 50)] == [600, 600, 660, 660, 720, 600 + 16 * 60]
    assert policy.worst_seconds(1) == 600 * 1.5 + 120


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"usd_per_hour": (Usd(1),)}, "every configuration needs a price"),
        ({"usd_per_hour": (Usd(0),) * 24}, "more than \\$0"),
        ({"work_samples": 0.0}, "work_samples must be more than 0"),
        ({"work_samples": float("inf")}, "work_samples must be more than 0"),
        ({"assurance": 1.0}, "assurance"),
        ({"assurance": 0.4}, "assurance"),
        ({"max_trials": 0}, "at least 1"),
        ({"noise": 1.0}, "noise"),
        ({"stretch": (0.5,) * 24}, "stretch"),
        ({"stretch": (1.0,)}, "stretch"),
    ],
)
def test_a_wrong_problem_cannot_be_built(wrong: dict[str, Any], message: str) -> None:
    good = make_problem()
    fields: dict[str, Any] = {"name": "x", "work_samples": 1.0, "space": good.space, "goal": good.goal,
                              "usd_per_hour": good.usd_per_hour}  # fmt: skip
    Problem(**fields)
    with pytest.raises(ValueError, match=message):
        Problem(**{**fields, **wrong})


def test_a_wrong_space_cannot_be_built() -> None:
    nodes = Knob(name="nodes", values=(1, 2))
    types = Knob(name="instance", values=("a",), features={"a": ()})
    with pytest.raises(ValueError, match="empty"):
        Space((types, nodes), ())
    with pytest.raises(ValueError, match="a duplicate configuration"):
        Space((types, nodes), (Config.deployment("a", 1), Config.deployment("a", 1)))
    with pytest.raises(ValueError, match="does not offer"):
        Space((types, nodes), (Config.deployment("a", 3),))
    with pytest.raises(ValueError, match="does not name the knobs"):
        Space((types, nodes), (Config.of({"nodes": 1, "instance": "a"}),))
    for wrong in ({"values": ()}, {"values": (1, 1)}, {"values": (0,)}, {"values": ("x",)}):
        with pytest.raises(ValueError, match="knob 'k'"):
            Knob(name="k", **wrong)
    with pytest.raises(ValueError, match="differ in length"):
        Knob(name="k", values=("a", "b"), features={"a": (1.0,), "b": ()})


def test_history_only_grows() -> None:
    problem = make_problem()
    one = History((failed(problem, CONFIG),))
    two = one.with_trials(measured(problem, CONFIG, 5.0, attempt=2))
    assert (len(one), len(two)) == (1, 2)
    assert two.attempts(CONFIG) == 2
    assert two.tried == {CONFIG}
    assert [t.attempt for t in two.failures] == [1]
    assert [t.attempt for t in two.measured] == [2]
    assert list(two) == list(two.trials)


def test_a_plan_is_the_start_up_and_the_work_stretched() -> None:
    problem = make_problem(stretch=(2.0,) * 24, assurance=0.975)
    trial = measured(problem, CONFIG, 10.0, error=0.1, startup=100.0)
    plan = Plan.of(problem, trial)
    assert plan.seconds == 2 * (100 + problem.work_samples / 10)
    assert plan.worst_seconds == pytest.approx(plan.seconds * np.exp(1.959964 * 0.1))
    assert plan.usd == problem.price(CONFIG).for_seconds(plan.seconds)
    assert margin_sigmas(0.999999) == pytest.approx(4.753, abs=1e-3)


@pytest.mark.parametrize("noise", [0.0, 0.01, 0.03, 0.05, 0.08, 0.11])
@pytest.mark.parametrize("assurance", [0.75, 0.99, 0.999999])
def test_the_bound_allows_for_a_training_slower_than_its_trials(noise: float, assurance: float) -> None:
    problem = make_problem(assurance=assurance, slowdown=0.1)
    trial = measured(problem, CONFIG, 10.0, error=noise)
    plan, usual = Plan.of(problem, trial), Plan.of(replace(problem, slowdown=0.0), trial)
    assert plan.seconds == usual.seconds
    assert plan.worst_seconds >= usual.worst_seconds
    assert 1.1 * plan.seconds <= stop_at(plan.worst_seconds) + 1e-6, "it ends before the watch would stop it"
    slow_sigmas = min(margin_sigmas(assurance), margin_sigmas(0.999))
    assert plan.worst_seconds >= 1.1 * plan.seconds * np.exp(slow_sigmas * noise)
    assert plan.worst_usd == problem.price(CONFIG).for_seconds(plan.worst_seconds)


def test_where_the_noise_is_large_its_bound_is_enough() -> None:
    problem = make_problem(slowdown=0.1)
    for noise in (0.06, 0.08, 0.11):
        assert log_margin(problem, noise) == margin_sigmas(problem.assurance) * noise
    assert log_margin(problem, 0.05) == pytest.approx(np.log(1.1) + margin_sigmas(0.999) * 0.05)


def test_a_short_training_has_time_to_stop() -> None:
    problem = make_problem(slowdown=0.1, work_samples=100.0)
    plan = Plan.of(problem, measured(problem, CONFIG, 10.0, error=0.0))
    assert plan.worst_seconds == pytest.approx(1.1 * plan.seconds + 6.0)


@pytest.mark.parametrize("slowdown", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("error", [0.0, 0.02, 0.05, 0.2])
def test_the_error_follows_from_the_margin(slowdown: float, error: float) -> None:
    problem = make_problem(slowdown=slowdown)
    assert error_within(problem, log_margin(problem, error)) == pytest.approx(error, abs=1e-12)
    assert error_within(problem, 0.0) == 0.0


@pytest.mark.parametrize("slowdown", [-0.01, 10.5, float("nan")])
def test_a_slowdown_is_a_share(slowdown: float) -> None:
    with pytest.raises(ValueError, match="slowdown"):
        make_problem(slowdown=slowdown)


def test_what_fits_is_judged_at_the_upper_bound_when_guarded() -> None:
    plan = Plan(config=CONFIG, seconds=10, usd=Usd(10), worst_seconds=12, worst_usd=Usd(12))
    everything = np.ones(1, dtype=bool)
    for usd, seconds, guarded, unguarded in ((12, 12, True, True), (11, 12, False, True), (12, 9, False, False)):
        limits: dict[str, Any] = {"usd": Usd(usd), "seconds": float(seconds), "allowed": everything}
        assert Remaining(**limits).fits(plan) is guarded
        assert Remaining(**limits, guarded=False).fits(plan) is unguarded
    assert Remaining(usd=None, seconds=None, allowed=everything).fits(plan)


def test_among_equals_the_cheaper_is_best() -> None:
    problem = make_problem(goal=Goal(minimize=Objective.TIME))
    dear = Plan(config=CONFIG, seconds=10, usd=Usd(10), worst_seconds=12, worst_usd=Usd(12))
    cheap = Plan(config=CONFIG, seconds=10, usd=Usd(9), worst_seconds=12, worst_usd=Usd(12))
    assert best(problem, [dear, cheap]) is cheap
    assert best(problem, []) is None


def test_exit_codes() -> None:
    codes = {status: status.exit_code for status in Status}
    assert codes == {
        Status.RUNNING: 1, Status.DONE: 0, Status.INFEASIBLE: 3, Status.NOTHING_FITS: 4, Status.OVERRAN: 5,
        Status.ALL_FAILED: 6, Status.RUN_FAILED: 1, Status.INTERRUPTED: 130, Status.SEARCHED: 0,
        Status.OUTPUT_MISSING: 8, Status.REFUSED: 7,
    }  # fmt: skip
    open_ends = {Status.RUNNING, Status.INTERRUPTED, Status.SEARCHED}
    assert {status for status in Status if not status.is_final} == open_ends
