"""The curve of an operator that was not measured, from curves of the same operator with other shapes.

Each curve is log2 seconds over lines (configurations that differ in the batch alone) and batches. A neighbour is first
resized: an operator of 2^s times the work at batch b is this one at batch 2^s b, since equal work takes equal time,
launches included. What remains depends on the roofline features, and is interpolated by ordinary kriging (a Gaussian
process with an unknown mean, so that the weights of the neighbours sum to 1).
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from mlcd.graphs.grammar import weight_bytes
from mlcd.known.tables import OperatorCurve
from mlcd.space import Config

Floats = NDArray[np.float64]

NEIGHBOUR_SHAPES = 8
"""How many measured shapes of an operator predict one that was not measured. Chosen on odd targets."""
LENGTHS = np.array([2.0, 8.0, 8.0])
"""Factors of two over which curves resemble each other, for each feature. Chosen on odd targets."""
NUGGET = 0.1
"""Variance of a curve's own deviation, as a share of the variance over features. Chosen on odd targets."""
FEWEST_BYTES = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One call for one item.

    flops, moved  FLOPs, and bytes of activations read and written
    weights       bytes of weights, read once for a whole batch
    """

    flops: float
    moved: float
    weights: float

    @classmethod
    def of(cls, operator: str, shape: str, flops: float, total_bytes: float) -> "Work":
        """The work of a call with `total_bytes`, weights included."""
        weights = min(weight_bytes(operator, shape), max(total_bytes - FEWEST_BYTES, 0.0))
        return cls(flops=flops, moved=max(total_bytes - weights, FEWEST_BYTES), weights=weights)

    @property
    def log_size(self) -> float:
        """log2 of the FLOPs, or of the bytes if it mostly moves data."""
        return float(np.log2(max(self.flops, self.moved)))

    @property
    def features(self) -> Floats:
        """(3,) log2 of arithmetic intensity, weights per byte moved and size, in units of LENGTHS."""
        intensity, weights = max(self.flops, 1.0) / self.moved, max(self.weights, 1.0) / self.moved
        return np.asarray(np.array([np.log2(intensity), np.log2(weights), self.log_size]) / LENGTHS)


@dataclass(frozen=True, kw_only=True, eq=False)
class Grid:
    """Configurations as lines x batches.

    line, at  (N,) the line and the place in `batches` of each configuration
    batches   (B,) log2, rising
    """

    line: NDArray[np.intp]
    at: NDArray[np.intp]
    batches: Floats

    @classmethod
    def of(cls, configs: tuple[Config, ...]) -> "Grid":
        """The grid of these configurations; built once for each."""
        return _grid(configs)

    def rows(self, values: Floats) -> Floats:
        """(N,) of (lines, batches)."""
        return np.asarray(values[self.line, self.at])

    def logs(self, curve: OperatorCurve) -> Floats:
        """(lines, batches) log2 seconds; cells that were not measured, or ran out of memory, follow their line."""
        return _logs(self, curve)


@lru_cache(maxsize=16)
def _grid(configs: tuple[Config, ...]) -> Grid:
    lines: dict[tuple[object, ...], int] = {}
    keys = [tuple(value for name, value in config.values if name != "batch") for config in configs]
    line = np.array([lines.setdefault(key, len(lines)) for key in keys], dtype=np.intp)
    own = np.array([float(config["batch"]) for config in configs])
    batches, at = np.unique(own, return_inverse=True)
    return Grid(line=line, at=at.astype(np.intp), batches=np.log2(batches))


@lru_cache(maxsize=4096)
def _logs(grid: Grid, curve: OperatorCurve) -> Floats:
    found = np.full((int(grid.line.max()) + 1, len(grid.batches)), np.nan)
    with np.errstate(divide="ignore"):
        logs = np.log2(curve.seconds)
    found[grid.line, grid.at] = np.where(np.isfinite(logs), logs, np.nan)
    for line in found:
        measured = np.isfinite(line)
        if measured.any() and not measured.all():
            line[:] = resized(grid.batches[measured], line[None, None, measured], grid.batches[None])[0, 0]
    usual = np.nanmean(found) if np.isfinite(found).any() else 0.0
    return np.where(np.isfinite(found), found, usual)


@dataclass(frozen=True, kw_only=True, eq=False)
class Family:
    """The measured curves of one operator.

    features  (n, 3) of each
    logs      (n, lines, batches)
    sizes     (n,) log_size of each
    """

    grid: Grid
    by_shape: dict[str, OperatorCurve]
    features: Floats
    logs: Floats
    sizes: Floats

    @classmethod
    def of(cls, curves: tuple[OperatorCurve, ...], grid: Grid) -> "Family":
        """The family of these curves; built once for each set of them."""
        return _family(curves, grid)

    def predict(self, work: Work) -> tuple[Floats, float]:
        """((N,) log2 seconds of such a call, the distance to the nearest measured shape)."""
        return _predicted(self, work)

    def _predict(self, work: Work) -> tuple[Floats, float]:
        distances = np.sqrt(((self.features - work.features) ** 2).sum(axis=1))
        near = np.argsort(distances, kind="stable")[:NEIGHBOUR_SHAPES]
        apart = np.sqrt(((self.features[near, None, :] - self.features[None, near, :]) ** 2).sum(axis=2))
        size = len(near)
        among = np.ones((size + 1, size + 1))
        among[:size, :size] = _correlation(apart) + NUGGET * np.eye(size)
        among[size, size] = 0.0
        weights = np.linalg.solve(among, np.append(_correlation(distances[near]), 1.0))[:size]
        wanted = self.grid.batches + (work.log_size - self.sizes[near])[:, None]
        moved = resized(self.grid.batches, self.logs[near], wanted)
        return self.grid.rows(np.tensordot(weights, moved, axes=1)), float(distances[near[0]])


@lru_cache(maxsize=1024)
def _family(curves: tuple[OperatorCurve, ...], grid: Grid) -> Family:
    work = [Work.of(curve.operator, curve.shape, curve.flops, curve.bytes) for curve in curves]
    return Family(
        grid=grid,
        by_shape={curve.shape: curve for curve in reversed(curves)},
        features=np.array([one.features for one in work]),
        logs=np.array([grid.logs(curve) for curve in curves]),
        sizes=np.array([one.log_size for one in work]),
    )


@lru_cache(maxsize=16384)
def _predicted(family: Family, work: Work) -> tuple[Floats, float]:
    return family._predict(work)


def _correlation(distances: Floats) -> Floats:
    """Matern 3/2."""
    root = np.sqrt(3.0) * distances
    return np.asarray((1 + root) * np.exp(-root))


def resized(at: Floats, curves: Floats, wanted: Floats) -> Floats:
    """(n, L, W) the lines of n `curves` (n, L, B) over `at` (B,), read at `wanted` (n, W).

    Beyond the ends, along the last slope, which lies between 0 (all launch) and 1 (all work).
    """
    if len(at) == 1:
        return np.asarray(curves + np.maximum(wanted - at[0], 0.0)[:, None, :])
    right = np.minimum(np.maximum(np.searchsorted(at, wanted), 1), len(at) - 1)
    above = wanted > at[-1]
    # Beyond the last point, extrapolate from it; before the first, from the first.
    start = np.where(above, right, right - 1)
    low = np.take_along_axis(curves, (right - 1)[:, None, :], axis=2)
    high = np.take_along_axis(curves, right[:, None, :], axis=2)
    slope = (high - low) / (at[right] - at[right - 1])[:, None, :]
    outside = (above | (wanted < at[0]))[:, None, :]
    slope = np.where(outside, np.minimum(np.maximum(slope, 0.0), 1.0), slope)
    return np.asarray(np.where(above[:, None, :], high, low) + slope * (wanted - at[start])[:, None, :])
