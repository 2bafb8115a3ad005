"""What a strategy sees of a trial beside a running training."""

from dataclasses import replace

import numpy as np
import pytest

from mlcd.goal import Goal, Objective
from mlcd.search.beside import after_a_trial
from mlcd.search.registry import strategy
from mlcd.testing.made import make_problem, true_trial
from mlcd.trial.plan import Plan, Remaining
from mlcd.trial.trial import History
from mlcd.units import Usd

PROBLEM = replace(make_problem(goal=Goal(minimize=Objective.TIME)), beside=True, restart_seconds=200.0)
HISTORY = History((true_trial(PROBLEM, PROBLEM.space.configs[0]),))
(TRIED,) = HISTORY.measured
ALLOWED = np.ones(len(PROBLEM.space), dtype=bool)


def remaining(training: Plan | None, usd: Usd | None = None) -> Remaining:
    return Remaining(usd=usd, seconds=None, allowed=ALLOWED, training=training)


def test_before_the_training_starts_nothing_changes() -> None:
    left = remaining(None)
    assert after_a_trial(PROBLEM, HISTORY, left) == (PROBLEM, HISTORY, left)


def test_a_trial_is_judged_by_the_work_and_the_money_that_are_left_when_it_ends() -> None:
    plan = Plan.of(PROBLEM, TRIED)
    passed = PROBLEM.trial.seconds / plan.seconds
    problem, history, left = after_a_trial(PROBLEM, HISTORY, remaining(plan, Usd.of(100)))
    assert problem.work_samples == pytest.approx(PROBLEM.work_samples * (1 - passed))
    assert left.training is not None
    assert left.training.seconds == pytest.approx(plan.seconds - PROBLEM.trial.seconds)
    assert left.usd is not None
    assert left.usd.dollars == pytest.approx(100 - plan.usd.dollars * passed, abs=1e-5)
    assert [trial.startup_seconds for trial in history.measured] == [200.0]  # a move takes no less


def test_a_training_that_is_nearly_done_is_not_searched_for() -> None:
    """What a restart takes is more than what is left, whatever a trial could show."""
    plan = Plan.of(
        PROBLEM.with_work_done(PROBLEM.work_samples * 0.9999), replace(HISTORY.measured[0], startup_seconds=0.0)
    )
    nearly = PROBLEM.with_work_done(PROBLEM.work_samples * 0.9999)
    others = tuple(true_trial(PROBLEM, config) for config in PROBLEM.space.configs[8::8])
    history = HISTORY.with_trials(*others)
    assert plan.seconds < PROBLEM.restart_seconds
    assert strategy("heterbo").suggest(nearly, history, remaining(plan), 1) == ()


def test_time_beside_the_training_is_free() -> None:
    """Trials of an hour would cost more than they bring if the training waited for them; beside it they do not."""
    slow = replace(PROBLEM, trial=replace(PROBLEM.trial, seconds=3600.0))
    others = tuple(true_trial(slow, config) for config in slow.space.configs[8::8])
    history = HISTORY.with_trials(*others)
    best = min((Plan.of(slow, trial) for trial in history.measured), key=lambda plan: plan.seconds)
    longer = replace(best, seconds=20 * 3600.0, worst_seconds=24 * 3600.0)
    assert strategy("heterbo").suggest(slow, history, remaining(longer), 1)


def test_what_is_no_gain_beyond_a_tie_is_not_tried() -> None:
    everything = History(tuple(true_trial(PROBLEM, config) for config in PROBLEM.space.configs[:-1]))
    best = min((Plan.of(PROBLEM, trial) for trial in everything.measured), key=lambda plan: plan.seconds)
    assert strategy("heterbo").suggest(PROBLEM, everything, remaining(best), 1) == ()
