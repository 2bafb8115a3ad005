r"""The one Gaussian process behind every strategy: log speed over a finite space, hyperparameters by MAP.

Covariance of two configurations (algorithms: 1.3), with M the Matern 5/2 correlation:

    k = B V B' + (s1^2 M(features / lf) + s2^2 [same choices]) M(counts / lc) + s3^2 M(totals / lt) + s4^2 [same]

The first term is a linear trend whose coefficients have Gaussian priors and are integrated out exactly: a constant,
the counts and their squares (speed rises with the nodes and bends down), the price of a node, and the features.
The second lets similar types inform each other and gives each type its own curve; the third is for what depends on the
whole cluster, such as whether the data fit into its memory; the last is specific to one configuration and informs no
other: a rack boundary, a batch that does not divide. Measurements add their known error. Hyperparameters
theta = (ln s1, ln s2, ln lc.., ln lf.., ln s3, ln lt.., ln s4) maximise likelihood times log-normal priors, by
L-BFGS-B with analytic gradients, from the prior's mode and from a warm start.

Where the space has settings (knobs of the program, not of the machine), they add

    (s5^2 + s6^2 [same machine] M(counts / lc)) M(settings / ls)

to the covariance, and ln s5, ln s6, ln ls to theta: an effect of each combination of settings that all machines share,
and one that is a machine's own. Their additive effects are columns of the trend.

Everything here is a pure function of its arguments; nothing is cached between calls.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dtrsm
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs
from scipy.optimize import minimize

from mlcd.space import Encoding

Floats = NDArray[np.float64]
SQRT5 = float(np.sqrt(5.0))


@dataclass(frozen=True, kw_only=True)
class HyperPrior:
    """Log-normal priors of the hyperparameters: medians and log-deviations.

    Lengths are in doublings (counts) and in standard deviations over the space (features).
    """

    shared: tuple[float, float] = (0.4, 0.6)
    own: tuple[float, float] = (0.2, 0.6)
    count_length: tuple[float, float] = (4.0, 0.5)
    feature_length: tuple[float, float] = (2.5, 0.6)
    whole: tuple[float, float] = (0.6, 0.4)
    total_length: tuple[float, float] = (1.0, 0.5)
    quirk: tuple[float, float] = (0.08, 0.5)
    setting: tuple[float, float] = (0.15, 0.5)
    own_setting: tuple[float, float] = (0.08, 0.5)
    setting_length: tuple[float, float] = (2.5, 0.5)


@dataclass(frozen=True, kw_only=True)
class Trend:
    """Columns of the linear trend with the prior of their coefficients. Empty columns: no trend, a zero mean."""

    columns: Floats
    means: Floats
    deviations: Floats


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The space as the process sees it; N rows, U distinct choices, W distinct counts, Q distinct totals.

    identity (N,) in 0..U-1; features (U, d); level (N,) in 0..W-1; counts (W, c); whole (N,) in 0..Q-1;
    totals (Q, t), t = 0 where the space has none; trend columns (N, p);
    setting (N,) in 0..V-1, settings (V, s), s = 0 where there are none
    """

    identity: NDArray[np.intp]
    features: Floats
    level: NDArray[np.intp]
    counts: Floats
    whole: NDArray[np.intp]
    totals: Floats
    trend: Trend
    setting: NDArray[np.intp]
    settings: Floats

    @classmethod
    def of(cls, encoding: Encoding, trend: Trend) -> "Inputs":
        """From a space's rows."""
        identity, features, counts = encoding.machine, encoding.features, encoding.counts
        # Of one type, totals add nothing to the counts.
        totals = encoding.totals if identity.any() else encoding.totals[:, :0]
        first = np.unique(identity, return_index=True)[1]
        distinct, level = np.unique(counts, axis=0, return_inverse=True)
        sums, whole = np.unique(totals, axis=0, return_inverse=True)
        combined, setting = np.unique(encoding.settings, axis=0, return_inverse=True)
        return cls(
            identity=identity,
            features=features[first],
            level=level.reshape(-1).astype(np.intp),
            counts=distinct,
            whole=whole.reshape(-1).astype(np.intp),
            totals=sums,
            trend=trend,
            setting=setting.reshape(-1).astype(np.intp),
            settings=combined,
        )

    @cached_property
    def feature_squares(self) -> Floats:
        """(d, U, U) squared differences, so that a kernel is a few scaled sums."""
        return _squares(self.features)

    @cached_property
    def count_squares(self) -> Floats:
        """(c, W, W) likewise."""
        return _squares(self.counts)


