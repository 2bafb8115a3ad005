"""Knobs that change learning: what trials say of the work with each of their values, and which are tried."""

import math
from dataclasses import replace

import numpy as np
import pytest

from mlcd.goal import Goal, Objective
from mlcd.models.remaining import remaining_problem
from mlcd.problem import LearnedWork, Problem, Target
from mlcd.search.learning import LearningFirst, learning_first
from mlcd.search.registry import strategy
from mlcd.space import Config, Knob, Space
from mlcd.testing.made import failed, measured
from mlcd.trial.plan import Plan, Remaining
from mlcd.trial.trial import FailureKind, History, Learned, Measurement
from mlcd.units import Usd

RATES = (0.1, 0.3, 1.0)
CAP = 1e6


def config(nodes: int, rate: float) -> Config:
    return Config((("instance", "a"), ("nodes", nodes), ("lr", rate)))


def problem() -> Problem:
    configs = tuple(config(n, rate) for n in (1, 2, 4) for rate in RATES)
    knobs = (
        Knob(name="instance", values=("a",), features={"a": (1.0,)}),
        Knob(name="nodes", values=(1, 2, 4)),
        Knob(name="lr", values=RATES, features={rate: (math.log(rate),) for rate in RATES}, is_setting=True),
    )
    return Problem(
        name="learns",
        work_samples=CAP,
        space=Space(knobs, configs),
        goal=Goal(minimize=Objective.TIME),
        usd_per_hour=tuple(Usd.of(c.nodes) for c in configs),
        target=Target(metric="loss", value=0.2, higher=False),
        learning=("lr",),
    )


def trial(nodes: int, rate: float, *, learns: float | None) -> Measurement:
    """A loss of 1/(learns u + 1) after u samples: the target is met at 4/learns."""
    made = measured(problem(), config(nodes, rate), 10.0 * nodes, error=0.01)
    points = [] if learns is None else [Learned(u, 1 / (learns * u + 1)) for u in (100.0 * i for i in range(1, 12))]
    return replace(made, learned=tuple(points))


def everything(found: Problem) -> Remaining:
    return Remaining(usd=None, seconds=None, allowed=np.ones(len(found.space), dtype=bool))


def test_trials_with_the_same_learning_predict_the_work_on_every_machine() -> None:
    history = History((trial(1, 0.1, learns=1e-4), trial(2, 0.3, learns=4e-4)))
    now = remaining_problem(problem(), history)
    assert now.work_of(config(4, 0.1)) == pytest.approx(40_000, rel=0.02)
    assert now.work_of(config(1, 0.3)) == pytest.approx(10_000, rel=0.02)
    assert now.work_of(config(1, 1.0)) == pytest.approx(20_000, rel=0.02)  # not tried: the mean of the others
    assert now.works[now.space.index[config(4, 0.3)]] == now.work_of(config(1, 0.3))
    slow, quick = (Plan.of(now, each) for each in history.measured)
    assert slow.seconds / quick.seconds == pytest.approx(8, rel=0.05)


def test_learning_that_predicts_no_end_takes_all_of_the_jobs_samples() -> None:
    history = History((trial(1, 0.1, learns=1e-4), trial(1, 0.3, learns=None), trial(1, 1.0, learns=1e-7)))
    now = remaining_problem(problem(), history)
    assert now.work_of(config(1, 0.3)) == CAP
    assert now.work_of(config(1, 1.0)) == CAP  # its target is further away than that
    assert now.work_error_of(config(1, 0.3)) == 0.0


def test_work_that_a_training_has_done_counts_for_its_learning() -> None:
    now = replace(problem(), learned_work=(LearnedWork(values=(0.1,), samples=5000.0, error=0.1),))
    rest = now.with_work_done(2000.0)
    assert rest.work_of(config(1, 0.1)) == 3000.0
    assert rest.work_of(config(1, 0.3)) == CAP - 2000.0
    assert rest.work_error_of(config(1, 0.1)) == 0.1


def test_every_learning_is_tried_once_with_nothing_else_changed() -> None:
    found = problem()
    chosen = learning_first(strategy("heterbo"), found)
    assert isinstance(chosen, LearningFirst)
    history = History()
    rates = []
    for _ in RATES:
        now = remaining_problem(found, history)
        (suggested,) = chosen.suggest(now, history, everything(found), 1)
        rates.append(suggested.config["lr"])
        made = trial(suggested.config.nodes, float(suggested.config["lr"]), learns=1e-4)
        history = History((*history, made))
    assert sorted(rates) == sorted(RATES)
    assert len({each.config.nodes for each in history}) == 1
    assert suggested.reason == f"how well the model learns with lr={rates[-1]} is not known yet"


def test_learning_that_fails_twice_is_left_to_the_strategy() -> None:
    found = problem()
    history = History((trial(1, 0.1, learns=1e-4), trial(1, 0.3, learns=1e-4)))
    chosen = learning_first(strategy("heterbo"), found)
    for attempt in (1, 2):
        (suggested,) = chosen.suggest(found, history, everything(found), 1)
        assert suggested.config["lr"] == 1.0
        history = History((*history, failed(found, suggested.config, FailureKind.ERROR, attempt=attempt)))
    assert not [each for each in chosen.suggest(found, history, everything(found), 1) if "learns" in each.reason]


def test_without_such_knobs_the_strategy_is_as_it_was() -> None:
    plain = strategy("heterbo")
    assert learning_first(plain, replace(problem(), learning=())) is plain


def test_impossible_work_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one sample"):
        LearnedWork(values=(0.1,), samples=0.0)
