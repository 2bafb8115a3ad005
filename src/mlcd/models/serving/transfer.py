r"""A Gaussian process over models and configurations together: known models inform the new one.

ln latency of model m in configuration c is the additive model's prediction plus a residual r_m(c):

    r_m(c) = mu(c) + d_m(c),   cov(d_m(c), d_m'(c')) = K_T(m, m') K_C(c, c')

K_T links models by the operators they spend their time on, K_C configurations by how residuals of known models vary
together. The known models are measured everywhere, and for such a product of covariances the prediction for a new model
t is exact in closed form (Bonilla et al., NIPS 2007; "autokrigeability", Wackernagel 2003):

    mean(c) = mu(c) + k_t' K_T^-1 d(c),   cov(c, c') = (1 - k_t' K_T^-1 k_t + 1' spread of mu) K_C(c, c')

K_C = (1 - w) S + w P: S is the known models' covariance, P a smooth covariance of the same size; w and the likeness of
models are those under which each known model is most likely given the others.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from mlcd.known.tables import Known, TargetModel
from mlcd.models.serving.additive import additive_latency, calibrate
from mlcd.models.serving.gaussian import Belief, matern, spread
from mlcd.models.serving.operators import operator_shares

Floats = NDArray[np.float64]

LIKENESS_CANDIDATES = (0.0, 0.3, 0.6, 0.9)
"""Candidate shares of a residual that two models with equal operators have in common."""
OVERLAP_POWER = 4.0
"""The likeness of two models is the overlap of their shares to this power."""
SMOOTHING_CANDIDATES = (0.05, 0.15, 0.3, 0.5, 0.8)
"""Candidates of w."""
DEFAULT_VARIANCES = (0.16, 0.04, 0.0025)
"""Variances of the whole model, along the knobs, and of one configuration, if there are too few known models."""
LEAST_MODELS = 4
"""With fewer known models, DEFAULT_VARIANCES are used instead of theirs."""
MOST_FIT_CONFIGS = 128
"""Likeness and smoothing are chosen on at most this many configurations, evenly spread, for speed."""


def overlap(one: TargetModel, other: TargetModel) -> float:
    """sum over operators of sqrt(share x share'), 1 for equal shares, 0 where no operator is common (Bhattacharyya)."""
    ours, theirs = operator_shares(one), operator_shares(other)
    sizes = max(sum(ours.values()), 1e-12) * max(sum(theirs.values()), 1e-12)
    return float(sum(np.sqrt(share * theirs.get(name, 0.0)) for name, share in ours.items()) / np.sqrt(sizes))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Fit:
    """Fitted to the known models: residuals with gaps filled, their mean, K_T's likeness, K_C."""

    mean: Floats
    deviations: Floats
    likeness: float
    covariance: Floats


def transfer_belief(
    known: Known, target: TargetModel, points: Floats, *, least_models: int = LEAST_MODELS, alike: bool = True
) -> Belief:
    """The belief about ln seconds of a batch of the target before its first trial, in every configuration of `known`.

    points (N, d)  the configurations as numbers, in units of the length scale of a residual
    least_models   with fewer known models, their residuals are ignored
    alike          off: models share only the mean of the residuals
    """
    additive = additive_latency(known, target)
    base, of_unknown = np.log(additive.seconds), additive.deviation.T @ additive.deviation
    fit = _fit(known, _Points(points), least_models, LIKENESS_CANDIDATES if alike else (0.0,))
    if not len(fit.deviations):
        return Belief(mean=base, covariance=fit.covariance + of_unknown)
    models = [model.target for model in known.models]
    among = _likeness([*models, target], fit.likeness)
    inner, to_target = among[:-1, :-1], among[:-1, -1]
    factor = cho_factor(inner)
    weights = cho_solve(factor, to_target)
    ones = np.ones(len(models))
    of_mean = (1.0 - ones @ weights) ** 2 / float(ones @ cho_solve(factor, ones))
    left = max(float(1.0 - to_target @ weights + of_mean), 0.05)
    return Belief(mean=base + fit.mean + weights @ fit.deviations, covariance=left * fit.covariance + of_unknown)


class _Points:
    """An array as a cache key, by identity."""

    __slots__ = ("value",)

    def __init__(self, value: Floats) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Points) and self.value is other.value


