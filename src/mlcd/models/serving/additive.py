"""A model's latency as the weighted sum of its operators' latencies, with weights fitted to known models."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.optimize import nnls

from mlcd.known.tables import Known, KnownModel, TargetModel
from mlcd.models.serving.operators import OperatorSeconds, operator_seconds

Floats = NDArray[np.float64]

COMMON_WEIGHT_MODELS = 0.5
"""Strength of the prior that an operator's weight is the common one, in models that consist of that operator alone."""


@dataclass(frozen=True, kw_only=True, eq=False)
class AdditiveLatency:
    """Predicted seconds of a batch in every configuration, and each operator's part in them.

    seconds    (N,)
    parts      operator -> (N,); they add up to `seconds`
    deviation  (K, N) the error of ln seconds by operators that were never measured: deviation' deviation is its
               covariance; K is 0 if all were
    """

    seconds: Floats
    parts: Mapping[str, Floats]
    deviation: Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class Calibration:
    """The sum calibrated on the known models.

    weights    operator -> the factor by which its own measurement is multiplied
    common     the factor of operators that no known model uses
    residuals  (M, N) ln(measured / predicted) of each known model, predicted as if it had never been measured: by
               weights that did not see it, and without the operators measured for it; nan where it failed
    """

    weights: Mapping[str, float]
    common: float
    residuals: Floats

    def weight(self, operator: str) -> float:
        """The weight of any operator."""
        return self.weights.get(operator, self.common)


def additive_latency(known: Known, target: TargetModel) -> AdditiveLatency:
    """seconds(c) = sum over operators k of w_k x sum over shapes of calls x seconds_k(c); w by the known models."""
    weight = calibrate(known).weight
    found = operator_seconds(known, target)
    parts = {of.operator: weight(of.operator) * of.seconds for of in found}
    seconds = np.sum(list(parts.values()), axis=0)
    return AdditiveLatency(seconds=seconds, parts=parts, deviation=deviation_of_sum(parts, found))


def deviation_of_sum(parts: Mapping[str, Floats], operators: Iterable[OperatorSeconds]) -> Floats:
    """(K, N) the deviations of ln(sum of the parts) by those of its operators; 0 where memory ran out."""
    total = np.sum(list(parts.values()), axis=0)
    share = {name: np.where(np.isfinite(total), part, 0.0) / total for name, part in parts.items()}
    return np.vstack([share[of.operator] * of.deviation for of in operators])


@lru_cache(maxsize=64)
def calibrate(known: Known) -> Calibration:
    """Weights by non-negative least squares of relative errors, regularised towards a common g, and their residuals.

    g = argmin_g  sum_(m,c) (g sum_k s_mk(c) / latency_m(c) - 1)^2 / N
    min_w>=0      sum_(m,c) (sum_k w_k s_mk(c) / latency_m(c) - 1)^2 / N  +  COMMON_WEIGHT_MODELS sum_k (w_k - g)^2
    """
    names = sorted({use.operator for model in known.models for use in model.target.operators})
    grams, sides, tables = [], [], []
    for model in known.models:
        table = _table(known, model, names)
        with np.errstate(invalid="ignore"):  # out-of-memory cells are infinite on both sides, and are ignored
            relative = table / model.latency_seconds
        rows = np.isfinite(relative).all(axis=0) & np.isfinite(model.latency_seconds)
        kept = relative[:, rows]
        grams.append(kept @ kept.T / max(rows.sum(), 1))
        sides.append(kept.sum(axis=1) / max(rows.sum(), 1))
        tables.append(_table(known.without(model.name), model, names))
    gram, side = np.sum(grams, axis=0), np.sum(sides, axis=0)
    residuals = [
        _residual(model, table, _solve(gram - own, side - of_own))
        for model, table, own, of_own in zip(known.models, tables, grams, sides, strict=True)
    ]
    weights = dict(zip(names, (float(w) for w in _solve(gram, side)), strict=True))
    return Calibration(
        weights=weights,
        common=_common(gram, side),
        residuals=np.array(residuals).reshape(len(known.models), len(known.configs)),
    )


def _table(known: Known, model: KnownModel, names: list[str]) -> Floats:
    """(operators, N) seconds."""
    table = np.zeros((len(names), len(known.configs)))
    for of in operator_seconds(known, model.target):
        table[names.index(of.operator)] = of.seconds
    return table


def _solve(gram: Floats, side: Floats) -> Floats:
    size, common = len(side), _common(gram, side)
    lower = np.linalg.cholesky(gram + COMMON_WEIGHT_MODELS * np.eye(size))
    return np.asarray(nnls(lower.T, solve_triangular(lower, side + COMMON_WEIGHT_MODELS * common, lower=True))[0])


def _common(gram: Floats, side: Floats) -> float:
    total = float(np.sum(gram))
    return float(np.sum(side)) / total if total > 0 else 1.0


def _residual(model: KnownModel, table: Floats, weights: Floats) -> Floats:
    predicted = weights @ np.where(np.isfinite(table), table, np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        residual = np.log(model.latency_seconds / predicted)
    return np.where(np.isfinite(residual), residual, np.nan)
