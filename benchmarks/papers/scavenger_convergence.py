"""Steps to a target as a function of the global batch B, as the paper's pictures predict them from three trainings.

    S(B) = Smin (1 + (Bc/B)^p)

Smin is the number of steps without gradient noise, Bc the critical batch: beyond it a larger batch hardly saves steps.
p = 1 is McCandlish et al. (arXiv 1812.06162), p = 0.5 Scavenger's noise ~ 1/sqrt(B). No user has whole trainings at
three batches, so mlcd itself does not use this: its steps follow the measured noise (mlcd.models.noise_course).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar, nnls

from mlcd.errors import BadInput

EXPONENT_BOUNDS = (0.4, 1.2)
"""Bounds of a fitted p."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """A training that reached the target: its global batch and its steps."""

    batch: float
    steps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvergenceModel:
    """S(B) = floor (1 + (critical/B)^exponent)."""

    floor: float
    critical: float
    exponent: float

    def steps(self, batch: float) -> float:
        """Steps to the target at this batch."""
        return self.floor * (1 + math.pow(self.critical / batch, self.exponent))


def fit(reached: Sequence[Reached]) -> ConvergenceModel:
    """The law fitted by relative error, p within EXPONENT_BOUNDS. Raises BadInput for fewer than three batches."""
    batches = np.array([r.batch for r in reached])
    if len(set(batches)) < 3:
        raise BadInput("the law of steps needs trainings at three or more batches")
    steps = np.array([r.steps for r in reached])

    def at(p: float) -> tuple[NDArray[np.float64], float]:
        columns = np.column_stack([np.ones_like(batches), batches**-p])
        found, _ = nnls(columns / steps[:, None], np.ones(len(steps)))
        errors = np.log(np.maximum(columns @ found, 1e-300) / steps)
        return found, float(errors @ errors)

    # In practice the error has one minimum between the bounds; the ends are tried too, where it often lies.
    inner = minimize_scalar(lambda p: at(p)[1], bounds=EXPONENT_BOUNDS, method="bounded", options={"xatol": 1e-6})
    exponent = min((float(inner.x), *EXPONENT_BOUNDS, 1.0), key=lambda p: at(p)[1])
    found, _ = at(exponent)
    floor = max(float(found[0]), 1e-9 * float(steps.min()))  # a floor of 0 would leave no critical batch
    return ConvergenceModel(floor=floor, critical=float(found[1] / floor) ** (1 / exponent), exponent=exponent)
