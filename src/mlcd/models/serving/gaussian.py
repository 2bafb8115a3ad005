"""A Gaussian belief over a finite table, and its update by observations."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, solve_triangular

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Belief:
    """mean (N,) and covariance (N, N) of ln seconds of a batch."""

    mean: Floats
    covariance: Floats

    def given(self, rows: NDArray[np.intp], values: Floats, errors: Floats) -> tuple[Floats, Floats]:
        """(mean, variance), both (N,), once `values` were measured at `rows` with standard errors `errors`."""
        if not len(rows):
            return self.mean, np.diag(self.covariance).copy()
        at = self.covariance[np.ix_(rows, rows)] + np.diag(errors**2 + 1e-8)
        lower = np.linalg.cholesky(at)
        cross = self.covariance[:, rows]
        mean = self.mean + cross @ cho_solve((lower, True), values - self.mean[rows])
        half = solve_triangular(lower, cross.T, lower=True)
        return mean, np.maximum(np.diag(self.covariance) - (half**2).sum(axis=0), 1e-8)

    def after(self, rows: NDArray[np.intp], values: Floats, errors: Floats) -> "Belief":
        """The belief once `values` were measured at `rows`, with all covariances; see `given` for variances alone."""
        if not len(rows):
            return self
        lower = np.linalg.cholesky(self.covariance[np.ix_(rows, rows)] + np.diag(errors**2 + 1e-8))
        half = solve_triangular(lower, self.covariance[rows], lower=True)
        mean, _ = self.given(rows, values, errors)
        return Belief(mean=mean, covariance=self.covariance - half.T @ half)

    def log_likelihood(self, rows: NDArray[np.intp], values: Floats, errors: Floats) -> float:
        """ln of the density that the belief gave to these measurements; 0 without any."""
        if not len(rows):
            return 0.0
        lower = np.linalg.cholesky(self.covariance[np.ix_(rows, rows)] + np.diag(errors**2 + 1e-8))
        half = solve_triangular(lower, values - self.mean[rows], lower=True)
        return float(-0.5 * half @ half - np.log(np.diag(lower)).sum() - 0.5 * len(rows) * np.log(2 * np.pi))


def matern(distances: Floats) -> Floats:
    """Matern 5/2 correlation of distances in units of the length scale."""
    root = np.sqrt(5.0) * distances
    return np.asarray((1 + root + root**2 / 3) * np.exp(-root))


def spread(points: Floats) -> Floats:
    """(N, N) Euclidean distances between the rows of `points`."""
    squares = ((points[:, None, :] - points[None, :, :]) ** 2).sum(axis=2)
    return np.asarray(np.sqrt(squares))