@lru_cache(maxsize=8)
def _fit(known: Known, points: _Points, least_models: int, likenesses: tuple[float, ...]) -> _Fit:
    smooth = matern(spread(points.value))
    size = len(smooth)
    whole, along, own = DEFAULT_VARIANCES
    if len(known.models) < least_models:
        covariance = whole + along * smooth + own * np.eye(size)
        return _Fit(mean=np.zeros(size), deviations=np.zeros((0, size)), likeness=0.0, covariance=covariance)
    residuals = _filled(calibrate(known).residuals)
    models = [model.target for model in known.models]
    judged = np.linspace(0, size - 1, min(size, MOST_FIT_CONFIGS)).round().astype(np.intp)
    nearby = smooth[np.ix_(judged, judged)]
    alike = _likeness(models, 1.0) - np.eye(len(models))
    scores = {}
    for likeness in likenesses:
        among = np.eye(len(models)) + likeness * alike
        _, _, deviations = _centred(among, residuals[:, judged])
        for smoothing in SMOOTHING_CANDIDATES:
            scores[likeness, smoothing] = _left_out(among, deviations, nearby, smoothing)
    likeness, smoothing = max(scores, key=lambda tried: scores[tried])
    inverse, mean, deviations = _centred(np.eye(len(models)) + likeness * alike, residuals)
    covariance = _configurations(inverse, deviations, smooth, smoothing)
    return _Fit(mean=mean, deviations=deviations, likeness=likeness, covariance=covariance)


def _centred(among: Floats, residuals: Floats) -> tuple[Floats, Floats, Floats]:
    """(K_T^-1, mu by generalised least squares, residuals minus mu)."""
    inverse = np.asarray(np.linalg.inv(among), dtype=np.float64)
    mean = inverse.sum(axis=0) @ residuals / inverse.sum()
    return inverse, mean, residuals - mean


def _likeness(models: Sequence[TargetModel], likeness: float) -> Floats:
    """K_T: 1 on the diagonal, likeness x overlap^OVERLAP_POWER off it."""
    size = len(models)
    among = np.eye(size)
    for i in range(size):
        for j in range(i):
            among[i, j] = among[j, i] = likeness * overlap(models[i], models[j]) ** OVERLAP_POWER
    return among


def _filled(residuals: Floats) -> Floats:
    """Residuals with gaps, where a model ran out of memory, filled by its own mean and that of the configuration."""
    level = np.nanmean(residuals, axis=1, keepdims=True)
    above = np.where(np.isnan(residuals), 0.0, residuals - level)
    counts = (~np.isnan(residuals)).sum(axis=0)
    usual = above.sum(axis=0) / np.maximum(counts, 1)
    return np.where(np.isnan(residuals), level + usual, residuals)


def _configurations(inverse: Floats, deviations: Floats, smooth: Floats, smoothing: float) -> Floats:
    """K_C = (1 - w) S + w P, S = d' K_T^-1 d / M; P has S's own parts: common to all, along the knobs, alone."""
    count, size = deviations.shape
    seen = deviations.T @ inverse @ deviations / count
    total = float(np.trace(seen)) / size
    common = max(float((seen.sum() - np.trace(seen)) / (size * (size - 1))), 0.0)
    rest = max(total - common, 1e-4)
    regular = common + 0.8 * rest * smooth + 0.2 * rest * np.eye(size)
    return np.asarray((1 - smoothing) * seen + smoothing * regular)


def _left_out(among: Floats, deviations: Floats, smooth: Floats, smoothing: float) -> float:
    """Sum over known models of ln p(its residuals | the others')."""
    total = 0.0
    count, size = deviations.shape
    for at in range(count):
        others = np.arange(count) != at
        inverse = np.asarray(np.linalg.inv(among[np.ix_(others, others)]), dtype=np.float64)
        to_it = among[others, at]
        weights = inverse @ to_it
        left = max(float(1.0 - to_it @ weights), 0.05)
        covariance = left * _configurations(inverse, deviations[others], smooth, smoothing)
        lower = np.linalg.cholesky(covariance + 1e-6 * np.eye(size))
        whitened = np.linalg.solve(lower, deviations[at] - weights @ deviations[others])
        total -= 0.5 * float(whitened @ whitened) + float(np.log(np.diag(lower)).sum())
    return total
