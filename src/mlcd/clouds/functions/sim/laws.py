"""How a workload behaves on functions: its time, its progress, its loss, and the random variation of each.

The form of each law follows what is known of functions and of asynchronous SGD; docs/siren.md states which parts have a
source and which are our interpretation. No scheduler except `oracle` reads them.
"""

from dataclasses import dataclass, field

REFERENCE_MB = 1536
"""The memory size at which the paper's grid search is assumed to have run."""
FASTEST_MB = 3008
"""More memory than this gives no more speed: two CPUs, and the largest size at the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chance:
    """Random deviations from the laws.

    run           log-deviation of a whole run's times: the machines that it got, the hour of the day
    weather       log-deviation of each epoch's time
    straggler     probability that a function is slow; the barrier then waits for its last round, `slowness` x as long
    failure       probability that a call dies and is repeated
    cold_seconds  start time of a new container: one that did not run in the previous epoch, or not with this memory
    progress      log-deviation of an epoch's progress
    """

    run: float = 0.04
    weather: float = 0.03
    straggler: float = 0.002
    slowness: float = 3.0
    failure: float = 0.001
    cold_seconds: float = 0.6
    progress: float = 0.01

    def __post_init__(self) -> None:
        if not (0 <= self.straggler < 1 and 0 <= self.failure < 0.5):
            raise ValueError("straggler: must be in [0, 1); failure: must be in [0, 0.5)")
        if min(self.run, self.weather, self.cold_seconds, self.progress) < 0 or self.slowness < 1:
            raise ValueError("run, weather, cold_seconds, progress: must not be negative; slowness: must be at least 1")


NO_DEVIATION = Chance(run=0.0, weather=0.0, straggler=0.0, failure=0.0, cold_seconds=0.0, progress=0.0)
"""No deviation from the laws."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionLaws:
    """The true behaviour of one workload. Times are for a function of 1,536 MB.

    work_seconds     an epoch on one function: fetching its samples and computing on them; n functions share it
    fetch_share      share of `work_seconds` that is fetching
    rounds, round_seconds   a function's updates of the parameters in an epoch, and the time of each
    contention       relative slowdown of each other's updates by 1,000 functions
    call_seconds     time to start one function; the cloud starts them one after another
    epoch_seconds    fixed time of an epoch, whatever its functions do
    memory_power     speed grows as memory to this power from 1,536 MB to `fastest_mb`; below 1,536 MB in proportion
    working_set_mb   a call with less memory than this dies
    first_loss, floor_loss, rate   loss after k effective epochs: floor + 1/(rate k + 1/(first - floor))
    target_epochs    effective epochs at which the target loss is reached
    early_gain, half_gain_functions   early in training, updates of many functions reinforce each other like momentum
    staleness        late in training, they interfere: an epoch of n functions gains 1/(1 + staleness s n)
    """

    work_seconds: float
    round_seconds: float
    rounds: int = 198
    fetch_share: float = 0.1
    contention: float = 0.0
    call_seconds: float = 0.0
    epoch_seconds: float = 0.0
    memory_power: float = 0.9
    fastest_mb: float = FASTEST_MB
    working_set_mb: float = 400.0
    first_loss: float = 0.6931
    floor_loss: float = 0.25
    rate: float = 1.0
    target_epochs: float = 10.05
    early_gain: float = 0.95
    half_gain_functions: float = 800.0
    staleness: float = 3.7e-4
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

    def speed(self, memory_mb: float) -> float:
        """The speed relative to 1,536 MB."""
        share = min(memory_mb, self.fastest_mb) / REFERENCE_MB
        return share**self.memory_power if share >= 1 else share

    def parallel_seconds(self, functions: float, memory_mb: float) -> float:
        """Time of each function for fetching and computing: W / n."""
        return self.work_seconds / functions / self.speed(memory_mb)

    def update_seconds(self, functions: float, memory_mb: float) -> float:
        """Time of each function for all its rounds of updates."""
        crowd = 1 + self.contention * functions / 1000
        return self.rounds * self.round_seconds * crowd / self.speed(memory_mb)

    def seconds(self, functions: float, memory_mb: float) -> float:
        """The mean time of an epoch.

        Within it, functions take their next mini-batch when they are free (hybrid synchronous parallel). So all end
        together, and each is charged until then, except for the time it waited to be started.
        """
        busy = self.parallel_seconds(functions, memory_mb) + self.update_seconds(functions, memory_mb)
        return busy + self.waiting_seconds(functions)

    def part_seconds(self, functions: float, memory_mb: float, share: float) -> float:
        """The mean time of a part of an epoch; its waiting time is that of a whole epoch."""
        waiting = self.waiting_seconds(functions)
        return (self.seconds(functions, memory_mb) - waiting) * share + waiting

    def waiting_seconds(self, functions: float) -> float:
        """The part of the mean epoch in which the cloud starts functions and ends the epoch; it is not charged."""
        return self.epoch_seconds + self.call_seconds * functions

    def gain(self, functions: float, progress: float) -> float:
        """Effective epochs that one epoch adds after `progress` effective epochs.

        (1 + early_gain (1 - s) n/(n + half)) / (1 + staleness s n), s = progress over the target's, at most 1.
        """
        stage = min(progress / self.target_epochs, 1.0)
        together = functions / (functions + self.half_gain_functions)
        return (1 + self.early_gain * (1 - stage) * together) / (1 + self.staleness * stage * functions)

    def loss(self, progress: float) -> float:
        """The loss after `progress` effective epochs."""
        return self.floor_loss + 1 / (self.rate * progress + 1 / (self.first_loss - self.floor_loss))

    def progress(self, loss: float) -> float:
        """The effective epochs at which a loss is reached: the inverse of `loss`. Raises ValueError where never."""
        if not self.floor_loss < loss <= self.first_loss * (1 + 1e-9):
            raise ValueError(f"loss: this workload never has a loss of {loss}")
        return max(0.0, (1 / (loss - self.floor_loss) - 1 / (self.first_loss - self.floor_loss)) / self.rate)

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
