"""Ernest's curve (Venkataraman et al., NSDI 2016): a time as a sum of physical terms, none of them negative."""

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
    """(N, p) the terms of every configuration; a time is their sum with weights that are not negative."""

    columns: Floats

    @classmethod
    def scaled(cls, columns: Floats) -> "Terms":
        """Each column divided by its mean, so that all weigh alike in a design."""
        return cls(columns=columns / np.maximum(columns.mean(axis=0), 1e-12))

    @classmethod
    def of_nodes(cls, nodes: Floats) -> "Terms":
        """t = w0 + w1 / n + w2 ln n + w3 n: serial work, parallel work, a tree's depth, and one-to-all exchange."""
        ones = np.ones_like(nodes)
        return cls.scaled(np.stack([ones, ones / nodes, np.log(nodes), nodes], axis=1))

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
