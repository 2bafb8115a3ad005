"""The tree of regions, and how UCT selects in it."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlcd.search.serving.falcon_settings import FalconSettings
from mlcd.search.serving.falcon_tree import Region, grow, select, two_means

SMALLEST = FalconSettings().smallest_region


def leaves(region: Region) -> list[Region]:
    if region.left is None or region.right is None:
        return [region]
    return leaves(region.left) + leaves(region.right)


@given(st.lists(st.integers(-50, 50), min_size=2, max_size=12))
def test_two_means_is_the_best_of_all_cuts(numbers: list[int]) -> None:
    values = np.array(numbers, dtype=float)
    upper = two_means(values)
    if len(set(numbers)) == 1:
        assert not upper.any()
        return
    assert values[upper].min() > values[~upper].max()

    def within(mask: np.ndarray) -> float:
        return float(values[mask].var() * mask.sum() + values[~mask].var() * (~mask).sum())

    cuts = [values > cut for cut, _ in pairwise(sorted(set(numbers)))]
    assert within(upper) == pytest.approx(min(within(cut) for cut in cuts), abs=1e-9)


def test_good_goes_left_and_every_configuration_is_in_one_leaf() -> None:
    rng = np.random.default_rng(0)
    one, other = rng.random(60), rng.random(60)
    predicted = 0.8 * one + 0.2 * other
    tree = grow([("conv", one), ("dense", other)], predicted, np.arange(60), smallest=SMALLEST)
    assert tree.left is not None
    assert tree.right is not None
    assert one[tree.left.rows].min() > one[tree.right.rows].max()
    assert tree.left.path == (("conv", True),)
    assert str(tree.left.left) == "good for conv, good for dense"
    assert str(tree.right.right) == "poor for conv, poor for dense"
    assert sorted(np.concatenate([leaf.rows for leaf in leaves(tree)]).tolist()) == list(range(60))
    assert tree.prior == predicted.max()


def test_weights_decide_between_operators_that_disagree() -> None:
    """Good for the first operator is bad for the model: the heavier second one sends it right."""
    first = np.repeat([1.0, 0.0], 10)
    predicted = 0.1 * first + 0.9 * (1 - first)
    tree = grow([("light", first)], predicted, np.arange(20), smallest=SMALLEST)
    assert tree.left is not None
    assert tree.left.rows.tolist() == list(range(10, 20))


def test_an_operator_with_equal_values_does_not_split() -> None:
    rising = np.arange(20.0)
    tree = grow([("flat", np.ones(20)), ("dense", rising)], rising, np.arange(20), smallest=SMALLEST)
    assert tree.left is not None
    assert tree.left.path == (("dense", True),)
    assert grow([("flat", np.ones(20))], rising, np.arange(20), smallest=SMALLEST).left is None
    assert grow([("dense", rising)], rising, np.arange(2 * SMALLEST - 1), smallest=SMALLEST).left is None


def two_regions() -> tuple[Region, np.ndarray]:
    predicted = np.concatenate([np.full(10, 1.0), np.full(10, 0.7)])
    return grow([("conv", predicted)], predicted, np.arange(20), smallest=SMALLEST), np.ones(20, dtype=bool)


def test_without_trials_it_goes_left() -> None:
    tree, is_open = two_regions()
    chosen = select(tree, {}, is_open, 0.5)
    assert chosen is not None
    assert chosen.path == (("conv", True),)


def test_poor_trials_send_it_right_and_good_ones_keep_it() -> None:
    tree, is_open = two_regions()

    def side(tried: dict[int, float], explore: float) -> bool:
        chosen = select(tree, tried, is_open, explore)
        assert chosen is not None
        return chosen.path[0][1]

    assert side({0: 0.9}, 0.01)
    assert not side({0: 0.2}, 0.01)
    assert not side(dict.fromkeys(range(8), 0.9), 1.0), "many visits there ask for a look elsewhere"
    assert side(dict.fromkeys(range(8), 0.9), 0.0)


def test_ucb_is_the_formula() -> None:
    """Left: v = 0.9 after n = 3 of N = 4 trials; right: v = 0.5, n = 1. Equal at cp = 0.4 / (f(1) - f(3))."""
    tree, is_open = two_regions()
    tried = {0: 0.9, 1: 0.1, 2: 0.0, 10: 0.5}
    level = 0.4 / (np.sqrt(2 * np.log(5) / 2) - np.sqrt(2 * np.log(5) / 4))
    for explore, goes_left in ((level * 0.99, True), (level * 1.01, False)):
        chosen = select(tree, tried, is_open, explore)
        assert chosen is not None
        assert chosen.path[0][1] is goes_left


def test_regions_with_nothing_open_are_skipped() -> None:
    tree, is_open = two_regions()
    is_open[:10] = False
    chosen = select(tree, {}, is_open, 0.1)
    assert chosen is not None
    assert not chosen.path[0][1]
    assert select(tree, {}, np.zeros(20, dtype=bool), 0.1) is None
