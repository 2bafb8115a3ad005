"""What an operator takes in every configuration: measured, or by the nearest operator that was."""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from mlcd.known.tables import Known, OperatorCurve, OperatorUse, Target
from mlcd.space import Config

Floats = NDArray[np.float64]

NEIGHBOURS = 3
"""How many measured shapes of an operator tell of one that was not measured."""
SIZE_WEIGHT = 0.25
"""What a factor of two in size counts beside one in FLOPs a byte: size is corrected for, intensity is not."""
FEWEST_BYTES = 1.0


def key_operators(target: Target, threshold: float = 0.9) -> tuple[str, ...]:
    """The smallest set of operators whose time share passes `threshold`, largest first (KOPs; algorithms: 2.2).

    An operator's share is the sum over its shapes. All of them where the shares do not add up to the threshold.
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


def operator_shares(target: Target) -> dict[str, float]:
    """Of the running time, by operator, in the order of the graph."""
    shares: dict[str, float] = {}
    for use in target.operators:
        shares[use.operator] = shares.get(use.operator, 0.0) + use.share
    return shares


@dataclass(frozen=True, kw_only=True, eq=False)
class OperatorSeconds:
    """What one operator of a model takes in every configuration, all its shapes and calls together.

    seconds  (N,) of a batch
    exact    the share of its time whose shape was itself measured
    like     where the operator was never measured: the one that stands for it, else ""
    """

    operator: str
    seconds: Floats
    exact: float
    like: str


@dataclass(frozen=True, kw_only=True, eq=False)
class OperatorTable:
    """The measured curves, ready to be asked about any operator."""

    configs: tuple[Config, ...]
    curves: tuple[OperatorCurve, ...]

    def of(self, target: Target) -> tuple[OperatorSeconds, ...]:
        """What each operator of the model takes, in the order of the graph. Raises ValueError without curves."""
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
        """(seconds of one call, whether this very shape was measured, the operator that stands for an unknown one)."""
        curves = self._by_name.get(use.operator)
        like = ""
        if curves is None:
            curves = self.curves
            nearest = min(curves, key=lambda curve: _apart(use, curve))
            like, curves = nearest.operator, self._by_name[nearest.operator]
        for curve in curves:
            if curve.shape == use.shape and not like:
                return curve.seconds, True, like
        ranked = sorted(curves, key=lambda curve: _apart(use, curve))[:NEIGHBOURS]
        weights = np.array([1.0 / (0.05 + _apart(use, curve)) for curve in ranked])
        logs = np.stack([np.log(self._resized(curve, _work(use) / _curve_work(curve))) for curve in ranked])
        return np.exp(weights @ logs / weights.sum()), False, like

    def _resized(self, curve: OperatorCurve, factor: float) -> Floats:
        """(N,) the curve of an operator `factor` times as large: as this one with batches `factor` times as large.

        Equal work takes equal time, launches included; between measured batches, and beyond them, along the curve's
        own slope in logarithms, which lies between 0 (all launch) and 1 (all work).
        """
        seconds = np.array(curve.seconds)
        shift = np.log2(factor)
        for rows in self._lines:
            batches, line = np.log2(self._batches[rows]), curve.seconds[rows]
            measured = np.isfinite(line) & (line > 0)
            if not measured.any():
                continue
            seconds[rows] = np.exp2(_along(batches[measured], np.log2(line[measured]), batches + shift))
        return seconds

    @cached_property
    def _batches(self) -> Floats:
        return np.array([float(config["batch"]) for config in self.configs])

    @cached_property
    def _by_name(self) -> dict[str, tuple[OperatorCurve, ...]]:
        if not self.curves:
            raise ValueError("no operator was measured")
        names: dict[str, list[OperatorCurve]] = {}
        for curve in self.curves:
            names.setdefault(curve.operator, []).append(curve)
        return {name: tuple(curves) for name, curves in names.items()}

    @cached_property
    def _lines(self) -> tuple[NDArray[np.intp], ...]:
        """Rows that differ in the batch alone, by rising batch."""
        lines: dict[tuple[object, ...], list[int]] = {}
        for row, config in enumerate(self.configs):
            lines.setdefault(tuple(v for name, v in config.values if name != "batch"), []).append(row)
        return tuple(
            np.array(sorted(rows, key=lambda row: self._batches[row]), dtype=np.intp) for rows in lines.values()
        )


def operator_seconds(known: Known, target: Target) -> tuple[OperatorSeconds, ...]:
    """What each operator of the model takes in every configuration of `known`. Raises ValueError without curves."""
    return _of(_table(known.configs, known.curves), target)


@lru_cache(maxsize=16)
def _table(configs: tuple[Config, ...], curves: tuple[OperatorCurve, ...]) -> OperatorTable:
    """One for all sets of tables that differ only in the models left out."""
    return OperatorTable(configs=configs, curves=curves)


@lru_cache(maxsize=1024)
def _of(table: OperatorTable, target: Target) -> tuple[OperatorSeconds, ...]:
    return table.of(target)


def _along(at: Floats, values: Floats, wanted: Floats) -> Floats:
    inside = np.interp(wanted, at, values)
    if len(at) == 1:
        return np.asarray(inside + np.maximum(wanted - at[0], 0.0))
    last = np.clip((values[-1] - values[-2]) / (at[-1] - at[-2]), 0.0, 1.0)
    first = np.clip((values[1] - values[0]) / (at[1] - at[0]), 0.0, 1.0)
    return np.asarray(inside + last * np.maximum(wanted - at[-1], 0.0) + first * np.minimum(wanted - at[0], 0.0))


def _apart(use: OperatorUse, curve: OperatorCurve) -> float:
    """By FLOPs a byte, then by size, in factors of two."""
    flops, moved = use.flops / use.count, use.bytes / use.count
    intensity = _log_ratio(flops, moved) - _log_ratio(curve.flops, curve.bytes)
    return abs(intensity) + SIZE_WEIGHT * float(abs(np.log2(_work(use) / _curve_work(curve))))


def _log_ratio(flops: float, moved: float) -> float:
    return float(np.log2(max(flops, 1.0) / max(moved, FEWEST_BYTES)))


def _work(use: OperatorUse) -> float:
    """Of one call, for one item: FLOPs, or bytes where it only moves."""
    return max(use.flops / use.count, use.bytes / use.count, FEWEST_BYTES)


def _curve_work(curve: OperatorCurve) -> float:
    return max(curve.flops, curve.bytes, FEWEST_BYTES)
