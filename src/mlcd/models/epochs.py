"""Time, cost and progress of the next epochs on functions, learnt from the epochs so far.

Time.  T(n, m) = W m^-p / n + U m^-p exp(c n/1000): work shared by n functions, and work of each function. Every epoch
       measures both parts (its phases), so that ln W, ln U, p and c follow from a Bayesian linear regression on
       logarithms. Below 1,536 MB, where the prior of p was not fitted, speed is in proportion to memory.
       Time outside the phases (dispatch, barrier, cold starts) is e + f n, with e, f >= 0: functions that are started
       one after another wait for each other.
Loss.  l(k) = 1/(b0 k + b1) + b2 after k effective epochs, by the steps from loss to loss (mlcd.models.loss_curve).
Gain.  An epoch of n functions gains 1 + a (1 - s) sqrt(n/1000) - b s n/1000 effective epochs at stage s in [0, 1].

The priors are medians over the simulator's training workloads (benchmarks/fit_epoch_prior.py), with at least their
deviations: more for times, since real jobs differ more. None was chosen on the paper's rows or an unseen workload.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from mlcd.models.loss_curve import CurvePrior, by_steps, floor_shares
from mlcd.trial.epoch import Epoch

Floats = NDArray[np.float64]

REFERENCE_MB = 1024.0
PROPORTIONAL_MB = 1536.0
"""Below this, speed is proportional to memory: clouds assign processors in proportion, up to about one."""


PART_DEVIATION = 0.01
"""Deviation of the logarithm of a phase measured over a share of an epoch is this / share: fixed costs weigh more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochPrior:
    """The belief before the first epoch: medians, and deviations of logarithms unless stated otherwise.

    seconds_per_sample   of W, on 1,024 MB, and its deviation
    seconds_per_put      of U
    memory_power, contention   p and c with their deviations, not of logarithms
    epochs               effective epochs to the target
    floor_share          b2 over the target loss; the deviation is of its logit
    early_gain, staleness   a and b
    noise                of a phase's time from epoch to epoch
    progress_noise       of the progress of an effective epoch
    noise_degrees        number of steps from loss to loss that weigh as much as `progress_noise`, which is a guess
    """

    seconds_per_sample: tuple[float, float] = (0.0055, 0.7)
    seconds_per_put: tuple[float, float] = (1.34, 0.7)
    memory_power: tuple[float, float] = (0.883, 0.05)
    contention: tuple[float, float] = (0.05, 0.03)
    epochs: tuple[float, float] = (10.7, 0.32)
    floor_share: tuple[float, float] = (0.82, 0.9)
    early_gain: tuple[float, float] = (0.471, 0.3)
    staleness: tuple[float, float] = (0.327, 0.3)
    noise: float = 0.05
    progress_noise: float = 0.012
    noise_degrees: float = 4.0

    @property
    def curve(self) -> CurvePrior:
        """The prior of the loss curve."""
        return CurvePrior(whole=self.epochs, floor_share=self.floor_share)


PRIOR = EpochPrior()
FLOOR_SHARES = floor_shares(-3.0, 5.0, 129)
"""Candidate floors, as shares of the target loss."""


@dataclass(frozen=True, kw_only=True)
class EpochModel:
    """A fitted model. Times on 1,024 MB; `epochs_left` effective epochs to the target, with its deviation."""

    work_seconds: float
    update_seconds: float
    memory_power: float
    contention: float
    epoch_seconds: float
    call_seconds: float
    done: float
    epochs_left: float
    epochs_left_deviation: float
    early_gain: float
    staleness: float

    def seconds(self, functions: Floats, memory_mb: Floats) -> Floats:
        """Predicted epoch time, elementwise."""
        slowness = (np.maximum(memory_mb, PROPORTIONAL_MB) / REFERENCE_MB) ** -self.memory_power
        slowness = slowness * np.maximum(PROPORTIONAL_MB / memory_mb, 1.0)
        shared = self.work_seconds / functions
        each = self.update_seconds * np.exp(self.contention * functions / 1000)
        result: Floats = (shared + each) * slowness + self.overhead(functions)
        return result

    def overhead(self, functions: Floats) -> Floats:
        """The part of it that is the same for any part of an epoch."""
        result: Floats = self.epoch_seconds + self.call_seconds * functions
        return result

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
    """The model after `history`, which may be empty. `first_loss`, the loss before it, is one more point if known."""
    work, update, power, contention = fit_times(history, samples=samples, puts=max(puts, 1), prior=prior)
    epoch_seconds, call_seconds = fit_overhead(history)
    losses = _fit_loss(history, (first_loss, target_loss), prior)
    return EpochModel(
        work_seconds=work,
        update_seconds=update,
        memory_power=power,
        contention=contention,
        epoch_seconds=epoch_seconds,
        call_seconds=call_seconds,
        done=losses.done,
        epochs_left=losses.left,
        epochs_left_deviation=losses.deviation,
        early_gain=losses.early_gain,
        staleness=losses.staleness,
    )


def _functions(history: Sequence[Epoch]) -> Floats:
    return np.array([float(e.fleet.functions) for e in history])


def fit_overhead(history: Sequence[Epoch]) -> tuple[float, float]:
    """(e, f): seconds of an epoch in no phase, e + f n, by non-negative least squares; zeros before the first epoch.

    Regularised slightly towards 0, both parts equally at the mean n: one epoch cannot separate them and is split
    evenly.
    """
    if not history:
        return 0.0, 0.0
    phases = [e.fetch.mean_seconds + e.compute.mean_seconds + e.update.mean_seconds for e in history]
    over = np.array([max(0.0, e.seconds - p) for e, p in zip(history, phases, strict=True)])
    functions = _functions(history)
    scale = float(functions.mean())
    rows = np.stack([np.ones_like(functions), functions / scale], axis=1)
    ridge = np.eye(2) * 0.1
    found, _ = nnls(np.concatenate([rows, ridge]), np.concatenate([over, np.zeros(2)]))
    return float(found[0]), float(found[1]) / scale