@dataclass(frozen=True, kw_only=True)
class Data:
    """Observations: rows of the inputs, log speeds, and the known standard error of each."""

    rows: NDArray[np.intp]
    values: Floats
    errors: Floats


@dataclass(frozen=True, kw_only=True)
class Posterior:
    """The process after the data. `theta` warm-starts the next fit; `log_likelihood` compares different inputs."""

    inputs: Inputs
    data: Data
    theta: Floats
    log_posterior: float
    log_likelihood: float
    _lower: Floats
    _weights: Floats

    def predict(self) -> tuple[Floats, Floats]:
        """(mean, variance) of the true log speed at every row of the inputs."""
        inputs, rows = self.inputs, self.data.rows
        parts = _split(inputs, self.theta)
        mean = inputs.trend.columns @ inputs.trend.means
        cross = _kernel(inputs, parts, rows)
        mean = mean + cross @ self._weights
        prior = _prior_variance(inputs, parts)
        solved = dtrsm(1.0, self._lower, cross.T, lower=1)
        return mean, np.maximum(prior - (solved**2).sum(axis=0), 1e-12)

    def covariance(self, rows: NDArray[np.intp]) -> Floats:
        """Posterior covariance among some rows: (len, len)."""
        parts = _split(self.inputs, self.theta)
        inner = _kernel(self.inputs, parts, rows)[rows]
        solved = dtrsm(1.0, self._lower, _kernel(self.inputs, parts, self.data.rows)[rows].T, lower=1)
        return np.asarray(inner - solved.T @ solved)


def fit(inputs: Inputs, data: Data, *, prior: HyperPrior | None = None, start: Floats | None = None) -> Posterior:
    """The posterior at the hyperparameters of highest posterior density, from the prior's mode and from `start`."""
    objective = _Objective(inputs, data, prior or HyperPrior())
    starts = [objective.centre] if start is None else [start, objective.centre]
    best_theta, best_value = objective.centre, np.inf
    for first in starts:
        found = minimize(
            objective,
            first,
            jac=True,
            method="L-BFGS-B",
            bounds=objective.bounds,
            options={"maxiter": 40, "ftol": 1e-6},
        )
        if found.fun < best_value:
            best_theta, best_value = np.asarray(found.x), float(found.fun)
    return objective.posterior(best_theta)


def prior_moments(inputs: Inputs, theta: Floats) -> tuple[Floats, Floats]:
    """(mean, variance) of the log speed at every row before any data."""
    return inputs.trend.columns @ inputs.trend.means, _prior_variance(inputs, _split(inputs, theta))


def at(inputs: Inputs, data: Data, theta: Floats) -> Posterior:
    """The posterior at given hyperparameters, not fitted."""
    return _Objective(inputs, data, HyperPrior()).posterior(theta)


@dataclass(frozen=True, slots=True)
class _Parts:
    shared: float
    own: float
    count_lengths: Floats
    feature_lengths: Floats
    whole: float
    total_lengths: Floats
    quirk: float
    setting: float
    own_setting: float
    setting_lengths: Floats


def _split(inputs: Inputs, theta: Floats) -> _Parts:
    """The hyperparameters by name; without totals the third term is switched off, without settings their term."""
    scales = np.exp(theta)
    features = 2 + inputs.counts.shape[1]
    whole = features + inputs.features.shape[1]
    quirk = whole + 1 + inputs.totals.shape[1]
    has_settings = inputs.settings.shape[1] > 0
    return _Parts(
        shared=float(scales[0]),
        own=float(scales[1]),
        count_lengths=scales[2:features],
        feature_lengths=scales[features:whole],
        whole=float(scales[whole]) if inputs.totals.shape[1] else 0.0,
        total_lengths=scales[whole + 1 : quirk],
        quirk=float(scales[quirk]),
        setting=float(scales[quirk + 1]) if has_settings else 0.0,
        own_setting=float(scales[quirk + 2]) if has_settings else 0.0,
        setting_lengths=scales[quirk + 3 :],
    )


def _prior_variance(inputs: Inputs, parts: _Parts) -> Floats:
    """(N,) the diagonal of the prior covariance."""
    amplitudes = parts.shared**2 + parts.own**2 + parts.whole**2 + parts.quirk**2
    amplitudes += parts.setting**2 + parts.own_setting**2
    return np.asarray(amplitudes + ((inputs.trend.columns * inputs.trend.deviations) ** 2).sum(axis=1))


def _squares(points: Floats) -> Floats:
    return np.asarray((points.T[:, :, None] - points.T[:, None, :]) ** 2)


