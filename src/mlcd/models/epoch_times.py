"""The time of an epoch on n functions of m MB, learnt from the epochs so far, around trends of memory and crowding.

    T(n, m) = (W(n, m)/n + U(n, m)) (1 + i + j sqrt(n/1000)) + e + f n

W is the work that functions share, U that of each function; every epoch measures both (its phases). Their logarithms
are Gaussian processes: a trend (speed as a power of memory, updates slower with n), and deviations from it that are
alike for similar memory and similar n (Ornstein-Uhlenbeck). So what was measured near a fleet counts, and a size whose
speed was never seen follows the trend. What is in no phase is waiting for slower functions, a share i + j sqrt(n/1000)
of the work, and starting functions, e + f n; non-negative least squares tell them apart.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from mlcd.trial.epoch import Epoch

Floats = NDArray[np.float64]

REFERENCE_MB = 1024.0
MEMORY_DEVIATION, MEMORY_LENGTH = 0.25, 0.7
"""Deviation of the log speed from its trend over memory, and the log ratio of memory sizes at which it is forgotten."""
CROWD_DEVIATION, CROWD_LENGTH = 0.15, 1.5
"""The same for the number of functions."""
RUN_DEVIATION = 0.06
"""Deviation of the logarithm of times between trainings of the same workload."""
PART_DEVIATION = 0.01
"""Deviation of the logarithm of a phase measured over a share of an epoch is this / share: a slow function's last round
and the start of containers weigh more in a short part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimesPrior:
    """The belief before the first epoch: medians, with deviations of logarithms unless stated otherwise.

    seconds_per_sample, seconds_per_put   of W and U, on 1,024 MB
    memory_power, contention   exponent of memory and relative growth of U by 1,000 functions; not of logarithms
    noise                      of a phase's time from epoch to epoch
    """

    seconds_per_sample: tuple[float, float]
    seconds_per_put: tuple[float, float]
    memory_power: tuple[float, float]
    contention: tuple[float, float]
    noise: float


