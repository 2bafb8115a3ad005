"""What the next epochs on functions will take, cost and bring, learnt from the epochs so far.

Time.  T(n, m) = W m^-p / n + U m^-p exp(c n/1000): what n functions share, and what each does by itself. Every epoch
       tells both parts apart (its phases), so that ln W, ln U, p and c are a Bayesian linear regression on logarithms.
Loss.  l(k) = 1/(b0 k + b1) + b2 after k effective epochs (Optimus, EuroSys 2018; MLLess's first phase), b2 on a grid
       weighed by how well the line 1/(l - b2) = b0 k + b1 fits and by a prior.
Gain.  An epoch of n functions brings 1 + a (1 - s) sqrt(n/1000) - b s n/1000 effective epochs at stage s of the way.

The priors are medians over the simulator's training workloads (benchmarks/fit_epoch_prior.py) and at least their
deviations: wider for times, since real jobs differ more. None was chosen on the paper's rows or an unseen workload.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlcd.trial.epoch import Epoch

Floats = NDArray[np.float64]

REFERENCE_MB = 1024.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochPrior:
    """What is believed before the first epoch: medians, and deviations of logarithms where not said otherwise.

    seconds_per_sample   of W, on 1,024 MB, and its deviation
    seconds_per_put      of U
    memory_power, contention   p and c with their deviations, not of logarithms
    epochs               effective epochs to the target
    floor_share          b2 over the target loss; the deviation is of its logit
    early_gain, staleness   a and b: known, not learnt in one run
    noise                of a phase's time from epoch to epoch
    """

    seconds_per_sample: tuple[float, float] = (0.0055, 0.7)
    seconds_per_put: tuple[float, float] = (1.34, 0.7)
    memory_power: tuple[float, float] = (0.883, 0.05)
    contention: tuple[float, float] = (0.05, 0.03)
    epochs: tuple[float, float] = (10.7, 0.25)
    floor_share: tuple[float, float] = (0.82, 0.9)
    early_gain: float = 0.471
    staleness: float = 0.327
    noise: float = 0.05


PRIOR = EpochPrior()
FLOORS = 1 / (1 + np.exp(-np.linspace(-3.0, 5.0, 33)))
"""Shares of the target loss that are tried as the floor."""


@dataclass(frozen=True, kw_only=True)
class EpochModel:
    """One fit. Times on 1,024 MB; `epochs_left` effective epochs to the target, with its deviation."""

    work_seconds: float
    update_seconds: float
    memory_power: float
    contention: float
    overhead_seconds: float
    done: float
    epochs_left: float
    epochs_left_deviation: float
    early_gain: float
    staleness: float

    def seconds(self, functions: Floats, memory_mb: Floats) -> Floats:
        """Predicted epoch time, elementwise."""
        slowness = (memory_mb / REFERENCE_MB) ** -self.memory_power
        shared = self.work_seconds / functions
        each = self.update_seconds * np.exp(self.contention * functions / 1000)
        result: Floats = (shared + each) * slowness + self.overhead_seconds
        return result

    @property
    def stage(self) -> float:
        """How much of the way to the target is done, in [0, 1]."""
        whole = self.done + self.epochs_left
        return min(1.0, self.done / whole) if whole > 0 else 1.0

    def gain(self, functions: Floats, stage: Floats) -> Floats:
        """Effective epochs that an epoch brings; broadcasts."""
        return gain(functions, stage, early_gain=self.early_gain, staleness=self.staleness)


def gain(functions: Floats, stage: Floats | float, *, early_gain: float, staleness: float) -> Floats:
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
    """The model after `history`, which may be empty. `first_loss` before it, where it is known, is one more point."""
    work, update, power, contention = _fit_times(history, samples=samples, puts=max(puts, 1), prior=prior)
    done, left, deviation = _fit_loss([e.loss for e in history], _functions(history), (first_loss, target_loss), prior)
    return EpochModel(
        work_seconds=work,
        update_seconds=update,
        memory_power=power,
        contention=contention,
        overhead_seconds=_overhead(history),
        done=done,
        epochs_left=left,
        epochs_left_deviation=deviation,
        early_gain=prior.early_gain,
        staleness=prior.staleness,
    )


def _functions(history: Sequence[Epoch]) -> Floats:
    return np.array([float(e.fleet.functions) for e in history])


def _overhead(history: Sequence[Epoch]) -> float:
    """Median time of an epoch that is in no phase: dispatch, barrier, cold starts."""
    if not history:
        return 0.0
    phases = [e.fetch.mean_seconds + e.compute.mean_seconds + e.update.mean_seconds for e in history]
    return float(np.median([max(0.0, e.seconds - p) for e, p in zip(history, phases, strict=True)]))


def _fit_times(
    history: Sequence[Epoch], *, samples: int, puts: int, prior: EpochPrior
) -> tuple[float, float, float, float]:
    """(W, U, p, c): the regression's posterior mean. Rows are ln(n phase) = ln W - p ln m and ln U - p ln m + c n."""
    mean = np.array(
        [
            math.log(prior.seconds_per_sample[0] * samples),
            math.log(prior.seconds_per_put[0] * puts),
            prior.memory_power[0],
            prior.contention[0],
        ]
    )
    widths = (prior.seconds_per_sample[1], prior.seconds_per_put[1], prior.memory_power[1], prior.contention[1])
    precision = np.diag([1 / width**2 for width in widths])
    weighted = precision @ mean
    for epoch in history:
        n, log_memory = epoch.fleet.functions, math.log(epoch.fleet.memory_mb / REFERENCE_MB)
        shared = (epoch.fetch.mean_seconds + epoch.compute.mean_seconds) * n
        rows = (((1.0, 0.0, -log_memory, 0.0), shared), ((0.0, 1.0, -log_memory, n / 1000), epoch.update.mean_seconds))
        for row, seconds in rows:
            if seconds <= 0:
                continue
            x = np.array(row)
            precision = precision + np.outer(x, x) / prior.noise**2
            weighted = weighted + x * math.log(seconds) / prior.noise**2
    fitted = np.linalg.solve(precision, weighted)
    return math.exp(fitted[0]), math.exp(fitted[1]), float(fitted[2]), max(0.0, float(fitted[3]))


