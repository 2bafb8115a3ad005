"""Closed forms for the expected benefit of a trial, for log-normal quantities."""

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

Floats = NDArray[np.float64]


def expected_saving(mean: Floats, variance: Floats, incumbent: float | Floats, log_cap: Floats | None = None) -> Floats:
    """E[(k - V)^+ ; V <= cap] of a value V to minimise, with ln V ~ N(mean, variance), against an incumbent k.

    With d = (min(ln k, ln cap) - m) / s:  k Phi(d) - exp(m + v / 2) Phi(d - s)   (algorithms: 1.3). The cap is the
    value above which the deployment would not fit. Improvement and feasibility are computed together because both
    depend on the same unknown speed.
    """
    deviation = np.sqrt(variance)
    bound = np.log(incumbent) if log_cap is None else np.minimum(np.log(incumbent), log_cap)
    d = (bound - mean) / deviation
    with np.errstate(invalid="ignore"):  # an infinite expected value saves nothing
        saving = incumbent * ndtr(d) - np.exp(mean + variance / 2) * ndtr(d - deviation)
    return np.maximum(np.where(np.isfinite(saving), saving, 0.0), 0.0)


def expected_rise(mean: Floats, variance: Floats, best: float) -> Floats:
    """E[(s - y)^+] of a speed s to maximise, with ln s ~ N(mean, variance), against the best speed y (eq. 4)."""
    deviation = np.sqrt(variance)
    d = (mean - np.log(best)) / deviation
    return np.asarray(np.maximum(np.exp(mean + variance / 2) * ndtr(d + deviation) - best * ndtr(d), 0.0))


def pandora_index(
    mean: Floats,
    variance: Floats,
    prices: Floats,
    incumbent: float | Floats,
    log_cap: Floats,
    *,
    weights: Floats | None = None,
) -> Floats:
    """The value g at which a trial just pays: E[(g - V)^+ ; V <= cap] = price (Weitzman 1979; Xie et al. 2024).

    Smaller is better; a trial with g >= incumbent does not pay for itself. Solved by bisection in ln g, for all
    configurations at once. With `weights` (M,), V is a mixture; mean and variance are (M, N).
    """
    shares = np.ones(1) if weights is None else weights
    mean, variance = np.atleast_2d(mean), np.atleast_2d(variance)
    high = np.broadcast_to(np.log(incumbent), prices.shape).copy()
    low = high - 12.0
    deviation = np.sqrt(variance)
    tail = np.exp(mean + variance / 2)
    for _ in range(30):
        middle = (low + high) / 2
        d = (np.minimum(middle, log_cap) - mean) / deviation
        pays = shares @ (np.exp(middle) * ndtr(d) - tail * ndtr(d - deviation)) >= prices
        low, high = np.where(pays, low, middle), np.where(pays, middle, high)
    return np.asarray(np.exp(high))
