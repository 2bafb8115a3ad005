"""Work that remains until a target loss, by many curve families at once, each weighed by how well it predicted.

A family says that a transformed loss is a straight line over the work k:

    y(l) = (l - f)^-q / q     q = 1: Optimus' 1/(b0 k + b1) + f; q = 2: 1/sqrt(k); q = 3: slower still
    y(l) = -ln(l - f)         q = 0: exponential

with the floor f on a grid below the target. The slope of the line may drift, little or much: with much drift it follows
the newest losses, as after a step of the learning rate or off a plateau, and no global curve is assumed.

Each hypothesis (family, floor, drift, noise, prior of the whole work, way to count the work) is a Kalman filter over
(y, slope). Before each loss it predicts it; the product of those one-step predictive densities, in units of loss, is
its weight. The remaining work is the weighted mean over all of them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

POWERS = (0.0, 0.5, 1.0, 2.0, 3.0)
"""q of the families."""
DRIFTS = (0.02, 0.35)
"""Deviation of the slope after one effective epoch, as a share of its prior mean."""
NOISES = (0.003, 0.01, 0.025)
"""Deviation of a measured loss, as a share of its distance from LEVEL of the target."""
LEVEL = 0.7
PROGRESS_NOISE = 0.015
"""Deviation of the progress of one effective epoch."""
WHOLE_POINTS = ((-1.2, 0.3), (0.0, 0.4), (1.2, 0.3))
"""Points of the prior of the whole work, in deviations of its logarithm, and their weights."""
SLOPE_DEVIATION = 0.6
"""Deviation of the slope around that of a point of the prior, as a share of the distance between two points."""
LEAST_SLOPE = 0.08
"""A slope counts as at least this share of its prior mean: a loss that stalls for a while is not one that ends."""
TAIL_DEGREES = 6.0
"""Degrees of freedom of the predictive densities: a loss far from all predictions does not rule a family out."""
MOST_POINTS = 64
"""Epochs that a fit uses, so that a decision takes as long after 10,000 epochs as after these; trainings of the
benchmarks have up to 20."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterGrid:
    """Which hypotheses are weighed; `floors` as shares of the target loss."""

    floors: Floats
    powers: tuple[float, ...] = POWERS
    drifts: tuple[float, ...] = DRIFTS
    noises: tuple[float, ...] = NOISES


@dataclass(frozen=True, slots=True, kw_only=True)
class RemainingWork:
    """What remains: its mean and deviation, and the (C,) weights of the ways to count the work."""

    mean: float
    deviation: float
    way_weights: Floats


def remaining_work(
    losses: Floats,
    ways: Floats,
    target_loss: float,
    *,
    grid: FilterGrid,
    whole: tuple[float, float],
    floor_share: tuple[float, float],
) -> RemainingWork:
    """The posterior after (T,) losses, T at least 2, at (C, T) work, counted in C ways; of many, `fitted_points`.

    whole        median of the work from the first loss to the target, and the deviation of its logarithm
    floor_share  median of the floor over the target loss, and the deviation of its logit
    Each hypothesis is combined with the prior of the whole work, as two normal distributions of what remains.
    """
    kept = fitted_points(len(losses))
    losses, ways = losses[kept], ways[:, kept]
    axes = _axes(grid, target_loss, whole)
    score, left, deviation = _filtered(losses, ways, axes)
    score = score + axes.log_prior(grid, floor_share)
    done = ways[:, -1][:, None, None, None, None, None]
    expected, spread = whole[0] - done, whole[0] * whole[1]
    both = deviation**2 + spread**2
    score = score - 0.5 * (left - expected) ** 2 / both - 0.5 * np.log(both)
    left = left + (expected - left) * deviation**2 / both
    deviation = deviation * spread / np.sqrt(both)
    weight = np.exp(score - score.max())
    weight /= weight.sum()
    mean = float((weight * left).sum())
    spread = float((weight * ((left - mean) ** 2 + deviation**2)).sum())
    each: Floats = weight.sum(axis=(1, 2, 3, 4, 5))
    return RemainingWork(mean=mean, deviation=math.sqrt(spread), way_weights=each)


def fitted_points(count: int) -> list[int]:
    """Which of `count` epochs a fit uses: all up to MOST_POINTS, else half of them the newest, half spread before."""
    if count <= MOST_POINTS:
        return list(range(count))
    newest = MOST_POINTS // 2
    earlier = np.linspace(0, count - newest - 1, MOST_POINTS - newest).round().astype(int)
    return [*earlier.tolist(), *range(count - newest, count)]


