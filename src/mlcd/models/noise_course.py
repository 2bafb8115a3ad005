"""The gradients' noise over the rest of a training, expected from what its trials and the training itself measured.

Noise grows while a model learns, because its true gradient shrinks: the first minutes show a tenth of it or less. With
w the work done of a training of W, both in samples at the reference batch B0, and x = ln(2 w/W),

    ln(phi(w)/B0) = a + q x + e(x)

has a prior, and every measurement of phi is an observation of it:

    a  N(LEVEL, LEVEL_DEVIATION^2)      half-way through the training
    q  N(GROWTH, GROWTH_DEVIATION^2)    noise grows with about this power of the work
    e  a Gaussian process with the kernel s(w) s(w') exp(-|x - x'|): trials close together err together. Early noise
       says little of later noise, so s(w) = WANDER_DEVIATION + EARLY_DEVIATION W/w

What the rest needs at a batch B is the integral of (phi + B)/(phi + B0) over the rest of the work. That is the same as
with one constant noise scale, which `expected_noise` returns:

    phi* = integral of phi/(phi + B0) / integral of 1/(phi + B0)

The priors were chosen on two measured trainings, cifar10 and yolov3 (docs/scavenger.md), and on no other.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEVEL, LEVEL_DEVIATION = math.log(100.0), 1.0
GROWTH, GROWTH_DEVIATION = 0.6, 0.3
WANDER_DEVIATION, EARLY_DEVIATION = 0.4, 0.03
MEASUREMENT_DEVIATION = 0.15
"""Standard error of the logarithm of one measured noise scale."""
_POINTS = 32
"""Of the integral, equally spaced over the rest of the work."""
_LEAST_SHARE = 1e-4
"""Work below this share of the whole counts as this share: a logarithm needs a start."""


def expected_noise(
    seen: Sequence[tuple[float, float]], *, reference: float, done_samples: float, whole_samples: float
) -> float | None:
    """The one noise scale, in samples, that stands for the rest of the training; None if none was measured.

    seen           (work done, noise scale) of every measurement; zero and infinite ones are ignored
    done_samples   the work done now, whole_samples that of the whole training, both in samples at `reference`
    """
    known = [(work, noise) for work, noise in seen if 0 < noise < math.inf]
    if not known:
        return None
    at = _positions(np.array([work for work, _ in known]), whole_samples)
    logs = np.log(np.array([noise for _, noise in known]) / reference)
    start = min(done_samples, whole_samples * (1 - _LEAST_SHARE))
    middles = start + (np.arange(_POINTS) + 0.5) / _POINTS * (whole_samples - start)
    rest = _positions(middles, whole_samples)
    spread = _covariance(at, at) + MEASUREMENT_DEVIATION**2 * np.eye(len(at))
    shift = np.linalg.solve(spread, logs - (LEVEL + GROWTH * at))
    noise = reference * np.exp(LEVEL + GROWTH * rest + _covariance(rest, at) @ shift)
    return float(np.sum(noise / (noise + reference)) / np.sum(1 / (noise + reference)))


def _positions(work: Floats, whole_samples: float) -> Floats:
    return np.log(2 * np.clip(work / whole_samples, _LEAST_SHARE, None))


def _covariance(some: Floats, others: Floats) -> Floats:
    apart = np.abs(some[:, None] - others[None, :])
    wander, others_wander = (WANDER_DEVIATION + EARLY_DEVIATION * 2 * np.exp(-at) for at in (some, others))
    return np.asarray(
        LEVEL_DEVIATION**2
        + GROWTH_DEVIATION**2 * some[:, None] * others[None, :]
        + wander[:, None] * others_wander[None, :] * np.exp(-apart)
    )
