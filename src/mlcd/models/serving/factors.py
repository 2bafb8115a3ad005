"""A table of models x configurations as a few directions, and a new model's row from the cells that were tried."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

FILL_ROUNDS = 30
"""Rounds of filling in missing cells and factorising again."""
LEAST_NOISE = 0.02
"""The smallest standard deviation of a factorisation's noise."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Factors:
    """A row of the table is mean + loadings w + noise e, with w ~ N(0, I) and e ~ N(0, 1) for each cell.

    Probabilistic principal components (Tipping and Bishop 1999): mean (N,), loadings (N, K).
    """

    mean: Floats
    loadings: Floats
    noise: float

    def row(self, at: Rows, values: Floats) -> tuple[Floats, Floats]:
        """(N,) mean and variance of a new row's cells, given the `values` of its cells `at`: ridge regression on w.

        w = (I + A'A / s^2)^-1 A' r / s^2 with A the loadings of the tried cells, r their distance from the mean.
        """
        chosen = self.loadings[at]
        precision = np.eye(self.loadings.shape[1]) + chosen.T @ chosen / self.noise**2
        spread = np.linalg.inv(precision)
        weights = spread @ (chosen.T @ (values - self.mean[at])) / self.noise**2
        variance = np.einsum("nk,kl,nl->n", self.loadings, spread, self.loadings) + self.noise**2
        return self.mean + self.loadings @ weights, variance

    def log_evidence(self, at: Rows, values: Floats) -> float:
        """ln p(values) of the cells `at`."""
        chosen, off = self.loadings[at], values - self.mean[at]
        covariance = chosen @ chosen.T + self.noise**2 * np.eye(len(at))
        _, log_size = np.linalg.slogdet(covariance)
        return float(-0.5 * (off @ np.linalg.solve(covariance, off) + log_size + len(at) * np.log(2 * np.pi)))


def factorise(table: Floats, rank: int) -> Factors:
    """The `rank` strongest directions of a (models, N) table; nan cells are filled in by the factors themselves."""
    missing = np.isnan(table)
    counted = np.maximum((~missing).sum(axis=0), 1)
    mean = np.where(missing, 0.0, table).sum(axis=0) / counted
    filled = np.where(missing, mean, table)
    rank = min(rank, len(table) - 1)
    if rank < 1:
        return Factors(mean=mean, loadings=np.zeros((table.shape[1], 1)), noise=float(max(mean.std(), LEAST_NOISE)))
    for _ in range(FILL_ROUNDS if missing.any() else 1):
        mean = filled.mean(axis=0)
        left, sizes, right = np.linalg.svd(filled - mean, full_matrices=False)
        fitted = mean + (left[:, :rank] * sizes[:rank]) @ right[:rank]
        filled = np.where(missing, fitted, table)
    freedom = max(len(table) - 1 - rank, 1)
    noise = float(np.sqrt(np.sum(sizes[rank:] ** 2) / freedom / table.shape[1]))
    noise = max(noise, LEAST_NOISE)
    deviations = np.sqrt(np.maximum(sizes[:rank] ** 2 / (len(table) - 1) - noise**2, 0.0))
    return Factors(mean=mean, loadings=right[:rank].T * deviations, noise=noise)


def fit_scale(factors: Factors, at: Rows, values: Floats, *, steps: int = 41) -> float:
    """The unit u that makes `values` most probable as a row of a table whose rows have 1 as their largest cell.

    The largest value seen is between a tenth and 1.2 of it; with a flat prior on a logarithmic scale:
    argmax ln p(values / u) - n ln u. 1 where all values are 0.
    """
    largest = float(values.max(initial=0.0))
    if largest <= 0:
        return 1.0
    units = largest / np.geomspace(0.1, 1.2, steps)
    likely = [factors.log_evidence(at, values / unit) - len(values) * np.log(unit) for unit in units]
    return float(units[int(np.argmax(likely))])
