"""An operator's time in every configuration: measured, or estimated from the nearest measured operator."""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from mlcd.known.tables import Known, OperatorCurve, OperatorUse, TargetModel
from mlcd.space import Config

Floats = NDArray[np.float64]

NEIGHBOUR_SHAPES = 3
"""How many measured shapes of an operator predict one that was not measured."""
SIZE_WEIGHT = 0.25
"""Weight of a factor of two in size relative to one in FLOPs per byte: size is corrected for, intensity is not."""
FEWEST_BYTES = 1.0


def key_operators(target: TargetModel, threshold: float = 0.9) -> tuple[str, ...]:
    """The smallest set of operators whose time share exceeds `threshold`, largest first (KOPs; algorithms: 2.2).

    An operator's share is the sum over its shapes. All of them if the shares do not reach the threshold.
    """
    shares = operator_shares(target)
    ranked = sorted(shares, key=lambda name: (-shares[name], name))
    total, chosen = 0.0, []
    for name in ranked:
        if total >= threshold - 1e-9:
            break
        chosen.append(name)
        total += shares[name]
    return tuple(chosen)


def operator_shares(target: TargetModel) -> dict[str, float]:
    """Shares of the running time by operator, in the order of the graph."""
    shares: dict[str, float] = {}
    for use in target.operators:
        shares[use.operator] = shares.get(use.operator, 0.0) + use.share
    return shares


@dataclass(frozen=True, kw_only=True, eq=False)
class OperatorSeconds:
    """The time of one operator of a model in every configuration, all its shapes and calls together.

    seconds  (N,) of a batch
    exact    the share of its time whose shape was itself measured
    like     the operator used in its place if it was never measured, else ""
    """

    operator: str
    seconds: Floats
    exact: float
    like: str


@dataclass(frozen=True, kw_only=True, eq=False)
class OperatorTable:
    """The measured curves, indexed to predict any operator."""

    configs: tuple[Config, ...]
    curves: tuple[OperatorCurve, ...]

    def of(self, target: TargetModel) -> tuple[OperatorSeconds, ...]:
        """The time of each operator of the model, in the order of the graph. Raises ValueError without curves."""
        found: dict[str, list[tuple[OperatorUse, Floats, bool, str]]] = {}
        for use in target.operators:
            found.setdefault(use.operator, []).append((use, *self._one(use)))
        return tuple(self._together(name, parts) for name, parts in found.items())

    def _together(self, name: str, parts: list[tuple[OperatorUse, Floats, bool, str]]) -> OperatorSeconds:
        weight = sum(use.share for use, *_ in parts)
        exact = sum(use.share for use, _, same, _ in parts if same)
        return OperatorSeconds(
            operator=name,
            seconds=np.sum([use.count * seconds for use, seconds, _, _ in parts], axis=0),
            exact=exact / weight if weight > 0 else float(all(same for _, _, same, _ in parts)),
            like=parts[0][3],
        )

    def _one(self, use: OperatorUse) -> tuple[Floats, bool, str]:
        """(seconds of one call, whether this exact shape was measured, the operator used for an unknown one)."""
        like = ""
        if use.operator not in self._by_name:
            like = self._all.curves[int(_distances(use, self._all).argmin())].operator
        measured = self._by_name[like or use.operator]
        if not like and use.shape in measured.by_shape:
            return measured.by_shape[use.shape].seconds, True, like
        distances = _distances(use, measured)
        nearest = np.argsort(distances, kind="stable")[:NEIGHBOUR_SHAPES]
        weights = 1.0 / (0.05 + distances[nearest])
        shifts = _log_work(use.flops / use.count, use.bytes / use.count) - measured.log_work[nearest]
        logs = [self._resized(measured.curves[at], float(shift)) for at, shift in zip(nearest, shifts, strict=True)]
        return np.exp2(weights @ np.stack(logs) / weights.sum()), False, like

    def _resized(self, curve: OperatorCurve, shift: float) -> Floats:
        """(N,) log2 of the curve of an operator 2^shift times as large: this one with batches 2^shift times as large.

        Equal work takes equal time, launches included; between measured batches, and beyond them, along the curve's
        own slope in logarithms, which lies between 0 (all launch) and 1 (all work).
        """
        with np.errstate(divide="ignore"):
            logs = np.log2(curve.seconds)
        if self._grid is not None and np.isfinite(logs).all():
            rows, batches = self._grid
            logs[rows] = _along(batches, logs[rows], batches + shift)
            return logs
        for rows in self._lines:
            batches, line = np.log2(self._batches[rows]), logs[rows]
            measured = np.isfinite(line)
            if measured.any():
                logs[rows] = _along(batches[measured], line[None, measured], batches + shift)[0]
        return logs

    @cached_property
    def _batches(self) -> Floats:
        return np.array([float(config["batch"]) for config in self.configs])

    @cached_property
    def _by_name(self) -> "dict[str, _OperatorCurves]":
        if not self.curves:
            raise ValueError("no operator was measured")
        names: dict[str, list[OperatorCurve]] = {}
        for curve in self.curves:
            names.setdefault(curve.operator, []).append(curve)
        return {name: _OperatorCurves.of(curves) for name, curves in names.items()}

    @cached_property
    def _all(self) -> "_OperatorCurves":
        return _OperatorCurves.of(list(self.curves))

    @cached_property
    def _grid(self) -> tuple[NDArray[np.intp], Floats] | None:
        """((lines, batches) rows, log2 batches) where every line has the same batches; None otherwise."""
        batches = [tuple(self._batches[rows]) for rows in self._lines]
        if len(set(batches)) != 1:
            return None
        return np.stack(self._lines), np.log2(np.array(batches[0]))

    @cached_property
    def _lines(self) -> tuple[NDArray[np.intp], ...]:
        """Rows that differ in the batch alone, by rising batch."""
        lines: dict[tuple[object, ...], list[int]] = {}
        for row, config in enumerate(self.configs):
            lines.setdefault(tuple(v for name, v in config.values if name != "batch"), []).append(row)
        return tuple(
            np.array(sorted(rows, key=lambda row: self._batches[row]), dtype=np.intp) for rows in lines.values()
        )


