"""The error of a model at every configuration, predicted from its errors at the tried ones."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

TRIAL_NOISE_SHARE = 0.1
"""Noise of a trial, as a share of the amplitude."""


def residual(inputs: Floats, at: Rows, errors: Floats, *, amplitude: float, length: float) -> tuple[Floats, Floats]:
    """(N,) mean and standard deviation of a Gaussian process (Matern 5/2) through the `errors` of the rows `at`.

    inputs (N, d) with deviation 1 in each column; the process has deviation `amplitude` where nothing was tried.
    """
    if not len(at):
        return np.zeros(len(inputs)), np.full(len(inputs), amplitude)
    tried = inputs[at]
    across = amplitude**2 * _matern(inputs, tried, length)
    among = amplitude**2 * (_matern(tried, tried, length) + TRIAL_NOISE_SHARE**2 * np.eye(len(at)))
    weights = np.linalg.solve(among, across.T).T
    variance = np.maximum(amplitude**2 - (weights * across).sum(axis=1), 0.0)
    return weights @ errors, np.sqrt(variance)


def _matern(one: Floats, other: Floats, length: float) -> Floats:
    squares = (one**2).sum(axis=1)[:, None] + (other**2).sum(axis=1)[None, :] - 2 * one @ other.T
    apart = np.sqrt(5 * np.maximum(squares, 0.0)) / length
    return np.asarray((1 + apart + apart**2 / 3) * np.exp(-apart))
