"""What a search is asked: the work, the configurations with their prices, the goal, and the rules of a trial."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mlcd.goal import Goal
from mlcd.space import Config, Space
from mlcd.units import HOUR, Usd

Floats = NDArray[np.float64]

LAST_WORK = 1e-6
"""The share of the work that still counts as open when trials have done all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialPolicy:
    """How long a trial takes (paper V-A) and how far it may be stretched; all of it is authorised in advance.

    planned(n) = seconds + extra_seconds x floor((n - 1) / 3); set-up and warm-up are inside it.
    worst(n)   = planned(n) x (1 + extension) + watchdog_seconds.
    """

    seconds: float = 600.0
    extra_seconds_per_3_nodes: float = 60.0
    extension: float = 0.5
    watchdog_seconds: float = 120.0
    precision: float = 0.05
    retries: int = 1

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise ValueError("a trial needs more than 0 seconds")
        if min(self.extra_seconds_per_3_nodes, self.extension, self.watchdog_seconds, self.retries) < 0:
            raise ValueError("a trial's extras must not be negative")
        if not 0 < self.precision < 1:
            raise ValueError("a trial's precision lies between 0 and 1")

    def planned_seconds(self, nodes: int) -> float:
        """What a trial of `nodes` nodes takes when nothing is unusual."""
        return self.seconds + self.extra_seconds_per_3_nodes * ((nodes - 1) // 3)

    def extended_seconds(self, nodes: int) -> float:
        """The longest the profiler may measure."""
        return self.planned_seconds(nodes) * (1 + self.extension)

    def worst_seconds(self, nodes: int) -> float:
        """The longest a trial can be charged for: extended to the full, then ended by the watchdog."""
        return self.extended_seconds(nodes) + self.watchdog_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Blueprint:
    """What an analytical model needs to know without a trial: the network trained and the machines' data sheets.

    flops_per_sample  forward and backward
    batch             the global batch: what one step processes
    machines          instance type -> (peak FLOP/s of a node, bytes/s of its network)
    """

    flops_per_sample: float
    parameter_bytes: float
    batch: int
    machines: Mapping[str, tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """The global batch B is chosen, too. Work is counted in samples at the `reference` batch B0.

    A step brings as much as its learning rate lets it: steps(B)/steps(B0) = rate(B0)/rate(B). So a sample at B counts

        (B0/B)^decay                 decay 0 for a rate in proportion to B, 1/2 to sqrt(B) (Scavenger's law), 1 for a
                                     rate that stays
        (phi + B0)/(phi + B)         decay None: for a rate that follows the noise (AdaScale; Pollux's efficiency)

    noise_scale  phi, as measured so far; None while it is not known: then every sample counts the same
    """

    reference: int
    decay: float | None = None
    noise_scale: float | None = None

    def __post_init__(self) -> None:
        if self.reference < 1:
            raise ValueError("a batch has at least one sample")
        if self.decay is not None and not 0 <= self.decay <= 1:
            raise ValueError("a sample's worth decays with an exponent between 0 and 1")
        if self.noise_scale is not None and not self.noise_scale >= 0:
            raise ValueError("a noise scale must not be negative")

    def worth(self, batch: float) -> float:
        """What a sample at this batch counts for."""
        if self.decay is not None:
            return float((self.reference / batch) ** self.decay)
        if self.noise_scale is None or math.isinf(self.noise_scale):
            return 1.0
        return (self.noise_scale + self.reference) / (self.noise_scale + batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The value of a metric at which the training is done, and whether higher is better."""

    metric: str
    value: float
    higher: bool = True

    def __str__(self) -> str:
        return f"{self.metric} {'>=' if self.higher else '<='} {self.value:g}"

    def is_met_by(self, metric: float) -> bool:
        """Whether this is as good, or better."""
        return metric >= self.value if self.higher else metric <= self.value


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A search problem, frozen. `usd_per_hour` is the price of each whole configuration, in the space's order.

    work_samples  S, what the training has to process
    noise         relative deviation between two runs of one configuration, as the cloud states it
    assurance     the confidence of every "this fits": the reserve uses the upper bound at this level
    stretch       expected run time over undisturbed run time, >= 1 (spot interruptions), in the space's order
    blueprint     what is known of network and machines beforehand, where it is
    keeps_work    whether a trial's work counts: the training goes on from its checkpoint
    work_known    False until the first trial has told work_samples, which is then a mere placeholder
    work_error    standard error of log work_samples, where that is an estimate of when a target will be met
    batching      how samples count, where the global batch is chosen too: the knob `batch`
    target        where the training ends, where that is by how good it is and not by its samples
    verify_seconds  serving: the most that the load test of the choice takes, start-up included; None for a training
    """

    name: str
    work_samples: float
    space: Space
    goal: Goal
    usd_per_hour: tuple[Usd, ...]
    trial: TrialPolicy = TrialPolicy()
    max_trials: int = 30
    noise: float = 0.03
    assurance: float = 0.999999
    stretch: tuple[float, ...] = ()
    blueprint: Blueprint | None = None
    keeps_work: bool = False
    work_known: bool = True
    work_error: float = 0.0
    batching: Batching | None = None
    target: Target | None = None
    verify_seconds: float | None = None

    def __post_init__(self) -> None:
        if len(self.usd_per_hour) != len(self.space):
            raise ValueError("every configuration needs a price")
        if min(price.micros for price in self.usd_per_hour) <= 0:
            raise ValueError("a price must be more than $0")
        if not (self.work_samples > 0 and np.isfinite(self.work_samples)):
            raise ValueError("there must be work to do")
        if not 0.5 <= self.assurance < 1:
            raise ValueError("assurance lies in [0.5, 1)")
        if self.max_trials < 1:
            raise ValueError("max_trials must be at least 1")
        if not 0 <= self.noise < 1:
            raise ValueError("noise lies in [0, 1)")
        if not (self.work_error >= 0 and math.isfinite(self.work_error)):
            raise ValueError("the work's error must not be negative")
        if self.batching is not None and "batch" not in {knob.name for knob in self.space.knobs}:
            raise ValueError("there is no batch to choose in this space")
        if self.stretch and (len(self.stretch) != len(self.space) or min(self.stretch) < 1):
            raise ValueError("stretch needs a factor of at least 1 for every configuration")

    def with_work_told(self, samples: float | None) -> "Problem":
        """The same problem once the job has said how much work there is; itself where that is known or was not said.

        Where a target ends the training, what the script would do at most says nothing of when that is.
        """
        if self.work_known or samples is None or self.target is not None:
            return self
        return replace(self, work_samples=samples, work_known=True)

    def with_noise(self, noise_scale: float | None) -> "Problem":
        """The same problem once the noise of its gradients is known; itself where the batch is not chosen."""
        if self.batching is None or noise_scale is None or noise_scale == self.batching.noise_scale:
            return self
        return replace(self, batching=replace(self.batching, noise_scale=noise_scale))

    def with_work_estimated(self, samples: float | None, error: float = 0.0) -> "Problem":
        """The same problem once it can be told when the target will be met; itself where it cannot."""
        if samples is None:
            return self
        most = self.work_samples if self.work_known else math.inf
        if samples >= most:
            return self
        return replace(self, work_samples=max(samples, 1.0), work_known=True, work_error=error)

    def with_work_done(self, samples: float) -> "Problem":
        """The same problem once `samples` of its work are saved; a little is always left, to bring the model home."""
        if samples <= 0:
            return self
        return replace(self, work_samples=max(self.work_samples - samples, self.work_samples * LAST_WORK))

    def worth(self, config: Config) -> float:
        """What a sample counts for there, of one of `work_samples`."""
        return 1.0 if self.batching is None else self.batching.worth(float(config["batch"]))

    def work_of(self, config: Config) -> float:
        """Samples to be processed there for all of the work."""
        return self.work_samples / self.worth(config)

    def price(self, config: Config) -> Usd:
        """USD per hour of the whole configuration."""
        return self.usd_per_hour[self.space.index[config]]

    def stretch_of(self, config: Config) -> float:
        """How much longer than undisturbed the final run is expected to take there."""
        return self.stretch[self.space.index[config]] if self.stretch else 1.0

    @cached_property
    def works(self) -> Floats:
        """(N,) `work_of` each configuration."""
        if self.batching is None:
            return np.full(len(self.space), self.work_samples)
        return np.array([self.work_of(config) for config in self.space])

    @cached_property
    def dollars_per_second(self) -> Floats:
        """(N,) for models and pictures; accounts use `price`."""
        return np.array([price.dollars / HOUR for price in self.usd_per_hour])

    @cached_property
    def stretches(self) -> Floats:
        """(N,) `stretch` as numbers, 1 where none is stated."""
        return np.array(self.stretch) if self.stretch else np.ones(len(self.space))

    @cached_property
    def nodes(self) -> NDArray[np.intp]:
        """(N,) the node counts."""
        return np.array([config.nodes for config in self.space], dtype=np.intp)

    @cached_property
    def planned_trial_seconds(self) -> Floats:
        """(N,) what a trial takes."""
        return np.array([self.trial.planned_seconds(int(n)) for n in self.nodes])

    @cached_property
    def worst_trial_seconds(self) -> Floats:
        """(N,) the longest a trial can take."""
        return np.array([self.trial.worst_seconds(int(n)) for n in self.nodes])

    @cached_property
    def worst_trial_micros(self) -> NDArray[np.int64]:
        """(N,) the most a trial can cost, in micro-dollars, exact."""
        return np.array(
            [p.for_seconds(s).micros for p, s in zip(self.usd_per_hour, self.worst_trial_seconds, strict=True)],
            dtype=np.int64,
        )
