"""A search problem: the work, the configurations with their prices, the goal, and the rules of a trial."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcd.goal import Goal, Objective
from mlcd.interruptions import Interruptions
from mlcd.space import Config, Space, Value
from mlcd.space.placed import place_of
from mlcd.transformer import Transformer
from mlcd.units import HOUR, MOST_USD, ZERO, Usd

Floats = NDArray[np.float64]

MOST_SLOWDOWN = 10.0
UNBOOKABLE_MICROS = MOST_USD.micros + 1
"""Of a trial that may never start, with or without a budget."""
LEAST_DONE_SHARE = 0.9
"""A job that exits successfully with less of its work done than this did not do what its file says."""
LEAST_WORK_SHARE = 1e-6
"""The share of the work that still counts as remaining when trials have done all of it."""


STOP_SECONDS = 6.0
"""The least time to save a training and release its nodes."""

LEAST_MEASURED_SECONDS = 60.0
"""After its first sample, no trial ends early before this: compilers, caches and data loaders warm up for a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialPolicy:
    """How long a trial takes (paper V-A) and how far it may be extended; all of it is authorised in advance.

    full(n)    = seconds + extra_seconds x floor((n - 1) / 3) + moving_seconds; with set-up and warm-up.
    moving_seconds  of a place to which data is moved first: part of the full time, not of the least
    least(n)   = full(n) x least_share, after the first sample: from then on a trial ends as soon as the 95% interval
                 of its speed is within enough_precision; after half of that, if it is far too slow to be chosen.
                 least_share 1: no trial ends before its planned time.
    planned(n) = full(n); if trials may end early and it is known how long they start, start_seconds + least(n) at most.
    start_seconds  what trials of this run took until their first sample, with a margin; None: not known yet
    worst(n)   = planned(n) x (1 + extension) + watchdog_seconds.
    most_measured_seconds  of a load test; the rest of its planned time is for the server to start. None: no limit
    """

    seconds: float = 600.0
    extra_seconds_per_3_nodes: float = 60.0
    extension: float = 0.5
    watchdog_seconds: float = 120.0
    precision: float = 0.05
    retries: int = 1
    least_share: float = 1.0
    known_precision: float = 0.02
    most_measured_seconds: float | None = None
    moving_seconds: float = 0.0
    start_seconds: float | None = None

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise ValueError("a trial needs more than 0 seconds")
        extras = self.extra_seconds_per_3_nodes, self.extension, self.watchdog_seconds, self.retries
        if min(*extras, self.start_seconds or 0.0) < 0:
            raise ValueError("a trial's extras must not be negative")
        if not (0 < self.precision < 1 and 0 < self.known_precision < 1):
            raise ValueError("a trial's precision must be between 0 and 1")

    def planned_seconds(self, nodes: int) -> float:
        """The normal duration of a trial on `nodes` nodes."""
        full = self.full_seconds(nodes)
        if self.start_seconds is None or not self.may_end_early:
            return full
        return min(self.start_seconds + self.moving_seconds + self.least_seconds(nodes), full)

    def full_seconds(self, nodes: int) -> float:
        """The same while it is not known how long trials take to start."""
        return self.seconds + self.extra_seconds_per_3_nodes * ((nodes - 1) // 3) + self.moving_seconds

    def least_seconds(self, nodes: int) -> float:
        """After its first sample, the least that a trial is measured; infinite where none ends early."""
        return (
            max((self.full_seconds(nodes) - self.moving_seconds) * self.least_share, LEAST_MEASURED_SECONDS)
            if self.may_end_early
            else math.inf
        )

    @property
    def at_full_length(self) -> "TrialPolicy":
        """The same rules without what is known of starts: what a trial may take where the limits have room for it."""
        return self if self.start_seconds is None else replace(self, start_seconds=None)

    def within(self, authorised_seconds: float, nodes: int) -> "TrialPolicy":
        """The same rules for a trial that was authorised for so long: it may be extended as far as that allows."""
        if authorised_seconds == self.worst_seconds(nodes) or not self.may_end_early:
            return self
        extended = max(authorised_seconds - self.watchdog_seconds, 1.0)
        planned = min(self.planned_seconds(nodes), extended / (1 + self.extension))
        start = max(planned - self.moving_seconds - self.least_seconds(nodes), 0.0)
        return replace(self, start_seconds=start, extension=extended / planned - 1)

    def enough_precision(self, noise: float) -> float:
        """The 95% interval at which a trial may end early, where two runs of one configuration differ by `noise`.

        known_precision; or that noise, up to precision: then the trial's own error adds an eighth to that of two runs.
        """
        return min(max(self.known_precision, noise), self.precision)

    @property
    def may_end_early(self) -> bool:
        """Whether a trial may take less than its planned time: never where it may not take more either."""
        return self.least_share < 1 and self.extension > 0

    def extended_seconds(self, nodes: int) -> float:
        """The longest that the profiler may measure."""
        return self.planned_seconds(nodes) * (1 + self.extension)

    def worst_seconds(self, nodes: int) -> float:
        """The longest that a trial can be charged for: fully extended, then ended by the watchdog."""
        return self.extended_seconds(nodes) + self.watchdog_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Blueprint:
    """What an analytical model needs without a trial: the trained network and the machines' data sheets.

    flops_per_sample  forward and backward
    batch             the global batch: samples of one step
    machines          instance type -> (peak FLOP/s of a node, bytes/s of its network)
    """

    flops_per_sample: float
    parameter_bytes: float
    batch: int
    machines: Mapping[str, tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """For problems where the global batch B is chosen too. Work is counted in samples at the `reference` batch B0.

    A sample at B counts for

        (phi + B0)/(phi + B)         where the gradients' noise is known, under every learning-rate rule (McCandlish et
                                     al. 2018; AdaScale's gain, Pollux's efficiency)
        (B0/B)^decay                 until then: as if the progress of a step followed its learning rate

    decay        of the learning-rate rule: 0 for a rate proportional to B, 1/2 for sqrt(B), 1 for a constant rate; None
                 for a rate that follows the noise, which counts as 0 until the noise is known
    noise_scale  phi in samples over the work that `Problem.work_samples` counts; None while it is not known
    """

    reference: int
    decay: float | None = None
    noise_scale: float | None = None

    def __post_init__(self) -> None:
        if self.reference < 1:
            raise ValueError("a batch must have at least one sample")
        if self.decay is not None and not 0 <= self.decay <= 1:
            raise ValueError("decay must be between 0 and 1")
        if self.noise_scale is not None and not self.noise_scale >= 0:
            raise ValueError("a noise scale must not be negative")

    def worth(self, batch: float) -> float:
        """What a sample at this batch counts for, in samples at the reference batch."""
        if self.noise_scale is None:
            return float((self.reference / batch) ** (self.decay or 0.0))
        if math.isinf(self.noise_scale):
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
        """Whether this metric is as good as the target, or better."""
        return metric >= self.value if self.higher else metric <= self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class DataMove:
    """What it takes to bring the data to the nodes of one lease at a place: each lease has new nodes.

    usd, seconds              for a training
    trial_usd, trial_seconds  for a trial, which may need less of the data
    """

    usd: Usd = ZERO
    trial_usd: Usd = ZERO
    seconds: float = 0.0
    trial_seconds: float = 0.0

    def __post_init__(self) -> None:
        if min(self.usd.micros, self.trial_usd.micros, self.seconds, self.trial_seconds) < 0:
            raise ValueError("moving data costs no less than $0 and takes no less than 0 s")


NO_MOVE = DataMove()


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedWork:
    """The samples until the target is met with these values of the knobs that change learning.

    error  standard error of the logarithm of `samples`, which are predicted; 0 where they are not
    """

    values: tuple[Value, ...]
    samples: float
    error: float = 0.0

    def __post_init__(self) -> None:
        if not (self.samples > 0 and self.error >= 0):
            raise ValueError("a training has at least one sample, and an error is not negative")


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A search problem, frozen. `usd_per_hour` is the price of each whole configuration, in the space's order.

    work_samples  S, the samples that the training has to process
    noise         relative deviation between two runs of one configuration, as the cloud states it
    assurance     the confidence that a plan fits the limits: the reserve uses the upper bound at this level
    slowdown      the training may be slower than its trials by this share, besides `noise`, and must still fit
    stretch       expected run time over undisturbed run time, >= 1 (spot interruptions), in the space's order
    parameters    of the model that the job names, as published; None if it names none that is known
    similar       how ln speed deviates from what is expected of any job, in the space's order, as other jobs on the
                  same types showed; empty if none is known
    blueprint     what is known of network and machines in advance; None if nothing is
    keeps_work    whether a trial's work counts: the training continues from its checkpoint
    beside        whether the training starts on the first deployment that fits, and further trials run beside it; their
                  work is lost, that of trials without a training beside them is kept (mlcd.run.kept_work)
    restart_seconds  expected time to move a training to other nodes: save, release, start, load
    stop_seconds     the longest that saving a watched training and releasing its nodes may take
    watched       whether the training may start where it is expected to fit but not certain to, with a fallback
                  (mlcd.trial.watched); the strategy says so
    work_known    False until the first trial has reported work_samples; until then work_samples is a placeholder
    work_error    standard error of log work_samples, if work_samples is an estimate of when a target will be met
    batching      how samples count, if the global batch is chosen too (the knob `batch`)
    target        the metric value that ends the training; None if the number of samples ends it
    verify_seconds  serving: the longest that the load test of the choice takes, with start-up; None for a training
    transformer   the sizes of the model that is trained, as the job or its script describes it; None if it does not
    samples_per_step  the global batch, where it is fixed and known
    moves         what bringing the data there takes, by place (`places`); nothing at places that are not named
    interruptions of spot nodes, where spot or on-demand is chosen (the knob `market`); None where it is not
    learning      the knobs that change how much a sample teaches the model; the end of the training depends on them
    learned_work  what trials say of the work with the values of those knobs; `work_samples` is for values not tried
    scales_out    serving: whether n nodes count as n times the rate of one until they are measured (trial/replicas.py)
    lease_usd_per_hour  serving: of each whole lease, in the space's order, where it has a node more, which sends the
                  load; empty: leases cost what their configurations do
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
    slowdown: float = 0.0
    beside: bool = False
    restart_seconds: float = 0.0
    stop_seconds: float = STOP_SECONDS
    parameters: float | None = None
    similar: tuple[float, ...] = ()
    watched: bool = False
    scales_out: bool = False
    transformer: Transformer | None = None
    samples_per_step: float | None = None
    moves: Mapping[str, DataMove] = field(default_factory=dict)
    interruptions: Interruptions | None = None
    learning: tuple[str, ...] = ()
    learned_work: tuple[LearnedWork, ...] = ()
    lease_usd_per_hour: tuple[Usd, ...] = ()

    def __post_init__(self) -> None:
        self._check_space()
        if not (self.work_samples > 0 and np.isfinite(self.work_samples)):
            raise ValueError("work_samples must be more than 0")
        if not 0.5 <= self.assurance < 1:
            raise ValueError("assurance must be in [0.5, 1)")
        if self.max_trials < 1:
            raise ValueError("max_trials must be at least 1")
        if not 0 <= self.noise < 1:
            raise ValueError("noise must be in [0, 1)")
        if not 0 <= self.slowdown <= MOST_SLOWDOWN:
            raise ValueError(f"slowdown must be between 0 and {MOST_SLOWDOWN:g}")
        if self.beside and self.keeps_work:
            raise ValueError("trials beside the training do not continue it: beside excludes keeps_work")
        if self.parameters is not None and not 0 < self.parameters < math.inf:
            raise ValueError("parameters must be more than 0")
        for name in ("work_error", "restart_seconds", "stop_seconds"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must not be negative")

    def _check_space(self) -> None:
        if len(self.usd_per_hour) != len(self.space):
            raise ValueError("every configuration needs a price")
        if min(price.micros for price in self.usd_per_hour) <= 0:
            raise ValueError("a price must be more than $0")
        if self.batching is not None and "batch" not in {knob.name for knob in self.space.knobs}:
            raise ValueError("batching needs a space with a knob `batch`")
        if self.lease_usd_per_hour and len(self.lease_usd_per_hour) != len(self.space):
            raise ValueError("lease_usd_per_hour must have a price for every configuration")
        if any(lease < own for lease, own in zip(self.lease_usd_per_hour, self.usd_per_hour, strict=False)):
            raise ValueError("a lease costs no less than its configuration")
        if self.similar and len(self.similar) != len(self.space):
            raise ValueError("similar must have a number for every configuration")
        if self.stretch and (len(self.stretch) != len(self.space) or min(self.stretch) < 1):
            raise ValueError("stretch must have a factor of at least 1 for every configuration")

    def with_reported_work(self, samples: float | None) -> "Problem":
        """The problem with the work that the job reported; unchanged if the work is known or `samples` is None.

        Also unchanged if a target ends the training: the script's maximum does not tell when the target is met.
        """
        if self.work_known or samples is None or self.target is not None:
            return self
        return replace(self, work_samples=samples, work_known=True)

    def with_description(self, transformer: Transformer | None) -> "Problem":
        """The problem with the sizes that the job's script reported; unchanged if they are known or None."""
        if self.transformer is not None or transformer is None:
            return self
        return replace(self, transformer=transformer)

    def with_noise(self, noise_scale: float | None) -> "Problem":
        """The problem with this gradient noise scale, in samples; unchanged if the batch is not chosen."""
        if self.batching is None or noise_scale is None or noise_scale == self.batching.noise_scale:
            return self
        return replace(self, batching=replace(self.batching, noise_scale=noise_scale))

    def with_work_estimated(self, samples: float | None, error: float = 0.0) -> "Problem":
        """The problem with this estimate of the work until the target is met; unchanged if `samples` is None."""
        if samples is None:
            return self
        most = self.work_samples if self.work_known else math.inf
        if samples >= most:
            return self
        return replace(self, work_samples=max(samples, 1.0), work_known=True, work_error=error)

    def with_work_done(self, samples: float) -> "Problem":
        """The problem after `samples` of its work are saved. A little work always remains, to collect the model."""
        if samples <= 0:
            return self
        rest = max(self.work_samples - samples, self.work_samples * LEAST_WORK_SHARE)
        learned = tuple(
            replace(each, samples=max(each.samples - samples, each.samples * LEAST_WORK_SHARE))
            for each in self.learned_work
        )
        return replace(self, work_samples=rest, learned_work=learned)

    def is_done_by(self, samples: float) -> bool:
        """Whether `samples` are all of its work, as far as that is known in advance."""
        return self.work_known and self.target is None and samples >= self.work_samples

    def worth(self, config: Config) -> float:
        """What a sample on `config` counts for, in samples of `work_samples`."""
        return 1.0 if self.batching is None else self.batching.worth(float(config["batch"]))

    def work_of(self, config: Config) -> float:
        """Samples that `config` has to process for all of the work."""
        learned = self.learned_of(config)
        return self.work_samples / self.worth(config) if learned is None else learned.samples

    def work_error_of(self, config: Config) -> float:
        """The standard error of log `work_of`, where that is an estimate."""
        learned = self.learned_of(config)
        return self.work_error if learned is None else learned.error

    def learning_values(self, config: Config) -> tuple[Value, ...]:
        """The values of the knobs that change learning."""
        return tuple(config[name] for name in self.learning)

    def learned_of(self, config: Config) -> LearnedWork | None:
        """What trials say of the work with this configuration's learning; None if nothing yet."""
        if not self.learned_work:
            return None
        values = self.learning_values(config)
        return next((each for each in self.learned_work if each.values == values), None)

    def flops_share(self, config: Config, samples_per_second: float) -> float | None:
        """Model FLOPs utilisation: the FLOPs that the described model needs over the machines' peak, at this speed.

        None where the model or the peak is not known.
        """
        machines = self.space.machines
        if self.transformer is None or machines is None:
            return None
        machine = machines[self.space.index[config]]
        peak = machine.tflops * 1e12 * machine.count * config.nodes
        return samples_per_second * self.transformer.flops_per_sample / peak if peak > 0 else None

    def price(self, config: Config) -> Usd:
        """USD per hour of the whole configuration."""
        return self.usd_per_hour[self.space.index[config]]

    def lease_price(self, config: Config) -> Usd:
        """USD per hour of a lease of the configuration: what its steps are authorised and charged."""
        return self._lease_prices[self.space.index[config]]

    @property
    def _lease_prices(self) -> tuple[Usd, ...]:
        return self.lease_usd_per_hour or self.usd_per_hour

    def move_to(self, config: Config) -> DataMove:
        """What bringing the data to a lease of `config` takes."""
        return self.moves.get(place_of(config.instance), NO_MOVE) if self.moves else NO_MOVE

    def trial_at(self, config: Config) -> TrialPolicy:
        """The rules of a trial of `config`: longer where data is moved first."""
        moving = self.move_to(config).trial_seconds
        return replace(self.trial, moving_seconds=moving) if moving else self.trial

    def with_interruptions(self, seen: int, expected: float) -> "Problem":
        """The problem after so many interruptions; unchanged if the market is not chosen, or nothing is new."""
        known = self.interruptions
        if known is None or (seen, expected) == (known.seen, known.expected):
            return self
        return replace(self, interruptions=known.with_seen(seen, expected))

    def checkpoint_seconds(self, config: Config) -> float | None:
        """Training between two checkpoints on `config`, against interruptions; None: as the job's file says."""
        return None if self.interruptions is None else self.interruptions.checkpoint_seconds(config)

    def stretch_of(self, config: Config) -> float:
        """Expected run time of the final run on `config` over its undisturbed run time."""
        return self.stretch[self.space.index[config]] if self.stretch else 1.0

    @cached_property
    def memo(self) -> dict[int, tuple[object, Any]]:
        """By id of an object: the object and what was computed for it under this problem, such as a trial's plan."""
        return {}

    @cached_property
    def works(self) -> Floats:
        """(N,) `work_of` each configuration."""
        if self.batching is None and not self.learned_work:
            return np.full(len(self.space), self.work_samples)
        return np.array([self.work_of(config) for config in self.space])

    @cached_property
    def places(self) -> tuple[str, ...]:
        """Where each configuration is; "" for all in a job with one cloud."""
        return tuple(place_of(str(config.as_dict().get("instance", ""))) for config in self.space)

    @cached_property
    def dollars_per_second(self) -> Floats:
        """(N,) for models and plots; accounting uses `price`."""
        return np.array([price.dollars / HOUR for price in self.usd_per_hour])

    @cached_property
    def move_dollars(self) -> Floats:
        """(N,) what bringing the data to a training costs."""
        return np.array([self.move_to(config).usd.dollars for config in self.space])

    @cached_property
    def trial_move_dollars(self) -> Floats:
        """(N,) what bringing the data to a trial costs."""
        return np.array([self.move_to(config).trial_usd.dollars for config in self.space])

    def log_values(self, goal: Goal, log_seconds: Floats) -> Floats:
        """(..., N) ln of `Goal.value` of trainings that take so long, with the price of their data."""
        if not self.moves:
            return log_seconds + np.log(goal.scale(self.dollars_per_second))
        if goal.minimize is Objective.TIME:
            return log_seconds
        with np.errstate(divide="ignore"):
            log_usd = np.logaddexp(log_seconds + np.log(self.dollars_per_second), np.log(self.move_dollars))
        found = log_usd if goal.minimize is Objective.COST else (log_seconds + log_usd) / 2
        return np.asarray(np.where(np.isneginf(log_seconds), log_seconds, found))

    @cached_property
    def planned_trial_dollars(self) -> Floats:
        """(N,) what a trial of the normal duration costs, with its data; for strategies, not for the ledger."""
        per_second = np.array([price.dollars / HOUR for price in self._lease_prices])
        return np.asarray(self.planned_trial_seconds * per_second + self.trial_move_dollars)

    @cached_property
    def stretches(self) -> Floats:
        """(N,) expected over undisturbed run time: `stretch`, and the interruptions of spot nodes; else all 1."""
        known = self.interruptions
        if known is not None:
            return np.array([known.stretch(config, self.restart_seconds) for config in self.space])
        return np.array(self.stretch) if self.stretch else np.ones(len(self.space))

    @cached_property
    def node_dollars(self) -> Floats:
        """(N,) dollars per second of a node on demand: what models expect its speed to follow, however it is bought."""
        known = self.interruptions
        if known is None or not known.on_demand:
            return np.asarray(self.dollars_per_second / self.nodes)
        return np.array([known.on_demand[config.instance].dollars / HOUR for config in self.space])

    @cached_property
    def nodes(self) -> NDArray[np.intp]:
        """(N,) the node counts."""
        return np.array([config.nodes for config in self.space], dtype=np.intp)

    @cached_property
    def planned_trial_seconds(self) -> Floats:
        """(N,) the normal duration of a trial."""
        return np.array([self.trial_at(config).planned_seconds(config.nodes) for config in self.space])

    @cached_property
    def worst_trial_seconds(self) -> Floats:
        """(N,) the longest that a trial can take."""
        return np.array([self.trial_at(config).worst_seconds(config.nodes) for config in self.space])

    @cached_property
    def worst_trial_micros(self) -> NDArray[np.int64]:
        """(N,) the exact upper bound of a trial's cost, in micro-dollars; UNBOOKABLE_MICROS for all beyond MOST_USD."""
        times = (p.for_seconds(s).micros for p, s in zip(self._lease_prices, self.worst_trial_seconds, strict=True))
        exact = (time + self.move_to(c).trial_usd.micros for time, c in zip(times, self.space, strict=True))
        return np.array([min(micros, UNBOOKABLE_MICROS) for micros in exact], dtype=np.int64)

    @cached_property
    def verification_micros(self) -> NDArray[np.int64]:
        """(N,) the exact upper bound of a verification's cost, as `worst_trial_micros`; 0 for a training."""
        exact = (price.for_seconds(self.verify_seconds or 0.0).micros for price in self._lease_prices)
        return np.array([min(micros, UNBOOKABLE_MICROS) for micros in exact], dtype=np.int64)

    @property
    def trial_noun(self) -> str:
        """What users call a trial of this problem."""
        return "trial" if self.verify_seconds is None else "load test"

    @property
    def limit_of_trials_text(self) -> str:
        """That no further trial is allowed: `the limit of 1 load test is reached`."""
        ending = "" if self.max_trials == 1 else "s"
        return f"the limit of {self.max_trials:,} {self.trial_noun}{ending} is reached"


class ProblemKey:
    """A problem as a cache key: by identity, since its arrays are large and it is frozen."""

    __slots__ = ("problem",)

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def __hash__(self) -> int:
        return id(self.problem)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProblemKey) and self.problem is other.problem
