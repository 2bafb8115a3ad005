"""Ernest's curve for serving: a batch's latency as a sum of physical terms, none of them negative."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

RIDGE = 1e-3
"""Keeps the information matrix invertible while there are fewer points than terms."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Terms:
    """(N, 5) the terms of every configuration, each column divided by its mean.

    t = w0 + w1 b + w2 b / c + w3 / c + w4 ln b: the call, work that a faster machine does not speed up,
    work that it does, a machine's own start of a batch, and a tree's depth; b items per batch on a machine of capacity
    c (Ernest, NSDI 2016, has 1, scale / machines, ln machines, machines).
    """

    columns: Floats

    @classmethod
    def of(cls, batches: Floats, capacities: Floats) -> "Terms":
        """The terms of N configurations."""
        ones = np.ones_like(batches)
        columns = np.stack([ones, batches, batches / capacities, ones / capacities, np.log(batches)], axis=1)
        return cls(columns=columns / np.maximum(columns.mean(axis=0), 1e-12))

    def fit(self, at: Rows, seconds: Floats) -> Floats:
        """(N,) seconds everywhere, by non-negative least squares on the relative errors of the rows `at`."""
        weights, _ = nnls(self.columns[at] / seconds[:, None], np.ones(len(at)))
        return np.asarray(self.columns @ weights)

    def next_point(self, at: Rows, candidates: NDArray[np.bool_], usd: Floats) -> int:
        """The candidate whose trial reduces tr((sum f f')^-1) most for its price: a greedy A-optimal design."""
        information = RIDGE * np.eye(self.columns.shape[1]) + self.columns[at].T @ self.columns[at]
        inverse = np.linalg.inv(information)
        moved = self.columns @ inverse
        drop = np.sum(moved**2, axis=1) / (1.0 + np.sum(moved * self.columns, axis=1))
        return int(np.where(candidates, drop / usd, -np.inf).argmax())


def capacities(log_seconds: Floats, settings: Rows, batches: Floats) -> Floats:
    """(N,) how fast each setting (a configuration without its batch) is for known models, geometric mean 1.

    For each model, the latency of an item in the largest batch that ran there, relative to its own mean over settings;
    then the mean over models. `log_seconds` (models, N) is nan where nothing ran; a setting where nothing ever ran gets
    the least capacity of all.
    """
    per_item = log_seconds - np.log(batches)
    count = int(settings.max()) + 1
    found = np.full((len(log_seconds), count), np.nan)
    for setting in range(count):
        rows = np.flatnonzero(settings == setting)
        for row in rows[np.argsort(batches[rows], kind="stable")]:
            found[:, setting] = np.where(np.isnan(per_item[:, row]), found[:, setting], -per_item[:, row])
    measured = ~np.isnan(found)
    level = np.where(measured, found, 0.0).sum(axis=1) / np.maximum(measured.sum(axis=1), 1)
    off = np.where(measured, found - level[:, None], 0.0)
    mean = off.sum(axis=0) / np.maximum(measured.sum(axis=0), 1)
    mean = np.where(measured.any(axis=0), mean, mean.min())
    return np.asarray(np.exp(mean - mean.mean())[settings])
