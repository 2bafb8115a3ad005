"""The loss of a training over the work done, and the work remaining until a target.

    l(k) = 1/(b0 k + b1) + b2                                        (Optimus, EuroSys 2018; MLLess's first phase)

k counts whatever makes progress: steps, samples, effective epochs. There is one law and three ways to fit it,
depending on the noise:

    fit_loss    many losses of one training, noise on each: least squares, no target and no prior needed
    by_steps    few losses on functions; each epoch's progress is random and the next continues from there, so the
                steps from loss to loss are compared with the curve; several trainings may share one curve
    by_levels   few losses with noise on each

The last two try floors b2 on a grid below the target. For a given floor, 1/(l - b2) = b0 k + b1 is a straight line; the
floors are weighted by how well the line fits and by a prior of the floor and of the work of the whole training.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares
from scipy.stats import t as student

from mlcd.errors import BadInput

Floats = NDArray[np.float64]

LEVEL_NOISE = 0.1
"""by_steps: deviation of a step of 0 effective epochs, as a share of that of a step of 1."""
LEAST_WORK = 0.01
"""Work of a whole training below which the prior treats all values alike."""


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
        reach = float(student.ppf(0.5 + level / 2, 8)) * self.deviation_log_steps
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePrior:
    """The prior of a curve: medians, with the deviation of the logarithm or, of the floor, the logit.

    whole        work until the target
    floor_share  b2 over the target loss
    """

    whole: tuple[float, float]
    floor_share: tuple[float, float]


@dataclass(frozen=True, slots=True)
class FloorPosterior:
    """Weights (C, G) over C ways to count the work and G floors, and the remaining work (C, G) by each.

    shares  (G,) candidate floors, as shares of the target loss
    If the last loss is below the target, the remaining work is negative.
    """

    shares: Floats
    weight: Floats
    left: Floats

    @property
    def mean_left(self) -> float:
        """The expected remaining work."""
        return float((self.weight * self.left).sum())

    @property
    def left_deviation(self) -> float:
        """The standard deviation of the remaining work."""
        return math.sqrt(max(float((self.weight * (self.left - self.mean_left) ** 2).sum()), 0.0))

    @property
    def floor_share(self) -> float:
        """The expected floor over the target loss."""
        return float((self.weight.sum(axis=0) * self.shares).sum())

    @property
    def way_weights(self) -> Floats:
        """(C,) of the ways to count the work."""
        result: Floats = self.weight.sum(axis=1)
        return result


LEAST_TARGET = 1e-9
"""The grid of floors of a smaller target is that of this one: the inverse of its spacing must be finite."""


def floor_shares(low: float, high: float, count: int) -> Floats:
    """A grid of floors over the target loss, evenly spaced in the logit between `low` and `high`."""
    result: Floats = 1 / (1 + np.exp(-np.linspace(low, high, count)))
    return result


def by_steps(
    runs: Sequence[tuple[Floats, Floats]],
    target_loss: float,
    *,
    shares: Floats,
    noise: float,
    noise_degrees: float,
    prior: CurvePrior,
) -> FloorPosterior | None:
    """The posterior for `runs` on one curve, the current one last: (T,) losses and (C, T) the work at each, C ways.

    noise          of the progress of one effective epoch: a guess
    noise_degrees  number of steps from loss to loss that weigh as much as that guess
    None if no line rises or there is no step.
    """
    floors = _floors(target_loss, shares)
    heights = [1 / (losses[:, None] - floors[None, :]) for losses, _ in runs]  # a straight line over the work
    rise = np.concatenate([np.diff(height, axis=0) for height in heights])  # (S, G)
    step = np.concatenate([np.diff(ways, axis=1) for _, ways in runs], axis=1)  # (C, S)
    if not len(rise):
        return None
    deviation = noise * np.sqrt(step.mean(axis=0) + LEVEL_NOISE**2)  # (S,) in effective epochs
    weigh = deviation**-2
    slope = (step * weigh) @ rise / (step**2 @ weigh)[:, None]  # (C, G)
    usable = slope > 0
    slope = np.where(usable, slope, 1.0)
    errors = (rise[None, :, :] / slope[:, None, :] - step[:, :, None]) / deviation[None, :, None]  # (C, S, G)
    score = -0.5 * (noise_degrees + len(rise)) * np.log1p((errors**2).sum(axis=1) / noise_degrees)
    # The newest loss is known: the remaining work is counted from it, along the line.
    left = (1 / (target_loss - floors) - heights[-1][-1])[None, :] / slope
    return _weighed(score, usable, done=runs[-1][1][:, -1:], left=left, shares=shares, prior=prior)


def by_levels(
    losses: Floats, work: Floats, target_loss: float, *, shares: Floats, noise: float, prior: CurvePrior
) -> FloorPosterior | None:
    """The posterior for (T,) losses after (T,) work, T at least 2.

    noise  of a loss around its curve, in units of work
    None if no line rises.
    """
    floors = _floors(target_loss, shares)
    height = 1 / (losses[:, None] - floors)
    x = work - work.mean()
    slope = x @ height / (x @ x)
    usable = slope > 0
    slope = np.where(usable, slope, 1.0)
    errors = (height - height.mean(axis=0) - slope * x[:, None]) / slope
    score = -0.5 * (errors**2).sum(axis=0) / noise**2
    left = (1 / (target_loss - floors) - height[-1]) / slope
    return _weighed(score[None], usable[None], done=work[-1:, None], left=left[None], shares=shares, prior=prior)


def _floors(target_loss: float, shares: Floats) -> Floats:
    result: Floats = target_loss - (1 - shares) * max(abs(target_loss), LEAST_TARGET)
    return result


def _weighed(
    score: Floats, usable: NDArray[np.bool_], *, done: Floats, left: Floats, shares: Floats, prior: CurvePrior
) -> FloorPosterior | None:
    """`score` (C, G), the log likelihood of each line, combined with the prior; None if no line is usable."""
    if not usable.any():
        return None
    (expected, spread), (share, share_spread) = prior.whole, prior.floor_share
    middle = math.log(share / (1 - share))
    score = score - 0.5 * ((np.log(shares / (1 - shares)) - middle) / share_spread) ** 2
    score = score - 0.5 * (np.log(np.maximum(done + left, LEAST_WORK) / expected) / spread) ** 2
    weight = np.where(usable, np.exp(score - score[usable].max()), 0.0)
    return FloorPosterior(shares, weight / weight.sum(), left)
