"""Which configurations are redundant: they differ only in knobs that hardly matter to the key operators."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mlcd.known.tables import Known
from mlcd.models.serving.curves import Shape, resource_curves

Floats = NDArray[np.float64]

LEAST_LOADING = 0.1
"""A knob belongs to a component in which it has at least this share of the squared loadings."""

MEMORY_FAILURE_SHARE = 0.02
"""A knob affects memory if the share of known models that run out of it differs by more than this over its values."""


def knobs_that_matter(known: Known, operators: Sequence[tuple[str, float, Floats]], cutoff: float = 0.95) -> list[str]:
    """The knobs in the principal components that cover `cutoff` of the variance, in the configurations' order.

    operators  (name, share, seconds in every configuration) of each key operator
    A row is a key operator in a configuration, weighted by its share; a column is a knob; the entry is the knob's main
    effect on the operator's log seconds per item (its resource curve). Components are added from the largest on; a knob
    outside all of them is dropped (algorithms: 2.2), and so is one whose curve is a plane for every key operator. A
    knob that makes known models run out of memory stays: no operator's time shows that.
    """
    names = [name for name, _ in known.configs[0].values]
    bent: set[str] = set()
    columns = {name: np.zeros((len(operators), len(known.configs))) for name in names}
    for at, (operator, share, seconds) in enumerate(operators):
        for curve in resource_curves(known, operator, seconds):
            effect = dict(zip(curve.values, curve.log_seconds, strict=True))
            middle = float(np.mean(curve.log_seconds))
            bent |= {curve.knob} if curve.shape is not Shape.PLANE else set()
            columns[curve.knob][at] = [np.sqrt(share) * (effect[c[curve.knob]] - middle) for c in known.configs]
    table = np.stack([columns[name].ravel() for name in names], axis=1)
    table -= table.mean(axis=0)
    variances, directions = np.linalg.eigh(table.T @ table)
    order = np.argsort(-variances)
    covered = np.cumsum(variances[order]) / max(float(variances.sum()), 1e-300)
    taken = order[: int(np.searchsorted(covered, min(cutoff, 1.0) - 1e-12)) + 1]
    loadings = (directions[:, taken] ** 2).max(axis=1)
    needed = _knobs_of_memory(known, names)
    return [
        name
        for name, loading in zip(names, loadings, strict=True)
        if (loading >= LEAST_LOADING and name in bent) or name in needed
    ]


def _knobs_of_memory(known: Known, names: Sequence[str]) -> set[str]:
    """The knobs whose value changes how often known models run out of memory."""
    if not known.models:
        return set()
    failed = np.mean([np.isinf(model.latency_seconds) for model in known.models], axis=0)
    found = set()
    for name in names:
        values = np.array([str(config[name]) for config in known.configs])
        often = [float(failed[values == value].mean()) for value in np.unique(values)]
        if max(often) - min(often) > MEMORY_FAILURE_SHARE:
            found.add(name)
    return found


def redundant_rows(known: Known, knobs: Sequence[str], predicted: Floats) -> NDArray[np.bool_]:
    """(N,) True for every configuration whose `predicted` value another one with the same values of `knobs` beats.

    Of equal ones the first is kept. Of each combination of `knobs` exactly one configuration is kept.
    """
    best: dict[tuple[object, ...], int] = {}
    for row, config in enumerate(known.configs):
        key = tuple(config[name] for name in knobs)
        if key not in best or predicted[row] > predicted[best[key]]:
            best[key] = row
    mask = np.ones(len(known.configs), dtype=bool)
    mask[list(best.values())] = False
    return mask