def fit_times(
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
        n, memory = epoch.fleet.functions, epoch.fleet.memory_mb
        log_memory = math.log(max(memory, PROPORTIONAL_MB) / REFERENCE_MB)
        small = max(PROPORTIONAL_MB / memory, 1.0)
        shared = (epoch.fetch.mean_seconds + epoch.compute.mean_seconds) * n
        rows = (((1.0, 0.0, -log_memory, 0.0), shared), ((0.0, 1.0, -log_memory, n / 1000), epoch.update.mean_seconds))
        noise = math.hypot(prior.noise, PART_DEVIATION / epoch.fleet.share)
        for row, seconds in rows:
            if seconds <= 0:
                continue
            x = np.array(row)
            precision = precision + np.outer(x, x) / noise**2
            weighted = weighted + x * math.log(seconds / epoch.fleet.share / small) / noise**2
    fitted = np.linalg.solve(precision, weighted)
    return math.exp(fitted[0]), math.exp(fitted[1]), float(fitted[2]), max(0.0, float(fitted[3]))


@dataclass(frozen=True, slots=True)
class LossHistory:
    """(T,) losses of one training, and (C, T) the effective epochs at each by every one of C gains."""

    losses: Floats
    ways: Floats

    @classmethod
    def of(
        cls,
        history: Sequence[Epoch],
        gains: Sequence[tuple[float, float]],
        *,
        whole: float,
        first_loss: float | None,
    ) -> "LossHistory":
        """After `history`, if the target needs `whole` effective epochs; including the loss before it if known."""
        losses = np.array([e.loss for e in history])
        ways = np.stack([progress_of(history, whole, pair) for pair in gains])
        if first_loss is None:
            return cls(losses, ways)
        return cls(np.concatenate([[first_loss], losses]), np.concatenate([np.zeros((len(gains), 1)), ways], axis=1))


@dataclass(frozen=True, slots=True)
class LossFit:
    """Effective epochs done and remaining, the deviation of the latter, and the two coefficients of the gain."""

    done: float
    left: float
    deviation: float
    early_gain: float
    staleness: float


def _fit_loss(history: Sequence[Epoch], ends: tuple[float | None, float], prior: EpochPrior) -> LossFit:
    """The posterior mean over floors and gains; the prior while nothing is known."""
    first_loss, target_loss = ends
    losses = [e.loss for e in history]
    whole, spread = prior.epochs
    if losses and losses[-1] <= target_loss:
        done = float(progress_of(history, whole, (prior.early_gain[0], prior.staleness[0]))[-1])
        return LossFit(done, 0.0, 0.0, prior.early_gain[0], prior.staleness[0])
    gains = [(a, b) for a in _around(prior.early_gain) for b in _around(prior.staleness)]
    done, left = 0.0, whole
    fitted: LossFit | None = None
    for _ in range(3 if losses else 0):  # an epoch's gain depends on its stage, which depends on what remains
        found = fit_loss_curve(
            [LossHistory.of(history, gains, whole=done + left, first_loss=first_loss)], gains, target_loss, prior
        )
        if found is None:
            break
        fitted = replace(found[1], left=max(found[1].left, 0.02))
        done, left = fitted.done, fitted.left
    if fitted is not None:
        return fitted
    middle = prior.early_gain[0], prior.staleness[0]
    done = float(progress_of(history, whole, middle)[-1]) if losses else 0.0
    return LossFit(done, max(whole - done, 1.0), whole * spread, *middle)


def _around(prior: tuple[float, float]) -> tuple[float, float, float]:
    """A median and 1.2 deviations of the logarithm on either side: three points of equal weight."""
    middle, spread = prior
    return middle * math.exp(-1.2 * spread), middle, middle * math.exp(1.2 * spread)


def progress_of(history: Sequence[Epoch], whole: float, gains: tuple[float, float]) -> Floats:
    """(T,) effective epochs after each epoch."""
    done, found = 0.0, []
    for epoch in history:
        stage = min(done / whole, 1.0)
        functions = np.array(float(epoch.fleet.functions))
        done += epoch.fleet.share * float(gain(functions, stage, early_gain=gains[0], staleness=gains[1]))
        found.append(done)
    return np.array(found)


def fit_loss_curve(
    runs: Sequence[LossHistory], gains: Sequence[tuple[float, float]], target_loss: float, prior: EpochPrior
) -> tuple[float, LossFit] | None:
    """(floor over target, fit), averaged over floors and gains, for `runs` on one curve, the current one last.

    If the last loss is below the target, the remaining epochs are negative. None if no line rises.
    """
    found = by_steps(
        [(run.losses, run.ways) for run in runs],
        target_loss,
        shares=FLOOR_SHARES,
        noise=prior.progress_noise,
        noise_degrees=prior.noise_degrees,
        prior=prior.curve,
    )
    if found is None:
        return None
    each = found.way_weights
    fit = LossFit(
        done=float(each @ runs[-1].ways[:, -1]),
        left=found.mean_left,
        deviation=found.left_deviation,
        early_gain=float(each @ np.array([a for a, _ in gains])),
        staleness=float(each @ np.array([b for _, b in gains])),
    )
    return found.floor_share, fit
