"""Time, cost and progress of the next epochs on functions, learnt from the epochs so far.

Time.  mlcd.models.epoch_times: trends of memory and crowding, and learnt deviations from them.
Loss.  mlcd.models.loss_filter: several curve families, and none, weighed by how well they predicted.
Gain.  An epoch of n functions gains 1 + a (1 - s) sqrt(n/1000) - b s n/1000 effective epochs at stage s in [0, 1].
       Several pairs (a, b) are weighed along with the curves: none, many functions helping early or hindering.

The priors are medians over the simulator's training workloads (benchmarks/fit_epoch_prior.py), with larger deviations:
real jobs differ more. None was chosen on the paper's rows or on unseen workloads.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlcd.models.epoch_times import EpochTimes, TimesPrior
from mlcd.models.loss_curve import floor_shares
from mlcd.models.loss_filter import FilterGrid, fitted_points, remaining_work
from mlcd.trial.epoch import Epoch

Floats = NDArray[np.float64]

GRID = FilterGrid(floors=floor_shares(-2.5, 4.5, 8), noises=(0.004, 0.015))
"""The curves that are weighed."""
OTHER_GAINS = ((0.0, 0.0), (-0.25, 0.1), (-0.5, 0.2))
"""Effects of n that are weighed beside the prior's: none, and many functions hindering each other early in training."""
KNOWN_GAIN = 0.1
"""A prior whose gain deviates less than this comes from earlier runs: then OTHER_GAINS are not weighed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochPrior:
    """The belief before the first epoch: medians, and deviations of logarithms unless stated otherwise.

    seconds_per_sample   of the work that functions share, on 1,024 MB, and its deviation
    seconds_per_put      of that of each function
    memory_power, contention   with their deviations, not of logarithms
    epochs               effective epochs to the target
    floor_share          floor of the loss over the target loss; the deviation is of its logit
    early_gain, staleness   a and b
    noise                of a phase's time from epoch to epoch
    measured             epochs of earlier trainings of the same workload
    """

    seconds_per_sample: tuple[float, float] = (0.0055, 0.7)
    seconds_per_put: tuple[float, float] = (1.34, 0.7)
    memory_power: tuple[float, float] = (0.85, 0.15)
    contention: tuple[float, float] = (0.08, 0.15)
    epochs: tuple[float, float] = (10.7, 0.45)
    floor_share: tuple[float, float] = (0.82, 1.3)
    early_gain: tuple[float, float] = (0.471, 0.4)
    staleness: tuple[float, float] = (0.327, 0.4)
    noise: float = 0.05
    measured: tuple[Epoch, ...] = ()

    @property
    def times(self) -> TimesPrior:
        """The prior of the times."""
        return TimesPrior(
            seconds_per_sample=self.seconds_per_sample,
            seconds_per_put=self.seconds_per_put,
            memory_power=self.memory_power,
            contention=self.contention,
            noise=self.noise,
        )

    @property
    def gains(self) -> tuple[tuple[float, float], ...]:
        """The pairs (a, b) that are weighed."""
        around = tuple(zip(_around(self.early_gain), _around(self.staleness), strict=True))
        return around if self.early_gain[1] < KNOWN_GAIN else (*around, *OTHER_GAINS)


PRIOR = EpochPrior()


@dataclass(frozen=True, kw_only=True)
class EpochModel:
    """A fitted model; `epochs_left` effective epochs to the target, with its deviation."""

    times: EpochTimes
    done: float
    epochs_left: float
    epochs_left_deviation: float
    early_gain: float
    staleness: float

    def seconds(self, functions: Floats, memory_mb: Floats) -> Floats:
        """Predicted epoch time, elementwise."""
        return self.times.seconds(functions, memory_mb)

    def overhead(self, functions: Floats) -> Floats:
        """The part of it that is the same for any part of an epoch."""
        return self.times.overhead(functions)

    @property
    def stage(self) -> float:
        """The share of the effective epochs to the target that is done, in [0, 1]."""
        whole = self.done + self.epochs_left
        return min(1.0, self.done / whole) if whole > 0 else 1.0

    def usual_gain(self, functions: Floats) -> Floats:
        """Effective epochs per epoch halfway through the remaining progress, elementwise."""
        return self.gain(functions, np.array((1 + self.stage) / 2))

    def gain(self, functions: Floats, stage: Floats) -> Floats:
        """Effective epochs per epoch; broadcasts."""
        return gain(functions, stage, early_gain=self.early_gain, staleness=self.staleness)


def gain(functions: Floats, stage: Floats | float, *, early_gain: Floats | float, staleness: Floats | float) -> Floats:
    """1 + a (1 - s) sqrt(n/1000) - b s n/1000, at least 0.3."""
    early = early_gain * (1 - stage) * np.sqrt(functions / 1000)
    result: Floats = np.maximum(1 + early - staleness * stage * functions / 1000, 0.3)
    return result


def fit_epochs(
    history: Sequence[Epoch],
    *,
    samples: int,
    puts: int,
    target_loss: float,
    first_loss: float | None = None,
    prior: EpochPrior = PRIOR,
) -> EpochModel:
    """The model after `history`, which may be empty. `first_loss`, the loss before it, is one more point if known."""
    fitted = [history[index] for index in fitted_points(len(history))]
    times = EpochTimes.fit(fitted, samples=samples, puts=max(puts, 1), prior=prior.times, earlier=prior.measured)
    losses = _fit_loss(history, (first_loss, target_loss), prior)
    return EpochModel(
        times=times,
        done=losses.done,
        epochs_left=losses.left,
        epochs_left_deviation=losses.deviation,
        early_gain=losses.early_gain,
        staleness=losses.staleness,
    )


@dataclass(frozen=True, slots=True)
class LossFit:
    """Effective epochs done and remaining, the deviation of the latter, and the two coefficients of the gain."""

    done: float
    left: float
    deviation: float
    early_gain: float
    staleness: float


def _fit_loss(history: Sequence[Epoch], ends: tuple[float | None, float], prior: EpochPrior) -> LossFit:
    """The posterior mean over curves and gains; the prior while nothing is known."""
    first_loss, target_loss = ends
    losses = np.array(([first_loss] if first_loss is not None else []) + [e.loss for e in history])
    whole, spread = prior.epochs
    middle = prior.early_gain[0], prior.staleness[0]
    done = float(progress_of(history, whole, [middle])[0, -1]) if history else 0.0
    if history and losses[-1] <= target_loss:
        return LossFit(done, 0.0, 0.0, *middle)
    if not history or len(losses) < 2:
        return LossFit(done, max(whole - done, 1.0), whole * spread, *middle)
    gains, fitted = prior.gains, LossFit(done, max(whole - done, 1.0), whole * spread, *middle)
    for _ in range(2):  # an epoch's gain depends on its stage, which depends on what remains
        ways = progress_of(history, fitted.done + fitted.left, gains)
        if first_loss is not None:
            ways = np.concatenate([np.zeros((len(gains), 1)), ways], axis=1)
        found = remaining_work(losses, ways, target_loss, grid=GRID, whole=prior.epochs, floor_share=prior.floor_share)
        early, stale = (float(found.way_weights @ np.array(values)) for values in zip(*gains, strict=True))
        done = float(found.way_weights @ ways[:, -1])
        fitted = LossFit(done, max(found.mean, 0.02), found.deviation, early, stale)
    return fitted


def _around(prior: tuple[float, float]) -> tuple[float, float, float]:
    """A median and 1.2 deviations of the logarithm on either side: three points of equal weight."""
    middle, spread = prior
    return middle * math.exp(-1.2 * spread), middle, middle * math.exp(1.2 * spread)


def progress_of(history: Sequence[Epoch], whole: float, gains: Sequence[tuple[float, float]]) -> Floats:
    """(C, T) effective epochs after each epoch, with each of C pairs (early gain, staleness)."""
    early_gain, staleness = (np.array(values) for values in zip(*gains, strict=True))
    found = np.zeros((len(history) + 1, len(gains)))
    for index, epoch in enumerate(history):
        stage, functions = np.minimum(found[index] / whole, 1.0), np.array(float(epoch.fleet.functions))
        gained = gain(functions, stage, early_gain=early_gain, staleness=staleness)
        found[index + 1] = found[index] + epoch.fleet.share * gained
    return found[1:].T