def operator_seconds(known: Known, target: TargetModel) -> tuple[OperatorSeconds, ...]:
    """The time of each operator of the model in every configuration of `known`. Raises ValueError without curves."""
    return _of(_table(known.configs, known.curves), target)


@lru_cache(maxsize=16)
def _table(configs: tuple[Config, ...], curves: tuple[OperatorCurve, ...]) -> OperatorTable:
    """Cached: shared by all tables that differ only in the models left out."""
    return OperatorTable(configs=configs, curves=curves)


@lru_cache(maxsize=1024)
def _of(table: OperatorTable, target: TargetModel) -> tuple[OperatorSeconds, ...]:
    return table.of(target)


@dataclass(frozen=True, kw_only=True, eq=False)
class _OperatorCurves:
    """The curves of one operator, and what distances to other shapes use: log2 of FLOPs per byte, and of work."""

    curves: tuple[OperatorCurve, ...]
    by_shape: dict[str, OperatorCurve]
    log_intensity: Floats
    log_work: Floats

    @classmethod
    def of(cls, curves: list[OperatorCurve]) -> "_OperatorCurves":
        return cls(
            curves=tuple(curves),
            by_shape={curve.shape: curve for curve in reversed(curves)},
            log_intensity=np.array([_log_intensity(curve.flops, curve.bytes) for curve in curves]),
            log_work=np.array([_log_work(curve.flops, curve.bytes) for curve in curves]),
        )


def _along(at: Floats, lines: Floats, wanted: Floats) -> Floats:
    """(L, W) each of the `lines` (L, B) over `at` (B,), read at `wanted` (W,), extrapolated along the last slope."""
    if len(at) == 1:
        return np.asarray(lines + np.maximum(wanted - at[0], 0.0))
    right = np.clip(np.searchsorted(at, wanted), 1, len(at) - 1)
    slopes = np.diff(lines, axis=1) / np.diff(at)
    slope = slopes[:, right - 1]
    outside = (wanted < at[0]) | (wanted > at[-1])
    slope = np.where(outside, np.clip(slope, 0.0, 1.0), slope)
    # Beyond the last point, extrapolate from it; before the first, from the first.
    start = np.where(wanted > at[-1], right, right - 1)
    return np.asarray(lines[:, start] + slope * (wanted - at[start]))


def _distances(use: OperatorUse, measured: _OperatorCurves) -> Floats:
    """(curves,) how far a shape is from each that was measured: by FLOPs per byte, then by size, in factors of two."""
    flops, moved = use.flops / use.count, use.bytes / use.count
    size = np.abs(_log_work(flops, moved) - measured.log_work)
    return np.asarray(np.abs(_log_intensity(flops, moved) - measured.log_intensity) + SIZE_WEIGHT * size)


def _log_intensity(flops: float, moved: float) -> float:
    return math.log2(max(flops, 1.0) / max(moved, FEWEST_BYTES))


def _log_work(flops: float, moved: float) -> float:
    """log2 of the work of one call for one item: FLOPs, or bytes if it only moves data."""
    return math.log2(max(flops, moved, FEWEST_BYTES))