def _fit_loss(
    losses: Sequence[float], functions: Floats, ends: tuple[float | None, float], prior: EpochPrior
) -> tuple[float, float, float]:
    """(effective epochs done, effective epochs left, deviation of the latter)."""
    first_loss, target_loss = ends
    whole, spread = prior.epochs
    done, left, deviation = 0.0, whole, whole * spread
    if not losses:
        return done, left, deviation
    for _ in range(3):  # an epoch's gain depends on its stage, which depends on what is left
        progress = _progress(functions, done + left if done else whole, prior)
        done = float(progress[-1])
        if first_loss is None:
            left, deviation = _left(np.array(losses), progress, target_loss, prior)
        else:
            points = np.array([first_loss, *losses]), np.array([0.0, *progress])
            left, deviation = _left(*points, target_loss, prior)
    return done, left, deviation


def _progress(functions: Floats, whole: float, prior: EpochPrior) -> Floats:
    """(T,) effective epochs after each epoch."""
    done, found = 0.0, []
    for n in functions:
        stage = min(done / whole, 1.0)
        done += float(gain(np.array(n), stage, early_gain=prior.early_gain, staleness=prior.staleness))
        found.append(done)
    return np.array(found)


def _left(losses: Floats, progress: Floats, target_loss: float, prior: EpochPrior) -> tuple[float, float]:
    """Mean and deviation of the effective epochs left, over the floors that are tried."""
    done = float(progress[-1])
    if losses[-1] <= target_loss:
        return 0.0, 0.0
    expected, spread = prior.epochs
    if len(losses) == 1 or losses[-1] >= losses[0]:
        left = max(expected - done, 1.0)
        return left, expected * spread
    gap_to_zero = abs(target_loss)
    floors = target_loss - (1 - FLOORS) * gap_to_zero
    height = 1 / (losses[:, None] - floors[None, :])  # (T, G): straight lines over the progress, where b2 is right
    x = progress - progress.mean()
    slope = (x @ (height - height.mean(axis=0))) / (x @ x)
    usable = slope > 0
    if not usable.any():
        return max(expected - done, 1.0), expected * spread
    slope = np.where(usable, slope, 1.0)
    line = height.mean(axis=0) + slope * x[:, None]
    errors = (height - line) / slope  # in effective epochs
    # The newest loss is known: the way left is counted from it, along the line.
    left = (1 / (target_loss - floors) - height[-1]) / slope
    logit = np.log(FLOORS / (1 - FLOORS))
    prior_logit = math.log(prior.floor_share[0] / (1 - prior.floor_share[0]))
    score = -0.5 * (errors**2).sum(axis=0) / 0.03**2 - 0.5 * ((logit - prior_logit) / prior.floor_share[1]) ** 2
    score += -0.5 * (np.log((done + np.maximum(left, 0.01)) / expected) / spread) ** 2
    weight = np.where(usable, np.exp(score - score[usable].max()), 0.0)
    weight /= weight.sum()
    mean = float(weight @ left)
    return max(mean, 0.05), float(math.sqrt(max(weight @ (left - mean) ** 2, 0.0)))
