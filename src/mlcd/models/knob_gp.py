r"""A Gaussian process over any knobs: numbers by their distance, options by whether they are the same.

Covariance of two configurations, with M the Matern 5/2 correlation, over values that are standardised (mean 0,
deviation 1):

    k = c^2 + s^2 M(r) + e^2 [same trial],    r^2 = sum over the knobs of d^2 / l^2

where d is the distance of two numbers as a share of their range (of their logarithms if the knob has a logarithmic
scale), or 1 for two different options. The constant c is fixed; ln s, ln l and ln e maximise likelihood times normal
priors, by L-BFGS-B with analytic gradients from the priors' mode. The lengths' prior grows with the square root of the
number of knobs, so that with many knobs configurations still inform each other (Hvarfner et al. 2024).

Everything here is a pure function of its arguments; nothing is cached between calls.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.optimize import minimize

from mlcd.space import Space

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

SQRT5 = float(np.sqrt(5.0))
CONSTANT_DEVIATION = 2.0
"""c: the level of the values is unknown beforehand."""
AMPLITUDE_PRIOR = (1.0, 0.5)
"""s: median, and deviation of its logarithm; likewise for l and e below."""
LENGTH_PER_ROOT_KNOB_PRIOR = (0.5, 0.75)
ERROR_PRIOR = (0.03, 1.0)
CHUNK_ROWS = 16_384
"""Rows predicted at once, to bound the memory for a large space."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Columns:
    """The space as numbers, a row per configuration: `numbers` (N, a) in 0..1, `options` (N, b) as indices."""

    numbers: Floats
    options: Rows

    @classmethod
    def of(cls, space: Space) -> "Columns":
        """Counts by their logarithm, choices by their features; with several features or none, also by identity."""
        numbers: list[Floats] = []
        options: list[Rows] = []
        for place, knob in enumerate(space.knobs):
            index = {value: at for at, value in enumerate(knob.values)}
            at = np.array([index[config.values[place][1]] for config in space.configs], dtype=np.intp)
            if knob.features is None:
                described = np.log2(np.array([[float(value)] for value in knob.values]))
            else:
                described = np.array([knob.features[value] for value in knob.values], dtype=float)
            if described.shape[1] != 1 and len(knob.values) > 1:
                options.append(at)
            if not _only_tell_apart(described):
                numbers += [column[at] for column in _scaled(described)]
        size = len(space)
        return cls(
            numbers=np.stack(numbers, axis=1) if numbers else np.zeros((size, 0)),
            options=np.stack(options, axis=1) if options else np.zeros((size, 0), dtype=np.intp),
        )

    @property
    def width(self) -> int:
        """The number of columns of both kinds."""
        return int(self.numbers.shape[1] + self.options.shape[1])

    def squares(self, some: Rows, others: Rows) -> Floats:
        """(width, len(some), len(others)) squared distances."""
        numbers = (self.numbers[some].T[:, :, None] - self.numbers[others].T[:, None, :]) ** 2
        options = self.options[some].T[:, :, None] != self.options[others].T[:, None, :]
        return np.concatenate([numbers, options.astype(float)])


def _only_tell_apart(described: Floats) -> bool:
    """Whether the features only identify the option: one feature for each option."""
    return described.shape[0] == described.shape[1] > 1 and bool((described == np.eye(len(described))).all())


def _scaled(described: Floats) -> list[Floats]:
    """The columns that vary, each from 0 to 1."""
    low, high = described.min(axis=0, initial=np.inf), described.max(axis=0, initial=-np.inf)
    varying = np.flatnonzero(high > low)
    return [(described[:, k] - low[k]) / (high[k] - low[k]) for k in varying]


@dataclass(frozen=True, kw_only=True, eq=False)
class Observed:
    """Values at rows of the space, in their own unit, and the known standard error of each (0: none)."""

    rows: Rows
    values: Floats
    errors: Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class KnobPosterior:
    """The process after what was observed."""

    columns: Columns
    observed: Observed
    theta: Floats
    centre: float
    unit: float
    _lower: Floats
    _weights: Floats

    def predict(self, rows: Rows) -> tuple[Floats, Floats]:
        """(mean, variance) of the true value at these rows, in the values' unit."""
        means, variances = [], []
        prior = CONSTANT_DEVIATION**2 + np.exp(2 * self.theta[0])
        for first in range(0, len(rows), CHUNK_ROWS):
            some = rows[first : first + CHUNK_ROWS]
            cross = _covariance(self.columns, self.theta, some, self.observed.rows)
            means.append(cross @ self._weights)
            half = solve_triangular(self._lower, cross.T, lower=True)
            variances.append(np.maximum(prior - (half**2).sum(axis=0), 1e-10))
        mean = np.concatenate(means) if means else np.zeros(0)
        variance = np.concatenate(variances) if variances else np.zeros(0)
        return self.centre + self.unit * mean, self.unit**2 * variance

    def with_expected(self, row: int, value: float) -> "KnobPosterior":
        """The process as if `value` had been observed at `row`, without another fit."""
        seen = self.observed
        added = Observed(
            rows=np.append(seen.rows, row),
            values=np.append(seen.values, value),
            errors=np.append(seen.errors, float(seen.errors.mean())),
        )
        return _solved(replace(self, observed=added))


