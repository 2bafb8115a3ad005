"""The loss of a training over the work done, and the work remaining until a target.

    l(k) = 1/(b0 k + b1) + b2                                        (Optimus, EuroSys 2018; MLLess's first phase)

k counts steps or samples. `fit_loss` needs many losses of one training, with noise on each: least squares, no target
and no prior. The few losses of a training on functions are read by mlcd.models.loss_filter, which assumes no one law.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares
from scipy.special import stdtrit

from mlcd.errors import BadInput

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class LossCurve:
    """l(k) = 1/(rate k + start) + floor, the loss after k steps; `scatter` is the deviation of a measured loss."""

    rate: float
    start: float
    floor: float
    scatter: float
    deviation_log_steps: float

    def loss(self, step: float) -> float:
        """The expected loss after `step` steps."""
        return 1 / (self.rate * step + self.start) + self.floor

    def steps_to(self, target: float) -> float | None:
        """The step at which the loss reaches the target; None if it never does."""
        if target <= self.floor or self.rate <= 0:
            return None
        return max(0.0, (1 / (target - self.floor) - self.start) / self.rate)

    def interval(self, target: float, level: float = 0.9) -> tuple[float, float] | None:
        """Bounds of steps_to; None if the target is out of reach."""
        steps = self.steps_to(target)
        if steps is None:
            return None
        reach = float(stdtrit(8, 0.5 + level / 2)) * self.deviation_log_steps
        return steps * math.exp(-reach), steps * math.exp(reach)


def fit_loss(losses: Sequence[tuple[float, float]]) -> LossCurve:
    """The curve through (step, loss) of a running training.

    Raises BadInput for fewer than five points, a loss that is not finite, or one that does not fall: a training that
    never converges has no number of steps.
    """
    if len(losses) < 5:
        raise BadInput(f"a loss curve needs at least 5 points (got {len(losses)})")
    steps, values = np.array([s for s, _ in losses], dtype=float), np.array([v for _, v in losses], dtype=float)
    if not np.all(np.isfinite(values)):
        raise BadInput("the loss is not a number: the training has diverged; lower the learning rate")
    third = max(2, len(losses) // 3)
    if float(np.median(values[-third:])) >= float(np.median(values[:third])):
        raise BadInput("the loss does not fall: the number of steps to the target is unknown")
    span = float(steps[-1] - steps[0]) or 1.0
    top, low = float(values.max()), float(values.min())
    gap = max(top - low, 1e-9)

    def error(theta: Floats) -> Floats:
        rate, start, floor = theta
        return np.asarray(1 / (rate * steps / span + start) + floor - values)

    def slopes(theta: Floats) -> Floats:
        bend = -1 / (theta[0] * steps / span + theta[1]) ** 2
        return np.column_stack([bend * steps / span, bend, np.ones_like(steps)])

    best = None
    for share in (0.0, 0.5, 0.9):
        floor = low - (1 - share) * gap
        first, last = 1 / max(top - floor, 1e-9), 1 / max(low - floor + 0.05 * gap, 1e-9)
        start = np.array([max(last - first, 1e-6), max(first, 1e-6), floor])
        bounds = ([0.0, 1e-9, -np.inf], [np.inf, np.inf, low])
        tried = least_squares(error, start, jac=slopes, bounds=bounds, x_scale=np.maximum(np.abs(start), 1e-6))
        if best is None or tried.cost < best.cost:
            best = tried
    assert best is not None  # noqa: S101 - there are three starts
    rate, begin, floor = (float(v) for v in best.x)
    scatter = math.sqrt(2 * float(best.cost) / max(1, len(losses) - 3))
    return LossCurve(
        rate=rate / span,
        start=begin,
        floor=floor,
        scatter=scatter,
        deviation_log_steps=min(1.0, 0.1 + 4 * scatter / gap),
    )


def floor_shares(low: float, high: float, count: int) -> Floats:
    """A grid of floors over the target loss, evenly spaced in the logit between `low` and `high`."""
    result: Floats = 1 / (1 + np.exp(-np.linspace(low, high, count)))
    return result