def _contract(squares: Floats, weights: Floats) -> Floats:
    """(k,) the sum over both points of squares (k, a, b) times weights (a, b)."""
    return np.asarray(squares.reshape(len(squares), weights.size) @ weights.reshape(-1))


def _matern(squares: Floats, lengths: Floats) -> tuple[Floats, Floats]:
    """Matern 5/2 of scaled squared differences (k, a, b), and the factor g with dM/d ln l_j = g x squares_j / l_j^2."""
    if len(lengths) == 0:
        ones = np.ones(squares.shape[1:])
        return ones, np.zeros_like(ones)
    distance = SQRT5 * np.sqrt((1 / lengths**2 @ squares.reshape(len(lengths), -1)).reshape(squares.shape[1:]))
    decay = np.exp(-distance)
    slope = (5.0 / 3.0) * (1 + distance) * decay
    return (1 + distance + distance**2 / 3) * decay, slope


def _matern_between(points: Floats, others: Floats, lengths: Floats) -> Floats:
    """(a, b) Matern 5/2 of points (a, k) and others (b, k), without an array of (k, a, b): a may be 100,000."""
    squares = np.zeros((len(points), len(others)))
    for column, length in enumerate(lengths):
        squares += ((points[:, column, None] - others[None, :, column]) / length) ** 2
    distance = SQRT5 * np.sqrt(squares)
    return np.asarray((1 + distance + distance**2 / 3) * np.exp(-distance))


def _kernel(inputs: Inputs, parts: _Parts, rows: NDArray[np.intp]) -> Floats:
    """(N, len(rows)) prior covariance, with the trend, without measurement errors."""
    identity, level = inputs.identity[rows], inputs.level[rows]
    by_features = _matern(inputs.feature_squares[:, :, identity], parts.feature_lengths)[0]
    by_counts = _matern(inputs.count_squares[:, :, level], parts.count_lengths)[0]
    same = (np.arange(len(inputs.features))[:, None] == identity[None, :]).astype(float)
    amplitude = parts.shared**2 * by_features + parts.own**2 * same
    scaled = inputs.trend.columns * inputs.trend.deviations
    covariance = amplitude[inputs.identity] * by_counts[inputs.level] + scaled @ scaled[rows].T
    if parts.whole:
        squares = (inputs.totals.T[:, :, None] - inputs.totals[inputs.whole[rows]].T[:, None, :]) ** 2
        by_totals = _matern(squares, parts.total_lengths)[0]
        covariance += (parts.whole**2 * by_totals)[inputs.whole]
    if parts.setting:
        by_settings = _matern_between(inputs.settings, inputs.settings[inputs.setting[rows]], parts.setting_lengths)
        of_machine = same[inputs.identity] * by_counts[inputs.level]
        covariance += by_settings[inputs.setting] * (parts.setting**2 + parts.own_setting**2 * of_machine)
    for column, row in enumerate(rows):
        covariance[row, column] += parts.quirk**2
    return np.asarray(covariance)


