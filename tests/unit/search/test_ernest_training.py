"""Ernest for training: which trials it designs, and what it makes of their curves."""

import numpy as np
import pytest
from tests.synthetic import make_problem, measured

from mlcd.errors import BadInput
from mlcd.goal import Goal, Objective
from mlcd.ledger import Ledger
from mlcd.models.physical_terms import Terms
from mlcd.problem import Problem
from mlcd.search.registry import strategy
from mlcd.space import Config
from mlcd.trial.plan import Remaining
from mlcd.trial.trial import History
from mlcd.units import Usd

D = Config.deployment
COUNTS = tuple(range(1, 17))
SECONDS = {"c5.small": (1.0, 40.0, 0.0, 0.30), "c5.big": (0.5, 12.0, 0.4, 0.10), "p2.one": (4.0, 3.0, 0.0, 0.0)}
"""Of one sample: w0 + w1 / n + w2 ln n + w3 n."""


def seconds(config: Config) -> float:
    w0, w1, w2, w3 = SECONDS[config.instance]
    return float(w0 + w1 / config.nodes + w2 * np.log(config.nodes) + w3 * config.nodes)


def problem_of(goal: Goal | None = None) -> Problem:
    return make_problem(goal=goal or Goal(minimize=Objective.TIME), counts=COUNTS, work_samples=1e5)


def remaining(problem: Problem, history: History) -> Remaining:
    spent = Usd(sum(t.usd.micros for t in history))
    elapsed = sum(t.seconds for t in history)
    return Ledger(problem=problem, history=history, spent=spent, elapsed_seconds=elapsed).remaining()


def walk(text: str, problem: Problem) -> list[Config]:
    """What it tries where every trial measures the law."""
    chosen, history = strategy(text), History()
    while found := chosen.suggest(problem, history, remaining(problem, history), 1):
        config = found[0].config
        history = history.with_trials(measured(problem, config, 1 / seconds(config)))
    return [trial.config for trial in history]


def test_the_law_has_a_term_for_each_cost() -> None:
    nodes = np.array([1.0, 2.0, 8.0])
    columns = Terms.of_nodes(nodes).columns
    raw = np.stack([np.ones(3), 1 / nodes, np.log(nodes), nodes], axis=1)
    assert columns == pytest.approx(raw / raw.mean(axis=0))


def test_every_type_gets_its_designed_trials_first() -> None:
    problem = problem_of()
    tried = walk("ernest", problem)
    assert sorted(config.instance for config in tried[:9]) == sorted(3 * list(SECONDS))
    assert tried[0].nodes == 1, "the cheapest point tells most for its price"
    for name in SECONDS:
        nodes = [config.nodes for config in tried[:9] if config.instance == name]
        assert len(set(nodes)) == 3


def test_it_ends_at_the_curves_optimum() -> None:
    problem = problem_of()
    tried = walk("ernest:design=4", problem)
    best = min(problem.space, key=seconds)
    assert best in tried
    assert len(tried) < 20, "of 48"


def test_a_limit_excludes_what_the_curve_says_does_not_fit() -> None:
    goal = Goal(minimize=Objective.TIME, budget=Usd.of("60"))
    problem = problem_of(goal)
    for config in walk("ernest:design=4", problem)[12:]:
        assert seconds(config) * problem.work_samples * problem.price(config).dollars / 3600 <= 60


def test_of_many_types_some_get_a_curve() -> None:
    problem = problem_of()
    assert {config.instance for config in walk("ernest:types=1", problem)} == {"c5.small"}, "the cheapest"
    assert len({config.instance for config in walk("ernest:types=2", problem)}) == 2


def test_several_trials_at_once_are_of_several_types() -> None:
    problem = problem_of()
    found = strategy("ernest").suggest(problem, History(), remaining(problem, History()), 8)
    assert sorted(s.config.instance for s in found) == sorted(SECONDS)


def test_it_says_why_it_ends() -> None:
    problem = problem_of()
    history = History(tuple(measured(problem, c, 1 / seconds(c)) for c in walk("ernest", problem)))
    left = remaining(problem, history)
    assert "nothing is better" in strategy("ernest").ending(problem, history, left)
    assert "all 9 trials" in strategy("ernest:steps=9").ending(problem, history, left)
    assert strategy("ernest:steps=9").suggest(problem, history, left, 1) == ()


@pytest.mark.parametrize("option", ["design=0", "types=0", "steps=0"])
def test_options_are_checked(option: str) -> None:
    with pytest.raises(BadInput, match="must be at least 1"):
        strategy(f"ernest:{option}")
