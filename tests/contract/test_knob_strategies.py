"""Strategies over knobs against the one contract: those of `mlcd.Search(knobs=...)`, and of trainings with knobs."""

import pytest

from mlcd.jobs.knobs import STRATEGIES
from mlcd.search.registry import KNOBS, strategy
from mlcd.search.strategy import Strategy
from mlcd.testing import StrategyContract


class TestKnobStrategies(StrategyContract):
    @pytest.fixture(params=["bayesian", "bayesian:start=1", "random", "exhaustive:points=7"])
    def text(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    def make(self, text: str, seed: int = 0) -> Strategy:
        return strategy(text, seed=seed, own_knobs=True)


def test_every_knob_strategy_keeps_the_limits() -> None:
    assert all(strategy(name, own_knobs=True).guarded for name in KNOBS)


class TestTrainingWithKnobs(StrategyContract):
    has_settings = True

    @pytest.fixture(params=STRATEGIES)
    def text(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)
