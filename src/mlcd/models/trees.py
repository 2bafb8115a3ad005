"""Extremely randomised trees (Geurts et al. 2006): a regression that needs no scaling and no tuning."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]


@dataclass(frozen=True, kw_only=True, eq=False)
class Forest:
    """Trees as arrays: node i of a tree splits column `column[i]` at `cut[i]`; a leaf has column -1 and its `value`."""

    trees: tuple[tuple[Rows, Floats, Rows, Rows, Floats], ...]

    def predict(self, inputs: Floats) -> Floats:
        """(n,) the mean over the trees."""
        return np.asarray(np.mean([_descend(tree, inputs) for tree in self.trees], axis=0))


def fit(inputs: Floats, values: Floats, *, trees: int, least_leaf: int, seed: int) -> Forest:
    """Trees on all rows. At each node every column gets one random cut, and the one that explains most is taken.

    least_leaf  rows below which a node is not split
    """
    if len(inputs) != len(values) or not len(values):
        raise ValueError("inputs and values must have the same number of rows, at least 1")
    inputs, values = np.ascontiguousarray(inputs, dtype=np.float64), np.ascontiguousarray(values, dtype=np.float64)
    return _fitted(inputs.tobytes(), values.tobytes(), inputs.shape[1], trees, seed, least_leaf=least_leaf)


@lru_cache(maxsize=16)
def _fitted(inputs: bytes, values: bytes, columns: int, trees: int, seed: int, *, least_leaf: int) -> Forest:
    """The same inputs come again in every search among the same deployments."""
    rng = np.random.default_rng(seed)
    x, y = np.frombuffer(inputs).reshape(-1, columns), np.frombuffer(values)
    with np.errstate(divide="ignore", invalid="ignore"):
        return Forest(trees=tuple(_grown(x, y, least_leaf, rng) for _ in range(trees)))


def _grown(
    inputs: Floats, values: Floats, least_leaf: int, rng: np.random.Generator
) -> tuple[Rows, Floats, Rows, Rows, Floats]:
    column: list[int] = []
    cut: list[float] = []
    left: list[int] = []
    right: list[int] = []
    value: list[float] = []

    def add(mean: float) -> int:
        column.append(-1)
        cut.append(0.0)
        left.append(-1)
        right.append(-1)
        value.append(mean)
        return len(column) - 1

    waiting = [(add(_mean(values)), np.arange(len(values)))]
    while waiting:
        node, rows = waiting.pop()
        found = _split(inputs[rows], values[rows], rng) if len(rows) >= 2 * least_leaf else None
        if found is None:
            continue
        column[node], cut[node] = found
        goes_left = inputs[rows, found[0]] <= found[1]
        for side, part in ((left, rows[goes_left]), (right, rows[~goes_left])):
            side[node] = add(_mean(values[part]))
            waiting.append((side[node], part))
    return np.array(column), np.array(cut), np.array(left), np.array(right), np.array(value)


def _mean(values: Floats) -> float:
    return float(np.add.reduce(values) / len(values))


def _split(inputs: Floats, values: Floats, rng: np.random.Generator) -> tuple[int, float] | None:
    """The column and cut that explain most of the values' variance; None where nothing can be told apart."""
    low, high = np.minimum.reduce(inputs, axis=0), np.maximum.reduce(inputs, axis=0)
    varies = high > low
    if not varies.any() or np.maximum.reduce(values) == np.minimum.reduce(values):
        return None
    cuts = low + (high - low) * rng.random(len(low))
    below = inputs <= cuts
    count = np.add.reduce(below, axis=0)
    sums = values @ below
    rest, others = np.add.reduce(values) - sums, len(values) - count
    between = np.where(varies & (count > 0) & (others > 0), sums**2 / count + rest**2 / others, -np.inf)
    best = int(between.argmax())
    return (best, float(cuts[best])) if np.isfinite(between[best]) else None


def _descend(tree: tuple[Rows, Floats, Rows, Rows, Floats], inputs: Floats) -> Floats:
    column, cut, left, right, value = tree
    node = np.zeros(len(inputs), dtype=np.intp)
    inner = np.flatnonzero(column[node] >= 0)
    while len(inner):
        at = node[inner]
        goes_left = inputs[inner, column[at]] <= cut[at]
        node[inner] = np.where(goes_left, left[at], right[at])
        inner = inner[column[node[inner]] >= 0]
    return np.asarray(value[node])