@dataclass(frozen=True, kw_only=True, eq=False)
class EpochTimes:
    """The posterior; `weights` (2T,) turn covariances with the T measured fleets into predictions."""

    prior: TimesPrior
    samples: int
    puts: int
    functions: Floats
    memory_mb: Floats
    weights: Floats
    idle_share: tuple[float, float] = (0.0, 0.0)
    epoch_seconds: float = 0.0
    call_seconds: float = 0.0

    @classmethod
    def fit(
        cls,
        history: Sequence[Epoch],
        *,
        samples: int,
        puts: int,
        prior: TimesPrior,
        earlier: Sequence[Epoch] = (),
    ) -> "EpochTimes":
        """After `history`, which may be empty, and epochs of earlier trainings, which deviate by RUN_DEVIATION more."""
        idle, starting = fit_overhead(history or earlier)
        known = [
            (epoch, extra)
            for epochs, extra in ((history, 0.0), (earlier, RUN_DEVIATION))
            for epoch in epochs
            if epoch.fetch.mean_seconds + epoch.compute.mean_seconds > 0 and epoch.update.mean_seconds > 0
        ]
        functions = np.array([float(e.fleet.functions) for e, _ in known])
        found = cls(
            prior=prior,
            samples=samples,
            puts=puts,
            functions=functions,
            memory_mb=np.array([float(e.fleet.memory_mb) for e, _ in known]),
            weights=np.zeros(2 * len(known)),
            idle_share=idle,
            epoch_seconds=starting[0],
            call_seconds=starting[1],
        )
        if not known:
            return found
        share = np.array([e.fleet.share for e, _ in known])
        shared = np.array([e.fetch.mean_seconds + e.compute.mean_seconds for e, _ in known])
        update = np.array([e.update.mean_seconds for e, _ in known])
        noise = np.sqrt(prior.noise**2 + (PART_DEVIATION / share) ** 2 + np.array([extra for _, extra in known]) ** 2)
        mean = found.trend(functions, found.memory_mb)
        rest = np.concatenate([np.log(shared / share * functions) - mean[0], np.log(update / share) - mean[1]])
        cover = found.covariance(functions, found.memory_mb) + np.diag(np.concatenate([noise, noise]) ** 2)
        return replace(found, weights=np.linalg.solve(cover, rest))

    def trend(self, functions: Floats, memory_mb: Floats) -> tuple[Floats, Floats]:
        """(log W, log U) by the prior."""
        prior, size = self.prior, np.log(memory_mb / REFERENCE_MB)
        shared = math.log(prior.seconds_per_sample[0] * self.samples) - prior.memory_power[0] * size
        each = math.log(prior.seconds_per_put[0] * self.puts) - prior.memory_power[0] * size
        return shared + 0 * functions, each + prior.contention[0] * functions / 1000

    def covariance(self, functions: Floats, memory_mb: Floats) -> Floats:
        """(2A, 2T) between (log W, log U) of A fleets and of the T measured ones."""
        prior = self.prior
        size, known = np.log(memory_mb / REFERENCE_MB)[:, None], np.log(self.memory_mb / REFERENCE_MB)[None, :]
        memory = prior.memory_power[1] ** 2 * size * known
        memory = memory + MEMORY_DEVIATION**2 * np.exp(-np.abs(size - known) / MEMORY_LENGTH)
        n, measured = functions[:, None], self.functions[None, :]
        crowd = CROWD_DEVIATION**2 * np.exp(-np.abs(np.log(n) - np.log(measured)) / CROWD_LENGTH)
        shared = prior.seconds_per_sample[1] ** 2 + memory + crowd
        each = prior.seconds_per_put[1] ** 2 + memory + crowd + prior.contention[1] ** 2 * n * measured / 1e6
        return np.block([[shared, memory], [memory, each]])

    def parts(self, functions: Floats, memory_mb: Floats) -> tuple[Floats, Floats]:
        """(W / n, U) of (A,) fleets: seconds of the work that functions share, and of that of each."""
        shared, each = self.trend(functions, memory_mb)
        if len(self.functions):
            found = self.covariance(functions, memory_mb) @ self.weights
            shared, each = shared + found[: len(functions)], each + found[len(functions) :]
        return np.exp(shared) / functions, np.exp(each)

    def seconds(self, functions: Floats, memory_mb: Floats) -> Floats:
        """(A,) predicted epoch times."""
        shared, each = self.parts(functions, memory_mb)
        idle = 1 + self.idle_share[0] + self.idle_share[1] * np.sqrt(functions / 1000)
        result: Floats = (shared + each) * idle + self.overhead(functions)
        return result

    def overhead(self, functions: Floats) -> Floats:
        """The part of it that is the same for any part of an epoch."""
        result: Floats = self.epoch_seconds + self.call_seconds * functions
        return result


def fit_overhead(history: Sequence[Epoch]) -> tuple[tuple[float, float], tuple[float, float]]:
    """((i, j), (e, f)): the time in no phase, (i + j sqrt(n/1000)) busy + e + f n, by non-negative least squares.

    Zeros before the first epoch. Regularised slightly towards 0, all four alike at the mean epoch: one epoch cannot
    separate them and is split evenly.
    """
    if not history:
        return (0.0, 0.0), (0.0, 0.0)
    busy = np.array([e.fetch.mean_seconds + e.compute.mean_seconds + e.update.mean_seconds for e in history])
    over = np.array([max(0.0, e.seconds - b) for e, b in zip(history, busy, strict=True)])
    n = np.array([float(e.fleet.functions) for e in history])
    rows = np.stack([busy, busy * np.sqrt(n / 1000), np.ones_like(n), n], axis=1)
    scale = np.maximum(rows.mean(axis=0), 1e-12)
    weigh = 1 / np.maximum(0.05 * busy, 0.2)  # an epoch's time deviates in proportion
    unit = float((weigh * rows[:, 2]).mean())
    left = np.concatenate([rows / scale * weigh[:, None], np.eye(4) * 0.1 * unit])
    found, _ = nnls(left, np.concatenate([over * weigh, np.zeros(4)]))
    i, j, e, f = (float(v) for v in found / scale)
    return (i, j), (e, f)
