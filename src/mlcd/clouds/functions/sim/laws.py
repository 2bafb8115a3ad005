"""How a workload behaves on functions: its time, its progress, its loss, and what chance does to them.

The form of each law is chosen for what is known of functions and of asynchronous SGD; docs/siren.md says what stands on
a source and what is our reading. No scheduler reads them but `oracle`.
"""

from dataclasses import dataclass, field

REFERENCE_MB = 1536
"""The memory at which the paper's grid search is taken to have run."""
FASTEST_MB = 3008
"""More memory than this brings no speed: two processors, and the largest size there was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chance:
    """What differs from the laws in one epoch.

    run          log-deviation of a whole run's times: the machines that it got, the hour of the day
    weather      the same of each epoch
    straggler    chance that a function is slow; the barrier then waits for its last round, `slowness` times as long
    failure      chance that a call dies on its way and is repeated
    cold_seconds of a new container: one that did not run in the epoch before, or not with this memory
    progress     log-deviation of what an epoch brings
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
            raise ValueError("a chance lies in [0, 1), of failing in [0, 0.5)")
        if min(self.run, self.weather, self.cold_seconds, self.progress) < 0 or self.slowness < 1:
            raise ValueError("deviations and cold starts must not be negative, and a slow function is slower")


CALM = Chance(run=0.0, weather=0.0, straggler=0.0, failure=0.0, cold_seconds=0.0, progress=0.0)
"""Nothing differs from the laws."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionLaws:
    """One workload's truth. Times are of a function of 1,536 MB.

    work_seconds     an epoch on one function: fetching its samples and computing on them, shared by n functions
    fetch_share      of it
    rounds, round_seconds   a function updates the parameters so often in an epoch, each taking so long
    contention       by how much 1,000 functions slow each other's updates down
    call_seconds     the cloud starts one function after another, and takes so long for each
    epoch_seconds    and so long for an epoch, whatever its functions do
    memory_power     speed grows as memory to this power, from 1,536 to `fastest_mb`; below in proportion
    working_set_mb   with less memory than this a call dies
    first_loss, floor_loss, rate   loss after k effective epochs: floor + 1/(rate k + 1/(first - floor))
    target_epochs    effective epochs at which the target loss is reached
    early_gain, half_gain_functions   early in training the updates of many functions add up, as momentum does
    staleness        late in training they get in each other's way: an epoch of n functions brings 1/(1 + staleness s n)
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
            raise ValueError("work, rounds, rate and target must be more than 0")
        if min(self.call_seconds, self.epoch_seconds) < 0 or self.fastest_mb < REFERENCE_MB:
            raise ValueError("waiting must not be negative, and the most speed is had with 1,536 MB at least")
        if not (0 <= self.fetch_share < 1 and self.contention >= 0 and self.staleness >= 0 and self.early_gain >= 0):
            raise ValueError("shares lie in [0, 1), and effects are not negative")
        if not (self.first_loss > self.floor_loss and self.half_gain_functions > 0):
            raise ValueError("training lowers the loss")

    def speed(self, memory_mb: float) -> float:
        """Over that of 1,536 MB."""
        share = min(memory_mb, self.fastest_mb) / REFERENCE_MB
        return share**self.memory_power if share >= 1 else share

    def parallel_seconds(self, functions: float, memory_mb: float) -> float:
        """Fetching and computing of each function: W / n."""
        return self.work_seconds / functions / self.speed(memory_mb)

    def update_seconds(self, functions: float, memory_mb: float) -> float:
        """All rounds of updates of each function."""
        crowd = 1 + self.contention * functions / 1000
        return self.rounds * self.round_seconds * crowd / self.speed(memory_mb)

    def seconds(self, functions: float, memory_mb: float) -> float:
        """The mean epoch.

        Inside it functions take their next mini-batch when they are free (hybrid synchronous parallel), so that all end
        together, and each is paid until then, but for what it waited to be started.
        """
        busy = self.parallel_seconds(functions, memory_mb) + self.update_seconds(functions, memory_mb)
        return busy + self.waiting_seconds(functions)

    def part_seconds(self, functions: float, memory_mb: float, share: float) -> float:
        """The mean part of an epoch: what is waited for is the same."""
        waiting = self.waiting_seconds(functions)
        return (self.seconds(functions, memory_mb) - waiting) * share + waiting

    def waiting_seconds(self, functions: float) -> float:
        """Of the mean epoch, in which the cloud starts functions and ends the epoch: nobody is paid for it."""
        return self.epoch_seconds + self.call_seconds * functions

    def gain(self, functions: float, progress: float) -> float:
        """Effective epochs that one epoch brings when `progress` effective epochs were done.

        (1 + early_gain (1 - s) n/(n + half)) / (1 + staleness s n), s = progress over the target's, at most 1.
        """
        stage = min(progress / self.target_epochs, 1.0)
        together = functions / (functions + self.half_gain_functions)
        return (1 + self.early_gain * (1 - stage) * together) / (1 + self.staleness * stage * functions)

    def loss(self, progress: float) -> float:
        """After so many effective epochs."""
        return self.floor_loss + 1 / (self.rate * progress + 1 / (self.first_loss - self.floor_loss))

    def progress(self, loss: float) -> float:
        """The inverse of `loss`: a training goes on from what it had reached."""
        if not self.floor_loss < loss <= self.first_loss * (1 + 1e-9):
            raise ValueError(f"this workload never has a loss of {loss}")
        return max(0.0, (1 / (loss - self.floor_loss) - 1 / (self.first_loss - self.floor_loss)) / self.rate)

    @property
    def target_loss(self) -> float:
        """The loss at `target_epochs`, a whisker above so that rounding cannot miss it."""
        return self.loss(self.target_epochs) * (1 + 1e-12)

    def epochs(self, functions: float) -> int:
        """Epochs to the target with a fixed number of functions, without chance."""
        done, count = 0.0, 0
        while done < self.target_epochs - 1e-9:
            done += self.gain(functions, done)
            count += 1
        return count
