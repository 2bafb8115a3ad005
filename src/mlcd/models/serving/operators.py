"""An operator's time in every configuration: measured, or interpolated from other shapes, or from other operators."""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from mlcd.known.tables import Known, OperatorCurve, OperatorUse, TargetModel
from mlcd.models.serving.interpolation import Family, Grid, Work
from mlcd.space import Config

Floats = NDArray[np.float64]


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

    seconds    (N,) of a batch
    exact      the share of its time whose shape was itself measured
    like       if it was never measured: the measured operator nearest to it, else ""
    deviation  (K, N) if it was never measured: how measured operators differ from `seconds`, as ln of a factor, each
               row weighted so that deviation' deviation is the covariance of ln seconds; else (0, N)
    """

    operator: str
    seconds: Floats
    exact: float
    like: str
    deviation: Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class OperatorTable:
    """The measured curves, indexed to predict any operator."""

    configs: tuple[Config, ...]
    curves: tuple[OperatorCurve, ...]

    def of(self, target: TargetModel) -> tuple[OperatorSeconds, ...]:
        """The time of each operator of the model, in the order of the graph. Raises ValueError without curves."""
        found: dict[str, list[tuple[OperatorUse, _Call]]] = {}
        for use in target.operators:
            found.setdefault(use.operator, []).append((use, self._one(use)))
        return tuple(_together(name, parts) for name, parts in found.items())

    def _one(self, use: OperatorUse) -> "_Call":
        if use.operator not in self._families:
            return self._unknown(use)
        family = self._families[use.operator]
        if use.shape in family.by_shape:
            return _Call(seconds=family.by_shape[use.shape].seconds, exact=True)
        logs, _ = family.predict(_work(use))
        return _Call(seconds=np.exp2(logs))

    def _unknown(self, use: OperatorUse) -> "_Call":
        """What the measured operators would take for this work: their mean, the nearest weighing most."""
        work = _work(use)
        found = {name: family.predict(work) for name, family in self._families.items()}
        logs = np.log(2.0) * np.array([logs for logs, _ in found.values()])
        weights = np.exp(-np.array([distance for _, distance in found.values()]))
        weights /= weights.sum()
        mean = weights @ logs
        return _Call(
            seconds=np.exp(mean),
            like=list(found)[int(weights.argmax())],
            deviation=np.sqrt(weights)[:, None] * (logs - mean),
        )

    @cached_property
    def _families(self) -> dict[str, Family]:
        if not self.curves:
            raise ValueError("no operator was measured")
        names: dict[str, list[OperatorCurve]] = {}
        for curve in self.curves:
            names.setdefault(curve.operator, []).append(curve)
        grid = Grid.of(self.configs)
        return {name: Family.of(tuple(curves), grid) for name, curves in names.items()}


@dataclass(frozen=True, kw_only=True, eq=False)
class _Call:
    """One call in every configuration; `like` and `deviation` as of OperatorSeconds, None if it was measured."""

    seconds: Floats
    exact: bool = False
    like: str = ""
    deviation: Floats | None = None


def _work(use: OperatorUse) -> Work:
    return Work.of(use.operator, use.shape, use.flops / use.count, use.bytes / use.count)


def _together(name: str, parts: list[tuple[OperatorUse, _Call]]) -> OperatorSeconds:
    weight = sum(use.share for use, _ in parts)
    exact = sum(use.share for use, call in parts if call.exact)
    seconds = np.sum([use.count * call.seconds for use, call in parts], axis=0)
    deviation = np.zeros((0, len(seconds)))
    if parts[0][1].deviation is not None:
        # Its shapes err alike: the parts of the sum move together.
        deviation = np.sum([use.count * call.seconds / seconds * call.deviation for use, call in parts], axis=0)
    return OperatorSeconds(
        operator=name,
        seconds=seconds,
        exact=exact / weight if weight > 0 else float(all(call.exact for _, call in parts)),
        like=parts[0][1].like,
        deviation=deviation,
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
