"""How a workload behaves on functions: its time, its progress, its loss, and the random variation of each.

The form of each law follows what is known of functions and of asynchronous SGD; docs/siren.md states which parts have a
source and which are our interpretation. No scheduler except `informed` is told them.
"""

import math
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from mlcd.clouds.functions.sim.losses import Inverse, LossShape

Floats = NDArray[np.float64]
Count = TypeVar("Count", float, Floats)
"""A number of functions, or an array of them: the laws are elementwise."""

REFERENCE_MB = 1536
"""The memory size at which the paper's grid search is assumed to have run."""
FASTEST_MB = 3008
"""More memory than this gives no more speed: two CPUs, and the largest size at the time."""
LOSS_MEMORY_EPOCHS = 0.5
"""Effective epochs after which 1/e of a measured loss's deviation is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chance:
    """Random deviations from the laws.

    run           log-deviation of a whole run's times: the machines that it got, the hour of the day
    weather       log-deviation of each epoch's time
    straggler     probability that a function is slow; the barrier then waits for its last round, `slowness` x as long
    failure       probability that a call dies and is repeated
    cold_seconds  start time of a new container: one that did not run in the previous epoch, or not with this memory
    progress      log-deviation of an epoch's progress
    loss          log-deviation of a measured loss above the floor; two measurements that are LOSS_MEMORY_EPOCHS apart
                  have little of it in common, two in quick succession nearly all
    """

    run: float = 0.04
    weather: float = 0.03
    straggler: float = 0.002
    slowness: float = 3.0
    failure: float = 0.001
    cold_seconds: float = 0.6
    progress: float = 0.01
    loss: float = 0.0

    def __post_init__(self) -> None:
        if not (0 <= self.straggler < 1 and 0 <= self.failure < 0.5):
            raise ValueError("straggler: must be in [0, 1); failure: must be in [0, 0.5)")
        if min(self.run, self.weather, self.cold_seconds, self.progress, self.loss) < 0 or self.slowness < 1:
            raise ValueError(
                "run, weather, cold_seconds, progress, loss: must not be negative; slowness: must be at least 1"
            )


NO_DEVIATION = Chance(run=0.0, weather=0.0, straggler=0.0, failure=0.0, cold_seconds=0.0, progress=0.0)
"""No deviation from the laws."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionLaws:
    """The true behaviour of one workload. Times are for a function of 1,536 MB.

    work_seconds     an epoch on one function: fetching its samples and computing on them; n functions share it
    fetch_share      share of `work_seconds` that is fetching
    rounds, round_seconds   a function's updates of the parameters in an epoch, and the time of each
    contention       relative slowdown of each other's updates by 1,000 functions; it grows as n^contention_power
    storage_functions   storage serves this many functions at full speed; more take turns: n functions fetch and update
                     (1 + (n/storage_functions)^4)^(1/4) times as long. 0: no limit
    straggling       share of the busy time by which 1,000 functions wait for the slowest; it grows as ln(1 + n), as the
                     slowest of n does where delays have an exponential tail
    call_seconds     time to start one function; the cloud starts them one after another
    epoch_seconds    fixed time of an epoch, whatever its functions do
    memory_power     speed grows as memory to this power from 1,536 MB to `fastest_mb`; below 1,536 MB in proportion
    memory_step_mb   speed rises in steps of this size: processors are assigned whole. 0: it rises evenly
    working_set_mb   a call with less memory than this dies
    first_loss, floor_loss, rate   loss after k effective epochs: floor + 1/(rate k + 1/(first - floor)) without `shape`
    shape            of the loss curve: floor + (first - floor) shape(k)
    target_epochs    effective epochs at which the target loss is reached
    early_gain, half_gain_functions   early in training, updates of many functions reinforce each other like momentum
    staleness        late in training, they interfere: an epoch of n functions gains 1/(1 + staleness s n)
    critical_functions   functions whose updates are worth half as many, early in training, as by the critical batch of
                     McCandlish et al. (2018); five times as many at the target. 0: no such limit
    """

    work_seconds: float
    round_seconds: float
    rounds: int = 198
    fetch_share: float = 0.1
    contention: float = 0.0
    contention_power: float = 1.0
    storage_functions: float = 0.0
    straggling: float = 0.0
    call_seconds: float = 0.0
    epoch_seconds: float = 0.0
    memory_power: float = 0.9
    fastest_mb: float = FASTEST_MB
    memory_step_mb: float = 0.0
    working_set_mb: float = 400.0
    first_loss: float = 0.6931
    floor_loss: float = 0.25
    rate: float = 1.0
    target_epochs: float = 10.05
    early_gain: float = 0.95
    half_gain_functions: float = 800.0
    staleness: float = 3.7e-4
    critical_functions: float = 0.0
    shape: LossShape | None = None
    chance: Chance = field(default_factory=Chance)

    def __post_init__(self) -> None:
        if min(self.work_seconds, self.round_seconds, self.rounds, self.rate, self.target_epochs) <= 0:
            raise ValueError("work_seconds, round_seconds, rounds, rate, target_epochs: must be more than 0")
        if min(self.call_seconds, self.epoch_seconds) < 0 or self.fastest_mb < REFERENCE_MB:
            raise ValueError("call_seconds, epoch_seconds: must not be negative; fastest_mb: must be at least 1,536")
        if not (0 <= self.fetch_share < 1 and self.contention >= 0 and self.staleness >= 0 and self.early_gain >= 0):
            raise ValueError("fetch_share: must be in [0, 1); contention, staleness, early_gain: must not be negative")
        if not (self.first_loss > self.floor_loss and self.half_gain_functions > 0):
            raise ValueError("first_loss: must be more than floor_loss; half_gain_functions: must be more than 0")
        shares = (self.contention_power, self.storage_functions, self.straggling, self.memory_step_mb)
        if min(*shares, self.critical_functions) < 0:
            raise ValueError(
                "contention_power, storage_functions, straggling, memory_step_mb, critical_functions:"
                " must not be negative"
            )

    def speed(self, memory_mb: float) -> float:
        """The speed relative to 1,536 MB, whose own step counts if speed rises in steps."""
        return self._speed(memory_mb) / self._speed(REFERENCE_MB)

    def _speed(self, memory_mb: float) -> float:
        step = self.memory_step_mb
        size = (
            memory_mb if not step else max(math.floor(memory_mb / step), 1) * step if memory_mb >= step else memory_mb
        )
        share = min(size, self.fastest_mb) / REFERENCE_MB
        return share**self.memory_power if share >= 1 else share

    def fetch_seconds(self, functions: Count, memory_mb: float) -> Count:
        """Time of each function for fetching its samples."""
        alone: Count = self.work_seconds * self.fetch_share / functions / self.speed(memory_mb)
        fetching: Count = alone * self._queueing(functions)
        return fetching

    def parallel_seconds(self, functions: Count, memory_mb: float) -> Count:
        """Time of each function for fetching and computing: W / n where storage is no limit."""
        if not self.storage_functions:
            return self.work_seconds / functions / self.speed(memory_mb)
        compute = self.work_seconds * (1 - self.fetch_share) / functions / self.speed(memory_mb)
        return compute + self.fetch_seconds(functions, memory_mb)

    def update_seconds(self, functions: Count, memory_mb: float) -> Count:
        """Time of each function for all its rounds of updates."""
        crowd = 1 + self.contention * (functions / 1000) ** self.contention_power
        each: Count = self.rounds * self.round_seconds * crowd / self.speed(memory_mb)
        return each * self._queueing(functions)

    def _queueing(self, functions: Count) -> Count:
        """How much longer storage takes, because it serves no more than `storage_functions` at full speed."""
        if not self.storage_functions:
            return functions * 0 + 1.0
        longer: Count = (1 + (functions / self.storage_functions) ** 4) ** 0.25
        return longer

    def seconds(self, functions: Count, memory_mb: float) -> Count:
        """The mean time of an epoch.

        Within it, functions take their next mini-batch when they are free (hybrid synchronous parallel). So all end
        together, and each is charged until then, except for the time it waited to be started.
        """
        return self.busy_seconds(functions, memory_mb) + self.waiting_seconds(functions)

    def busy_seconds(self, functions: Count, memory_mb: float) -> Count:
        """The part of it that is charged: each function's own time, and its wait for the slowest."""
        busy = self.parallel_seconds(functions, memory_mb) + self.update_seconds(functions, memory_mb)
        if not self.straggling:
            return busy
        longest = np.log1p(functions) if isinstance(functions, np.ndarray) else math.log1p(functions)
        slowest: Count = busy * (1 + self.straggling * longest / math.log1p(1000))
        return slowest

    def part_seconds(self, functions: Count, memory_mb: float, share: float) -> Count:
        """The mean time of a part of an epoch; its waiting time is that of a whole epoch."""
        return self.busy_seconds(functions, memory_mb) * share + self.waiting_seconds(functions)

    def waiting_seconds(self, functions: Count) -> Count:
        """The part of the mean epoch in which the cloud starts functions and ends the epoch; it is not charged."""
        return self.epoch_seconds + self.call_seconds * functions

    def gain(self, functions: Count, progress: float) -> Count:
        """Effective epochs that one epoch adds after `progress` effective epochs."""
        return self.gain_at(functions, functions * 0 + min(progress / self.target_epochs, 1.0))

    def gain_at(self, functions: Count, stage: Count) -> Count:
        """Effective epochs that one epoch adds at a stage s, the share of the progress to the target that is made.

        (1 + early_gain (1 - s) n/(n + half)) / (1 + staleness s n); with `critical_functions`, also over
        1 + n / (critical_functions (1 + 4 s)).
        """
        together = functions / (functions + self.half_gain_functions)
        gained = (1 + self.early_gain * (1 - stage) * together) / (1 + self.staleness * stage * functions)
        if not self.critical_functions:
            return gained
        return gained / (1 + functions / (self.critical_functions * (1 + 4 * stage)))

    @property
    def curve(self) -> LossShape:
        """The shape of the loss curve: `shape`, or Optimus' with `rate`."""
        return self.shape or Inverse(half=1 / (self.rate * (self.first_loss - self.floor_loss)))

    def loss(self, progress: float) -> float:
        """The loss after `progress` effective epochs, without deviation."""
        if self.shape is None:
            return self.floor_loss + 1 / (self.rate * progress + 1 / (self.first_loss - self.floor_loss))
        return self.floor_loss + (self.first_loss - self.floor_loss) * self.shape.remaining(progress)

    def progress(self, loss: float) -> float:
        """The effective epochs at which a loss is reached: the inverse of `loss`. Raises ValueError where never."""
        if not self.floor_loss < loss <= self.first_loss * (1 + 1e-9):
            raise ValueError(f"loss: this workload never has a loss of {loss}")
        if self.shape is None:
            return max(0.0, (1 / (loss - self.floor_loss) - 1 / (self.first_loss - self.floor_loss)) / self.rate)
        low, high = 0.0, self.target_epochs
        while self.loss(high) > loss:
            low, high = high, 2 * high
            if high > 1e9:
                raise ValueError(f"loss: this workload never has a loss of {loss}")
        for _ in range(80):
            middle = (low + high) / 2
            low, high = (middle, high) if self.loss(middle) > loss else (low, middle)
        return high

    @property
    def target_loss(self) -> float:
        """The loss at `target_epochs`, minimally increased so that rounding cannot miss it."""
        return self.loss(self.target_epochs) * (1 + 1e-12)

    def epochs(self, functions: float) -> int:
        """Epochs to the target with a fixed number of functions, without chance."""
        done, count = 0.0, 0
        while done < self.target_epochs - 1e-9:
            done += self.gain(functions, done)
            count += 1
        return count
