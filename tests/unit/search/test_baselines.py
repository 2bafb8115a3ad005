"""The baselines and the choice after a search: what they optimise, and when they stop."""

from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from tests.synthetic import make_problem, measured

from mlcd.ledger import Ledger
from mlcd.models.knob_gp import KnobPosterior
from mlcd.search.bayesian import _by_score
from mlcd.search.registry import strategy
from mlcd.search.serving.posterior import PosteriorStrategy
from mlcd.space import Config
from mlcd.trial.plan import Remaining
from mlcd.trial.trial import History

PROBLEM = make_problem()


def walk(text: str, seed: int, count: int) -> list[Config]:
    """What it tries, one after the other."""
    chosen, history = strategy(text, seed=seed), History()
    for _ in range(count):
        remaining = Ledger(problem=PROBLEM, history=history).remaining()
        for suggestion in chosen.suggest(PROBLEM, history, remaining, 1):
            history = history.with_trials(measured(PROBLEM, suggestion.config, 10.0))
    return [trial.config for trial in history]


def test_random_search_draws_by_its_seed_without_replacement() -> None:
    walks = [walk("random:steps=5", seed, 9) for seed in range(6)]
    assert all(len(found) == len(set(found)) == 5 for found in walks)
    assert walk("random:steps=5", 3, 9) == walks[3]
    assert len({tuple(found) for found in walks}) == 6


def test_exhaustive_search_tries_all_or_evenly_spread_points() -> None:
    assert walk("exhaustive", 0, 30) == list(PROBLEM.space.configs)
    assert walk("exhaustive:points=2", 0, 30) == [PROBLEM.space.configs[0], PROBLEM.space.configs[-1]]


def test_a_server_that_barely_kept_the_limit_loses_to_a_safe_one_that_is_hardly_worse() -> None:
    first, second = PROBLEM.space.configs[:2]
    history = History((measured(PROBLEM, first, 100.0), measured(PROBLEM, second, 100.0)))
    log_value, keeps = np.zeros(len(PROBLEM.space)), np.ones(len(PROBLEM.space))
    log_value[:2], keeps[:2] = (1.0, 1.05), (0.6, 0.99)
    outlook = SimpleNamespace(log_value=log_value, keeps=keeps)
    believing = SimpleNamespace(outlook=lambda *_: outlook, settings=SimpleNamespace(limit_weight=1.0))
    everything = Remaining(usd=None, seconds=None, allowed=np.ones(len(PROBLEM.space), dtype=bool))
    plan = PosteriorStrategy.recommend(cast(PosteriorStrategy, believing), PROBLEM, history, everything)
    assert plan is not None
    assert plan.config == second


@pytest.mark.parametrize("acquisition", ["auto", "net", "pandora"])
def test_heterbo_ends_where_no_trial_saves_its_price(acquisition: str) -> None:
    """With the gate off, only the net gain can end it: trials of 10 minutes for a training of 10 minutes."""
    small, big = Config.deployment("c5.small", 1), Config.deployment("c5.big", 1)
    chosen = strategy(f"heterbo:gate=off,acquisition={acquisition}")
    for work, goes_on in ((2e4, False), (2e8, True)):
        problem = make_problem(work_samples=work)
        history = History((measured(problem, small, 10.0), measured(problem, big, 34.0)))
        remaining = Ledger(problem=problem, history=history).remaining()
        assert bool(chosen.suggest(problem, history, remaining, 1)) is goes_on


def test_improvement_is_measured_against_the_best_value() -> None:
    """A place that is surely as good as the best is not worth a trial; one that may be better is."""
    sure, open_ = (0.05, 0.01**2), (1.0, 1.0)
    values = dict(enumerate([(0.0, 1e-6), (10.0, 1e-6), sure, open_]))
    model = SimpleNamespace(
        predict=lambda rows: tuple(
            np.array(column) for column in zip(*(values[int(row)] for row in rows), strict=True)
        ),
        observed=SimpleNamespace(rows=np.array([0, 1])),
    )
    model.with_expected = lambda *_: model
    picks = _by_score(cast(KnobPosterior, model), np.array([2, 3]), 1)
    assert [row for row, _ in picks] == [3]
