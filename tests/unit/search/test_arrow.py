"""Arrow: its trees, what it predicts from what, and when it stops."""

from dataclasses import replace

import numpy as np
import pytest
from tests.synthetic import make_problem, measured

from mlcd.errors import BadInput
from mlcd.goal import Goal, Objective
from mlcd.ledger import Ledger
from mlcd.models import trees
from mlcd.problem import Problem
from mlcd.search.arrow import Arrow, _metrics
from mlcd.search.registry import strategy
from mlcd.space import Config
from mlcd.trial.node_metrics import NodeMetrics
from mlcd.trial.plan import Remaining
from mlcd.trial.trial import History
from mlcd.units import Usd

D = Config.deployment


# ---- trees


def test_trees_fit_what_they_have_seen_and_lie_between_it_elsewhere() -> None:
    inputs = np.array([[0.0, 5.0], [1.0, 5.0], [2.0, 5.0], [3.0, 5.0]])
    values = np.array([1.0, 2.0, 4.0, 8.0])
    forest = trees.fit(inputs, values, trees=50, least_leaf=1, seed=0)
    assert forest.predict(inputs) == pytest.approx(values)
    (between,) = forest.predict(np.array([[1.5, 5.0]]))
    assert 2.0 < between < 4.0, "the cuts are random, and the trees are averaged"
    assert forest.predict(np.array([[9.0, 0.0]])) == pytest.approx([8.0]), "trees do not extrapolate"


def test_the_column_that_explains_is_split() -> None:
    rng = np.random.default_rng(0)
    inputs = rng.random((200, 3))
    values = (inputs[:, 1] > 0.5).astype(float)
    forest = trees.fit(inputs, values, trees=20, least_leaf=2, seed=0)
    probe = np.array([[0.5, 0.1, 0.5], [0.5, 0.9, 0.5]])
    low, high = forest.predict(probe)
    assert low < 0.1
    assert high > 0.9


def test_leaves_are_not_smaller_than_allowed_and_seeds_repeat() -> None:
    inputs, values = np.arange(8.0).reshape(-1, 1), np.arange(8.0)
    whole = trees.fit(inputs, values, trees=3, least_leaf=5, seed=0)
    assert whole.predict(inputs) == pytest.approx([3.5] * 8), "8 rows cannot be two leaves of 5"
    probe = np.array([[2.5]])
    found = [trees.fit(inputs, values, trees=3, least_leaf=1, seed=seed).predict(probe)[0] for seed in (1, 1, 2, 3)]
    assert found[0] == found[1]
    assert len(set(found)) > 1


def test_a_forest_is_grown_once_for_the_same_rows_and_again_when_one_changes() -> None:
    inputs, values = np.array([[1.0], [2.0], [3.0], [4.0]]), np.array([1.0, 2.0, 3.0, 4.0])
    first = trees.fit(inputs, values, trees=3, least_leaf=1, seed=0)
    assert trees.fit(inputs.copy(), values.copy(), trees=3, least_leaf=1, seed=0) is first
    values[3] = 9.0
    again = trees.fit(inputs, values, trees=3, least_leaf=1, seed=0)
    assert again.predict(inputs)[3] == 9.0
    assert first.predict(inputs)[3] == 4.0


def test_trees_need_rows() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        trees.fit(np.zeros((0, 2)), np.zeros(0), trees=1, least_leaf=1, seed=0)


# ---- the strategy


def remaining(problem: Problem, history: History) -> Remaining:
    return Ledger(problem=problem, history=history, spent=Usd(sum(t.usd.micros for t in history))).remaining()


def of_small(problem: Problem, *nodes: int) -> History:
    return History(tuple(measured(problem, D("c5.small", n), 10.0 * n) for n in nodes))


def test_a_measured_deployment_is_predicted_as_it_was_measured() -> None:
    problem = make_problem()
    history = of_small(problem, 1, 2, 8)
    rows = np.array([problem.space.index[t.config] for t in history])
    found = Arrow()._log_seconds(problem, history, rows)
    speeds = np.array([t.samples_per_second for t in history.measured])
    startup = history.measured[0].startup_seconds
    assert np.exp(found) == pytest.approx(problem.work_samples / speeds + startup, rel=1e-6)


def test_the_best_prediction_is_tried_and_a_worse_one_ends_the_search() -> None:
    problem = make_problem(goal=Goal(minimize=Objective.TIME))
    history = of_small(problem, 1, 2, 8)
    left = remaining(problem, history)
    (found,) = strategy("arrow").suggest(problem, history, left, 1)
    rows = np.flatnonzero(left.allowed & np.array([c not in history.tried for c in problem.space]))
    predicted = Arrow()._log_seconds(problem, history, rows)
    assert predicted[rows.tolist().index(problem.space.index[found.config])] == predicted.min()
    assert strategy("arrow:delta=0.5").suggest(problem, history, left, 1) == (), "nothing is predicted twice as fast"
    assert "0.5 times the best" in strategy("arrow:delta=0.5").ending(problem, history, left)


def test_while_nothing_fits_the_nearest_to_fitting_is_tried() -> None:
    goal = Goal(minimize=Objective.COST, deadline_seconds=7200.0)
    problem = make_problem(goal=goal, work_samples=1e9)
    history = of_small(problem, 1, 2, 4)
    assert len(strategy("arrow:delta=0.1").suggest(problem, history, remaining(problem, history), 1)) == 1


def test_metrics_count_where_every_trial_has_them() -> None:
    problem = make_problem()
    first, second = of_small(problem, 1, 2).measured
    assert _metrics((first, second)).shape == (2, 0)
    assert _metrics((replace(first, utilisation=0.5), second)).shape == (2, 0)
    metrics = NodeMetrics(source="test", nodes=1, cpu_percent=40.0)
    told = tuple(replace(t, utilisation=u, node_metrics=metrics) for t, u in ((first, 0.5), (second, 0.7)))
    assert _metrics(told).tolist() == [[0.5, 40.0], [0.7, 40.0]]


def test_the_start_is_spread_and_the_steps_are_counted() -> None:
    problem = make_problem()
    first = strategy("arrow:start=3").suggest(problem, History(), remaining(problem, History()), 8)
    assert len({s.config for s in first}) == 3
    history = of_small(problem, 1, 2, 8)
    left = remaining(problem, history)
    assert strategy("arrow:steps=3").suggest(problem, history, left, 1) == ()
    assert "all 3 trials" in strategy("arrow:steps=3").ending(problem, history, left)


@pytest.mark.parametrize("option", ["start=0", "steps=0", "delta=-1"])
def test_options_are_checked(option: str) -> None:
    with pytest.raises(BadInput, match="must be at least"):
        strategy(f"arrow:{option}")
