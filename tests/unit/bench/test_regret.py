"""benchmarks/regret.py: what the curve counts, and the picture."""

from xml.etree import ElementTree

import pytest
from regret import GRID, mean_curve, regret_curve, regret_picture

from mlcd.bench.case import GoalKind
from mlcd.bench.protocol import TrainProtocol
from mlcd.bench.train import run_one
from mlcd.clouds.replay import ReplayInstance, ReplayWorkload
from mlcd.space import Config
from mlcd.units import Usd

WORKLOAD = ReplayWorkload(
    name="job",
    seconds={Config.deployment("a", n): seconds for n, seconds in ((1, 9000.0), (2, 6000.0), (4, 3600.0))},
    instances={"a": ReplayInstance(name="a", usd_per_hour=Usd.of("1"))},
)


def curve(goal: GoalKind, strategy: str = "exhaustive") -> list[float]:
    protocol = TrainProtocol(hours=10.0, noise=0.0, budget_factor=1.5)
    found = run_one(WORKLOAD, protocol, kind=goal, strategy_text=strategy, seed=0)
    assert found is not None
    return regret_curve(found.truth, found.run)


def test_a_curve_falls_from_nothing_measured_to_the_best() -> None:
    found = curve(GoalKind.FASTEST)
    assert len(found) == len(GRID)
    assert found[-1] == 1.0
    assert found == sorted(found, reverse=True)
    # The best run is 4 nodes for 10 h: $40. A trial on one node takes $1/6, a share of 0.004.
    assert found[0] == pytest.approx(9000 / 3600)
    steps = [share for share, before, after in zip(GRID[1:], found, found[1:], strict=False) if after < before]
    assert len(steps) == 2


def test_what_does_not_fit_counts_three() -> None:
    """Under a budget of 1.5 times $25, two nodes ($33.3) fit until the search has spent the rest; four never do."""
    found = curve(GoalKind.BUDGET)
    assert max(found) <= 3.0
    assert min(found) == pytest.approx(1.0)


def test_the_picture_has_a_line_for_each_strategy() -> None:
    curves = {"auto": [2.0] * len(GRID), "heterbo": [3.0] * len(GRID)}
    drawn = regret_picture(curves, goal="fastest", origin="mlcd")
    root = ElementTree.fromstring(drawn)
    lines = [each for each in root.iter() if each.tag.endswith("polyline") and each.get("class", "").startswith("l-s")]
    assert len(lines) == 2
    assert mean_curve([[1.0, 2.0], [2.0, 3.0]]) == [1.5, 2.5]
