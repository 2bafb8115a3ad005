"""Logistic regression over hashed features, as used to predict click-through rates."""

import numpy as np
from numpy.typing import NDArray

from mlcd.workloads.model import Floats, Rows

BUCKETS = 16_384
"""Number of weights that features are hashed into; one more weight is the bias."""


class Logistic:
    """p(click) = sigmoid(w0 + sum of w[i] over the row's feature numbers i); log loss.

    x  (B, K) feature numbers; taken modulo BUCKETS
    y  (B,) 0 or 1
    """

    def start(self, seed: int) -> Floats:  # noqa: ARG002 - a convex problem may start at 0
        """(16385,) zeros."""
        return np.zeros(BUCKETS + 1, dtype=np.float32)

    def gradient(self, parameters: Floats, x: Rows, y: Rows) -> Floats:
        """(16385,)."""
        ids, logits = _logits(parameters, x)
        share = (_sigmoid(logits) - y).astype(np.float32) / len(y)
        found = np.bincount(ids.ravel(), weights=np.repeat(share, ids.shape[1]), minlength=BUCKETS + 1)
        found[BUCKETS] = share.sum()
        return found.astype(np.float32)

    def loss(self, parameters: Floats, x: Rows, y: Rows) -> float:
        """Mean log loss."""
        _, logits = _logits(parameters, x)
        return float(np.mean(np.logaddexp(0.0, logits) - y * logits))


def _logits(parameters: Floats, x: Rows) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    ids = x.astype(np.int64) % BUCKETS
    return ids, parameters[ids].sum(axis=1, dtype=np.float64) + float(parameters[BUCKETS])


def _sigmoid(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return 0.5 * (1.0 + np.tanh(0.5 * values))
