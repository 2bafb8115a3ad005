"""Steps to a target as a function of the global batch B, and where they come from.

    S(B) = Smin (1 + (Bc/B)^p)

Smin is the number of steps without gradient noise, Bc the critical batch: beyond it a larger batch hardly saves steps.
p = 1 is McCandlish et al. (arXiv 1812.06162), p = 0.5 Scavenger's noise ~ 1/sqrt(B). Scavenger prints epochs; read
literally that makes larger batches need fewer epochs, which large-batch studies contradict, so steps are the default
and epochs a choice.

Three sources, best first: trainings that reached the target at several batches (`fit`); one such training and the noise
phi, which is Bc for p = 1 (`from_noise`); the loss of the running training where nothing is known
(`mlcd.models.loss_curve`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar, nnls
from scipy.stats import t as student

from mlcd.errors import BadInput

Floats = NDArray[np.float64]

EXPONENT_BOUNDS = (0.4, 1.2)
"""Bounds of a fitted p."""
_TRAINING_DEVIATION, _PRIOR_TRAININGS = 0.08, 2.0
"""Prior relative deviation between two trainings at one batch, and how many trainings this prior counts as."""


class WorkUnit(StrEnum):
    """What the law counts."""

    STEPS = "steps"
    EPOCHS = "epochs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """A training that reached the target: its global batch and its steps."""

    batch: float
    steps: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.batch) and self.batch > 0 and math.isfinite(self.steps) and self.steps > 0):
            raise BadInput(
                f"a training needs a positive batch and number of steps (got {self.batch!r}, {self.steps!r})"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvergenceModel:
    """S(B) = floor (1 + (critical/B)^exponent), counted in `unit`; `deviation` is a prediction's relative error."""

    floor: float
    critical: float
    exponent: float
    unit: WorkUnit = WorkUnit.STEPS
    samples_per_epoch: float = 1.0
    deviation: float = _TRAINING_DEVIATION
    freedom: float = _PRIOR_TRAININGS

    def steps(self, batch: float) -> float:
        """Steps to the target at this batch."""
        if not batch > 0:
            raise BadInput(f"a batch needs at least one sample (got {batch!r})")
        work = self.floor * (1 + math.pow(self.critical / batch, self.exponent))
        return work if self.unit is WorkUnit.STEPS else work * self.samples_per_epoch / batch

    def interval(self, batch: float, level: float = 0.9) -> tuple[float, float]:
        """A predictive interval of the steps, log-normal with Student's t."""
        reach = float(student.ppf(0.5 + level / 2, self.freedom)) * self.deviation
        middle = self.steps(batch)
        return middle * math.exp(-reach), middle * math.exp(reach)


def fit(
    reached: Sequence[Reached],
    *,
    exponent: float | None = None,
    unit: WorkUnit = WorkUnit.STEPS,
    samples_per_epoch: float = 1.0,
) -> ConvergenceModel:
    """The law fitted to trainings at two or more batches, by relative error.

    exponent  p; None: fitted within EXPONENT_BOUNDS from three batches on, 1 with two
    Raises BadInput for fewer than two different batches.
    """
    batches = np.array([r.batch for r in reached])
    if len(set(batches)) < 2:
        raise BadInput("steps to a target need trainings at two or more batches; with one, give its noise")
    scale = 1.0 if unit is WorkUnit.STEPS else samples_per_epoch
    work = np.array([r.steps * (1.0 if unit is WorkUnit.STEPS else r.batch / scale) for r in reached])

    def at(p: float) -> tuple[Floats, float]:
        columns = np.column_stack([np.ones_like(batches), batches**-p])
        found, _ = nnls(columns / work[:, None], np.ones(len(work)))
        errors = np.log(np.maximum(columns @ found, 1e-300) / work)
        return found, float(errors @ errors)

    if exponent is None and len(set(batches)) >= 3:
        # In practice the error has one minimum between the bounds; the ends are tried too, where it often lies.
        inner = minimize_scalar(lambda p: at(p)[1], bounds=EXPONENT_BOUNDS, method="bounded", options={"xatol": 1e-6})
        exponent = min((float(inner.x), *EXPONENT_BOUNDS, 1.0), key=lambda p: at(p)[1])
        size = 3
    else:
        exponent, size = (1.0 if exponent is None else exponent), 2
    found, squares = at(exponent)
    freedom = _PRIOR_TRAININGS + max(0, len(work) - size)
    floor = max(float(found[0]), 1e-9 * float(work.min()))  # a floor of 0 would leave no critical batch
    return ConvergenceModel(
        floor=floor,
        critical=float(found[1] / floor) ** (1 / exponent),
        exponent=exponent,
        unit=unit,
        samples_per_epoch=samples_per_epoch,
        deviation=math.sqrt((_PRIOR_TRAININGS * _TRAINING_DEVIATION**2 + squares) / freedom),
        freedom=freedom,
    )


def from_noise(reached: Reached, phi: float) -> ConvergenceModel:
    """The law from one training and its noise phi: S(B) = S(B0) (B0/B) (phi + B)/(phi + B0), so Bc = phi and p = 1."""
    if not math.isfinite(phi) or phi < 0:
        raise BadInput(f"the noise scale must be 0 or more (got {phi!r})")
    return ConvergenceModel(
        floor=reached.steps * reached.batch / (phi + reached.batch),
        critical=phi,
        exponent=1.0,
        deviation=2 * _TRAINING_DEVIATION,  # one value for a whole training, in which the noise changes
    )


def from_noise_course(batch: float, course: Sequence[tuple[float, float]]) -> ConvergenceModel:
    """As from_noise, from the noise during one training at `batch`: (steps, phi) of each stretch of it.

    Every stretch has its own law, and the sum of laws with p = 1 is again such a law: with w = n B0/(phi + B0) for a
    stretch of n steps, S(B) = sum w + (sum w phi)/B. Raises BadInput for an empty course.
    """
    if not course or sum(steps for steps, _ in course) <= 0:
        raise BadInput("a course of noise needs at least one stretch of steps")
    parts = [from_noise(Reached(batch=batch, steps=steps), phi) for steps, phi in course if steps > 0]
    floor = sum(part.floor for part in parts)
    critical = sum(part.floor * part.critical for part in parts) / floor
    return ConvergenceModel(floor=floor, critical=critical, exponent=1.0, deviation=1.5 * _TRAINING_DEVIATION)
