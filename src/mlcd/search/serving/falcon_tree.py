"""Falcon's tree: regions of configurations by key operator, good to the left, bad to the right; UCT chooses one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]


@dataclass(frozen=True, kw_only=True, eq=False)
class Region:
    """A set of configurations that the key operators so far do not distinguish.

    rows   of the space
    prior  the best predicted value among them, as a share of the best predicted anywhere
    path   (operator, whether on its good side) from the root down
    left   the configurations that are good for the next operator; right the others; both None for a leaf
    """

    rows: Rows
    prior: float
    path: tuple[tuple[str, bool], ...] = ()
    left: "Region | None" = None
    right: "Region | None" = None

    def __str__(self) -> str:
        return ", ".join(f"{'good' if good else 'poor'} for {name}" for name, good in self.path) or "anywhere"


def two_means(values: Floats) -> NDArray[np.bool_]:
    """(n,) True for the upper of the two clusters of least squares: exact, by trying every cut of the sorted values.

    All False where the values are all equal.
    """
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    size = len(ordered)
    upper = np.zeros(size, dtype=bool)
    if size < 2 or ordered[0] == ordered[-1]:
        return upper
    sums = np.cumsum(ordered)
    below = np.arange(1, size)
    # Minimal squares within the clusters mean maximal squares between them; equal values are never cut apart.
    between = sums[:-1] ** 2 / below + (sums[-1] - sums[:-1]) ** 2 / (size - below)
    between[ordered[1:] == ordered[:-1]] = -np.inf
    upper[order[int(between.argmax()) + 1 :]] = True
    return upper


def grow(operators: Sequence[tuple[str, Floats]], predicted: Floats, rows: Rows, *, smallest: int) -> Region:
    """The tree over `rows`: one level for each key operator, the largest share first.

    operators  (name, (N,) the value of each configuration by this operator's curve), one for each level
    predicted  (N,) the share-weighted value by all operators; of two clusters, the one with the larger mean goes
               left, so that the weights decide between operators that disagree
    smallest   a region of fewer configurations than twice this is not split
    """
    return _grown(operators, predicted, rows, (), depth=0, smallest=smallest)


def _grown(
    operators: Sequence[tuple[str, Floats]],
    predicted: Floats,
    rows: Rows,
    path: tuple[tuple[str, bool], ...],
    *,
    depth: int,
    smallest: int,
) -> Region:
    prior = float(predicted[rows].max())
    for level in range(depth, len(operators)):
        if len(rows) < 2 * smallest:
            break
        name, values = operators[level]
        upper = two_means(values[rows])
        if not upper.any():
            continue  # this operator does not distinguish them, but the next one may
        one, other = rows[upper], rows[~upper]
        good, bad = (one, other) if predicted[one].mean() >= predicted[other].mean() else (other, one)
        return Region(
            rows=rows,
            prior=prior,
            path=path,
            left=_grown(operators, predicted, good, (*path, (name, True)), depth=level + 1, smallest=smallest),
            right=_grown(operators, predicted, bad, (*path, (name, False)), depth=level + 1, smallest=smallest),
        )
    return Region(rows=rows, prior=prior, path=path)


def select(root: Region, tried: Mapping[int, float], is_open: NDArray[np.bool_], explore: float) -> Region | None:
    """The leaf to search in, by UCT; None when no region has anything open.

    tried    row -> measured value as a share of the best known, 0 for a trial that broke a limit or failed
    explore  cp in UCB = v + cp sqrt(2 ln(1 + N) / (1 + n)), N and n the trials in the node and in the child

    v is the best measured value in the subtree, passed up from the trials; before the first, the best predicted one.
    Going left exploits, and wins ties; the second term favours going right, to explore.
    """
    if not is_open[root.rows].any():
        return None
    node = root
    while node.left is not None and node.right is not None:
        children = [child for child in (node.left, node.right) if is_open[child.rows].any()]
        visits = _visits(node, tried)
        scores = [_worth(child, tried) + explore * _exploration(visits, _visits(child, tried)) for child in children]
        node = children[int(np.argmax(scores))]
    return node


def _visits(node: Region, tried: Mapping[int, float]) -> int:
    return sum(int(row) in tried for row in node.rows) if tried else 0


def _worth(node: Region, tried: Mapping[int, float]) -> float:
    return max((tried[int(row)] for row in node.rows if int(row) in tried), default=node.prior)


def _exploration(visits: int, of_child: int) -> float:
    return float(np.sqrt(2 * np.log1p(visits) / (1 + of_child)))