class _Objective:
    """Negative log posterior of theta and its gradient."""

    def __init__(self, inputs: Inputs, data: Data, prior: HyperPrior) -> None:
        self.inputs, self.data = inputs, data
        identity, level = inputs.identity[data.rows], inputs.level[data.rows]
        self.by_features = inputs.feature_squares[:, identity[:, None], identity[None, :]]
        self.by_counts = inputs.count_squares[:, level[:, None], level[None, :]]
        self.by_totals = _squares(inputs.totals[inputs.whole[data.rows]])
        self.by_settings = _squares(inputs.settings[inputs.setting[data.rows]])
        self.same_row = (data.rows[:, None] == data.rows[None, :]).astype(float)
        self.same = (identity[:, None] == identity[None, :]).astype(float)
        scaled = inputs.trend.columns[data.rows] * inputs.trend.deviations
        self.fixed = scaled @ scaled.T + np.diag(data.errors**2 + 1e-10)
        self.residual = data.values - inputs.trend.columns[data.rows] @ inputs.trend.means
        counts, features = inputs.counts.shape[1], inputs.features.shape[1]
        lengths = [prior.count_length] * counts + [prior.feature_length] * features
        totals = [prior.total_length] * inputs.totals.shape[1]
        pairs = [prior.shared, prior.own, *lengths, prior.whole, *totals, prior.quirk]
        if settings := inputs.settings.shape[1]:
            pairs += [prior.setting, prior.own_setting, *[prior.setting_length] * settings]
        self.centre = np.log([median for median, _ in pairs])
        self.spread = np.array([deviation for _, deviation in pairs])
        self.bounds = [(c - 4 * s, c + 4 * s) for c, s in zip(self.centre, self.spread, strict=True)]

    def __call__(self, theta: Floats) -> tuple[float, Floats]:
        parts = _split(self.inputs, theta)
        features, feature_slope = _matern(self.by_features, parts.feature_lengths)
        counts, count_slope = _matern(self.by_counts, parts.count_lengths)
        shared, own = parts.shared**2 * features, parts.own**2 * self.same
        amplitude = shared + own
        totals, total_slope = _matern(self.by_totals, parts.total_lengths)
        covariance = self.fixed + amplitude * counts + parts.whole**2 * totals
        covariance += parts.quirk**2 * self.same_row
        settings, setting_slope = _matern(self.by_settings, parts.setting_lengths)
        own_setting = parts.own_setting**2 * self.same * counts
        by_machine = parts.setting**2 + own_setting
        covariance += by_machine * settings
        lower, info = dpotrf(covariance, lower=1)
        if info != 0:
            return 1e25, np.zeros_like(theta)
        weights = dpotrs(lower, self.residual, lower=1)[0]
        inverse = dpotri(lower, lower=1)[0]  # its lower triangle; the upper one is zero
        outer = 0.5 * (inverse + inverse.T - weights[:, None] * weights)
        outer.flat[:: len(outer) + 1] -= 0.5 * inverse.flat[:: len(outer) + 1]
        along = outer * counts
        own_slope = parts.own_setting**2 * self.same * settings
        across = outer * (amplitude + own_slope) * count_slope
        gradient = np.empty_like(theta)
        gradient[0] = 2 * np.vdot(along, shared)
        gradient[1] = 2 * np.vdot(along, own)
        features_at = 2 + len(parts.count_lengths)
        whole_at = features_at + len(parts.feature_lengths)
        gradient[2:features_at] = _contract(self.by_counts, across) / parts.count_lengths**2
        slope = along * (parts.shared**2 * feature_slope)
        gradient[features_at:whole_at] = _contract(self.by_features, slope) / parts.feature_lengths**2
        gradient[whole_at] = 2 * parts.whole**2 * np.vdot(outer, totals)
        slope = parts.whole**2 * outer * total_slope
        quirk_at = whole_at + 1 + len(parts.total_lengths)
        gradient[whole_at + 1 : quirk_at] = _contract(self.by_totals, slope) / parts.total_lengths**2
        gradient[quirk_at] = 2 * parts.quirk**2 * np.vdot(outer, self.same_row)
        if parts.setting:
            gradient[quirk_at + 1] = 2 * parts.setting**2 * np.vdot(outer, settings)
            gradient[quirk_at + 2] = 2 * np.vdot(outer, own_setting * settings)
            slope = outer * by_machine * setting_slope
            gradient[quirk_at + 3 :] = _contract(self.by_settings, slope) / parts.setting_lengths**2
        z = (theta - self.centre) / self.spread
        value = 0.5 * self.residual @ weights + np.log(np.diag(lower)).sum() + 0.5 * z @ z
        return float(value), gradient + z / self.spread

    def posterior(self, theta: Floats) -> Posterior:
        parts = _split(self.inputs, theta)
        amplitude = parts.shared**2 * _matern(self.by_features, parts.feature_lengths)[0] + parts.own**2 * self.same
        covariance = self.fixed + amplitude * _matern(self.by_counts, parts.count_lengths)[0]
        covariance += parts.whole**2 * _matern(self.by_totals, parts.total_lengths)[0]
        covariance += parts.quirk**2 * self.same_row
        if parts.setting:
            of_machine = self.same * _matern(self.by_counts, parts.count_lengths)[0]
            by_settings = _matern(self.by_settings, parts.setting_lengths)[0]
            covariance += by_settings * (parts.setting**2 + parts.own_setting**2 * of_machine)
        lower, info = dpotrf(covariance, lower=1)
        if info != 0:
            raise np.linalg.LinAlgError("the covariance of the measurements is not positive definite")
        lower = np.tril(lower)
        z = (theta - self.centre) / self.spread
        weights = dpotrs(lower, self.residual, lower=1)[0]
        constant = 0.5 * len(self.residual) * np.log(2 * np.pi)
        likelihood = float(-0.5 * self.residual @ weights - np.log(np.diag(lower)).sum() - constant)
        return Posterior(
            inputs=self.inputs,
            data=self.data,
            theta=theta,
            log_posterior=likelihood - 0.5 * float(z @ z),
            log_likelihood=likelihood,
            _lower=lower,
            _weights=weights,
        )