def fit(columns: Columns, observed: Observed) -> KnobPosterior:
    """The posterior at the hyperparameters of highest posterior density. Needs at least one value."""
    centre = float(observed.values.mean())
    deviation = float(observed.values.std())
    unit = deviation if deviation > 0 else 1.0
    objective = _Objective(columns, observed, (observed.values - centre) / unit, observed.errors / unit)
    theta = objective.mode
    if len(observed.rows) > 1:
        found = minimize(objective, theta, jac=True, method="L-BFGS-B", bounds=objective.bounds)
        theta = np.asarray(found.x)
    nothing = np.zeros(0)
    bare = KnobPosterior(
        columns=columns, observed=observed, theta=theta, centre=centre, unit=unit, _lower=nothing, _weights=nothing
    )
    return _solved(bare)


def _solved(posterior: KnobPosterior) -> KnobPosterior:
    seen, theta = posterior.observed, posterior.theta
    covariance = _covariance(posterior.columns, theta, seen.rows, seen.rows)
    covariance += np.diag(np.exp(2 * theta[-1]) + (seen.errors / posterior.unit) ** 2)
    lower = cholesky(covariance, lower=True)
    weights = cho_solve((lower, True), (seen.values - posterior.centre) / posterior.unit)
    return replace(posterior, _lower=lower, _weights=weights)


def _matern(columns: Columns, theta: Floats, some: Rows, others: Rows) -> tuple[Floats, Floats, Floats]:
    """M, the factor g with dM/d ln l_j = g x squares_j / l_j^2, and the scaled squares."""
    squares = columns.squares(some, others) * np.exp(-2 * theta[1:-1])[:, None, None]
    distance = SQRT5 * np.sqrt(squares.sum(axis=0))
    decay = np.exp(-distance)
    return (1 + distance + distance**2 / 3) * decay, (5.0 / 3.0) * (1 + distance) * decay, squares


def _covariance(columns: Columns, theta: Floats, some: Rows, others: Rows) -> Floats:
    correlation, _, _ = _matern(columns, theta, some, others)
    return np.asarray(CONSTANT_DEVIATION**2 + np.exp(2 * theta[0]) * correlation)


class _Objective:
    """Negative log posterior of theta = (ln s, ln l.., ln e) and its gradient."""

    def __init__(self, columns: Columns, observed: Observed, values: Floats, errors: Floats) -> None:
        self.columns, self.rows, self.values, self.errors = columns, observed.rows, values, errors
        length = LENGTH_PER_ROOT_KNOB_PRIOR[0] * np.sqrt(max(columns.width, 1))
        self.mode = np.log(np.array([AMPLITUDE_PRIOR[0], *[length] * columns.width, ERROR_PRIOR[0]]))
        self.deviations = np.array(
            [AMPLITUDE_PRIOR[1], *[LENGTH_PER_ROOT_KNOB_PRIOR[1]] * columns.width, ERROR_PRIOR[1]]
        )
        self.bounds = [(m - 4 * d, m + 4 * d) for m, d in zip(self.mode, self.deviations, strict=True)]

    def __call__(self, theta: Floats) -> tuple[float, Floats]:
        correlation, slope, squares = _matern(self.columns, theta, self.rows, self.rows)
        amplitude, error = np.exp(2 * theta[0]), np.exp(2 * theta[-1])
        covariance = CONSTANT_DEVIATION**2 + amplitude * correlation + np.diag(error + self.errors**2)
        lower = cholesky(covariance, lower=True)
        inverse = cho_solve((lower, True), np.eye(len(self.rows)))
        weights = inverse @ self.values
        slack = inverse - np.outer(weights, weights)  # twice the gradient by the covariance
        gradient = np.empty_like(theta)
        gradient[0] = (slack * amplitude * correlation).sum()
        gradient[1:-1] = 0.5 * amplitude * np.tensordot(squares, slack * slope, axes=2)
        gradient[-1] = error * np.trace(slack)
        apart = (theta - self.mode) / self.deviations
        value = 0.5 * self.values @ weights + np.log(np.diag(lower)).sum() + 0.5 * apart @ apart
        return float(value), gradient + apart / self.deviations