@dataclass(frozen=True, slots=True)
class _Axes:
    """The axes of the hypotheses: (C ways, Q powers, G floors, D drifts, N noises, K points of the whole work)."""

    target_loss: float
    power: Floats
    floor: Floats
    gap: Floats
    drift: Floats
    noise: Floats
    whole: Floats
    whole_deviation: Floats

    def log_prior(self, grid: FilterGrid, floor_share: tuple[float, float]) -> Floats:
        share, spread = floor_share
        middle = math.log(share / (1 - share))
        logits = np.log(grid.floors / (1 - grid.floors))
        floors = -0.5 * ((logits - middle) / spread) ** 2
        points = np.log(np.array([weight for _, weight in WHOLE_POINTS]))
        result: Floats = floors[None, None, :, None, None, None] + points[None, None, None, None, None, :]
        return result

    def y(self, loss: float) -> Floats:
        """(1, Q, G, 1, 1, 1) the transformed loss; the gap of the target to its floor is the unit of loss."""
        height = np.maximum((loss - self.floor) / self.gap, 1e-3)
        bent = np.where(self.power == 0, 1.0, self.power)
        result: Floats = np.where(self.power == 0, -np.log(height), -np.sign(-bent) * height**-bent / np.abs(bent))
        return result

    def loss_per_y(self, loss: float) -> Floats:
        """(1, Q, G, 1, 1, 1) |dl / dy|."""
        height = np.maximum((loss - self.floor) / self.gap, 1e-3)
        result: Floats = self.gap * height ** (self.power + 1)
        return result


def _axes(grid: FilterGrid, target_loss: float, whole: tuple[float, float]) -> _Axes:
    def along(values: Sequence[float] | Floats, axis: int) -> Floats:
        shape = [1] * 6
        shape[axis] = len(values)
        return np.asarray(values, dtype=np.float64).reshape(shape)

    middle, spread = whole
    floor = target_loss - (1 - along(grid.floors, 2)) * max(abs(target_loss), 1e-9)
    points = along([middle * math.exp(at * spread) for at, _ in WHOLE_POINTS], 5)
    return _Axes(
        target_loss=target_loss,
        power=along(grid.powers, 1),
        floor=floor,
        gap=target_loss - floor,
        drift=along(grid.drifts, 3),
        noise=along(grid.noises, 4),
        whole=points,
        whole_deviation=np.full_like(points, SLOPE_DEVIATION * 1.2 * spread),
    )


def _filtered(losses: Floats, ways: Floats, axes: _Axes) -> tuple[Floats, Floats, Floats]:
    """(log weight, remaining work, its deviation) of every hypothesis after the losses."""
    target = axes.y(axes.target_loss)
    level = axes.y(float(losses[0]))
    prior_slope = np.maximum(target - level, 1e-9) / axes.whole
    scale = max(float(losses[0]) - LEVEL * axes.target_loss, 1e-9)
    slope = prior_slope + 0 * ways[:, :1, None, None, None, None]
    p_yy = (axes.noise * scale / axes.loss_per_y(float(losses[0]))) ** 2 + 0 * slope
    p_yb = np.zeros_like(p_yy)
    p_bb = (axes.whole_deviation * prior_slope) ** 2 + 0 * p_yy
    level = level + 0 * p_yy
    score = np.zeros_like(p_yy)
    for index in range(1, len(losses)):
        step = (ways[:, index] - ways[:, index - 1])[:, None, None, None, None, None]
        level = level + slope * step
        p_yy = p_yy + 2 * step * p_yb + step**2 * p_bb + (PROGRESS_NOISE * slope) ** 2 * step
        p_yb = p_yb + step * p_bb
        p_bb = p_bb + (axes.drift * prior_slope) ** 2 * step
        loss = float(losses[index])
        height = max(loss - LEVEL * axes.target_loss, 0.05 * scale)
        per_y = axes.loss_per_y(loss)
        error = axes.y(loss) - level
        variance = p_yy + (axes.noise * height / per_y) ** 2
        score = score - 0.5 * (TAIL_DEGREES + 1) * np.log1p(error**2 / variance / TAIL_DEGREES)
        score = score - 0.5 * np.log(variance * per_y**2)
        gain_y, gain_b = p_yy / variance, p_yb / variance
        level, slope = level + gain_y * error, slope + gain_b * error
        p_bb = p_bb - gain_b * p_yb
        p_yb = p_yb * (1 - gain_y)
        p_yy = p_yy * (1 - gain_y)
    sure = np.maximum(slope, LEAST_SLOPE * prior_slope)
    left = (target - level) / sure
    deviation = np.sqrt(np.abs(p_yy + 2 * left * p_yb + left**2 * p_bb)) / sure
    return score, left, np.minimum(deviation, axes.whole)
