"""Spot as a choice at random, with rates up to ten times those believed: no budget is broken, deadlines at their rate.

The rate is promised to trainings that start certain to fit. Where nothing is, one may start that is likely to.
benchmarks/spot_market.py makes thousands of these jobs.
"""

from collections import Counter
from importlib import import_module

import pytest

from mlcd.run.run import SearchRun
from mlcd.run.step import Role
from mlcd.trial.outcome import Status
from mlcd.units import ZERO

spot_market = import_module("benchmarks.spot_market")  # a script, not a module that mypy knows

SEEDS = [pytest.param(range(50, 150), id="100"), pytest.param(range(150, 2000), id="2000", marks=pytest.mark.extra)]


@pytest.mark.parametrize("numbers", SEEDS)
def test_limits_hold_however_often_spot_nodes_are_taken_away(numbers: range) -> None:
    seen: Counter[str] = Counter()
    late: Counter[float] = Counter()
    for number in numbers:
        run, outcome = spot_market.run_arm(0, number, "any")
        assert not outcome.overspent, f"{number}: {run.total_usd} of {run.problem.goal.budget}"
        check_steps(run, number)
        seen[outcome.status] += 1
        seen["interrupted"] += outcome.interruptions > 0
        seen["on spot"] += outcome.spot_share > 0
        seen["watched"] += any(step.watch is not None and step.watch.renews for step in run.steps)
        seen["moved"] += any("another interruption" in attempt.message for attempt in run.attempts)
        if run.attempts and run.problem.interruptions.saves and not outcome.uncertain:
            seen[f"trained at {run.problem.assurance}"] += 1
            late[run.problem.assurance] += outcome.unfinished
    assert late[0.999999] == 0, late
    for assurance in (0.9, 0.99):
        assert late[assurance] <= max(2, 2 * (1 - assurance) * seen[f"trained at {assurance}"]), (late, seen)
    assert min(seen[Status.DONE], seen["interrupted"], seen["on spot"]) > len(numbers) // 5, seen
    assert min(seen["watched"], seen["moved"]) > 0, seen


def check_steps(run: SearchRun, number: int) -> None:
    """Every step is paid at its price; a training on spot nodes that is not certain to fit leaves room for another."""
    goal = run.problem.goal
    spent, elapsed = 0, 0.0
    for step in run.steps:
        watch = step.watch
        if step.role is Role.TRAINING and watch is not None and watch.renews:
            assert watch.fallback is not None
            assert not watch.fallback.config.is_spot
            if goal.budget is not None:
                assert spent + (watch.usd + watch.fallback.worst_usd).micros <= goal.budget.micros, number
            if goal.deadline_seconds is not None:
                assert elapsed + watch.seconds + watch.fallback.worst_seconds <= goal.deadline_seconds + 1e-6, number
        if step.role is Role.TRIAL and step.outcome is not None:
            assert step.outcome.usd <= step.authorised_usd, number
        if step.outcome is not None:
            assert step.outcome.usd == step.price.for_seconds(step.outcome.seconds) or step.outcome.usd == ZERO, number
            spent += step.outcome.usd.micros
            elapsed = max(elapsed, step.started_seconds + step.outcome.seconds)
