"""The strategies of `mlcd.Search(knobs=...)` against the one contract of strategies."""

import pytest

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
