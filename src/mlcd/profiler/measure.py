"""How a trial is measured (paper IV): drop the warm-up, watch the throughput, extend while imprecise, end hangs."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
from scipy.special import stdtrit

from mlcd.clouds.provider import Cloud, JobProgress, KnowsItsWork, LeaseFailed, Order, Purpose, Settled
from mlcd.clouds.reading import Listening, Reading
from mlcd.clouds.silence import ExplainsSilence, NamesDisturbance
from mlcd.errors import Interrupted
from mlcd.problem import LEAST_MEASURED_SECONDS, TrialPolicy
from mlcd.profiler.noise import noise_scale
from mlcd.space import Config
from mlcd.trial.trial import Failure, FailureKind, Learned, Measurement, Trial
from mlcd.units import ZERO, Usd

BATCH_MEANS = 8
"""Progress points are pooled into this many consecutive batches, whose means are nearly independent."""
MOST_POINTS = 20_000
"""Points that are kept of a trial; when there are more, every second one is dropped."""
MOST_RELATIVE_ERROR = 10.0
"""A speed that is known no better (a job that reports all its work at once) is unknown: its bounds would overflow."""
MOST_RATES = 2_000
"""Rates between points from which the speed is computed: finding the warm-up takes the square of their number."""
HOPELESS_SLOWDOWN = 1.5
"""A trial that is so many times slower than what it must beat ends early: warm-up explains no more than that."""
TRIAL_QUIET_GAPS = 5.0
"""At the end of a trial, a job that has been silent this many times longer than ever before counts as hung."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadySpeed:
    """Throughput after warm-up: mean samples/s, standard error of its logarithm, number of points."""

    samples_per_second: float
    relative_error: float
    points: int


def measure(
    cloud: Cloud,
    config: Config,
    *,
    attempt: int,
    policy: TrialPolicy,
    usd_per_hour: Usd,
    moved_usd: Usd = ZERO,
    run_id: str = "",
    metric: str = "",
    known_noise: float | None = None,
    checkpoint_seconds: float | None = None,
    to_beat: float = 0.0,
    continues: bool = True,
    cancelled: Callable[[], bool] = lambda: False,
    warned: Callable[[str], None] = lambda _text: None,
    charged: Callable[[float], float] = lambda seconds: seconds,
) -> Trial:
    """One trial of `config`: a Measurement, or a Failure with its cost. The job is watched for policy.worst_seconds.

    Unless the job hangs, the last watchdog_seconds are for saving its work and releasing the nodes. What a real cloud
    took, or says that it took, is charged in full, even beyond that. A simulated trial is ended at worst_seconds sharp.

    moved_usd    what bringing the data to the nodes costs; charged as soon as there are nodes
    metric       name of the model-quality metric in the job's reports; "" if not needed
    known_noise  the noise scale measured by earlier trials
    checkpoint_seconds  see Order
    to_beat      samples a second below which the configuration is not chosen; a trial that may end early and is far
                 below it ends soon
    continues    whether the trial is a part of the training, where the job saves its work
    warned       called with each warning of a job that kept running
    charged      what to charge for a job that hung at so many seconds, now that its nodes are released

    Raises Interrupted when `cancelled`, and what the cloud raises besides LeaseFailed (ProviderError). The nodes are
    always released.
    """
    watch = _Watch(policy=policy, nodes=config.nodes, to_beat=to_beat, noise=cloud.noise)
    settled: Settled | None = None
    # A simulated step may overshoot the authorised time; real nodes end themselves and are paid in full.
    most = watch.worst_seconds if cloud.simulated else math.inf
    order = Order(
        config=config,
        attempt=attempt,
        purpose=Purpose.TRIAL,
        seconds=watch.worst_seconds,
        run_id=run_id,
        noise_scale=known_noise,
        checkpoint_seconds=checkpoint_seconds,
        continues=continues,
    )
    listening: Listening | None = None
    heard: list[Reading] = []
    try:
        with cloud.lease(order) as lease:
            listening = lease if isinstance(lease, Listening) else None
            working = lease if isinstance(lease, KnowsItsWork) else None
            for point in lease.progress():
                if cancelled():
                    raise Interrupted("the trial ended with the run")
                watch.has_done_all = working is not None and working.has_done_all()
                if watch.is_over(point):
                    break
            if watch.has_no_sample and isinstance(lease, ExplainsSilence):
                watch.silence = lease.silence()
            if watch.hung and isinstance(lease, NamesDisturbance):
                watch.disturbance = lease.disturbance()
            if watch.points and not watch.hung:
                settled = lease.finish(watch.points[-1])
    except LeaseFailed as failed:
        seconds = failed.seconds if failed.kind is FailureKind.OVERRAN else min(failed.seconds, most)
        usd = usd_per_hour.for_seconds(seconds) + moved_usd if failed.billed else ZERO
        return Failure(
            config=config,
            attempt=attempt,
            kind=failed.kind,
            message=failed.message,
            seconds=seconds,
            usd=usd,
            reached_samples=failed.reached_samples,
        )
    finally:
        heard = listening.heard if listening is not None else heard
        for text in warnings(heard):
            warned(f"{config}: {text}")
    if settled is None:
        seconds = watch.end_seconds if cloud.simulated else charged(watch.end_seconds)
    else:
        at = watch.points[-1].seconds  # what comes after it, to save and to release, was the cloud's doing
        seconds = min(at, most) + max(settled.seconds - at, 0.0)
    usd = usd_per_hour.for_seconds(seconds) + moved_usd
    speed = None if watch.hung else steady_speed(watch.working_points)
    if speed is None:
        return Failure(
            config=config,
            attempt=attempt,
            kind=FailureKind.HANG if watch.hung else FailureKind.ERROR,  # a job that ended by itself does not hang
            message="; ".join(filter(None, (watch.complaint, watch.disturbance))),
            seconds=seconds,
            usd=usd,
            reached_samples=settled.reached_samples if settled else 0.0,
        )
    return Measurement(
        config=config,
        attempt=attempt,
        samples_per_second=speed.samples_per_second,
        # Two runs of one configuration differ by more than one trial shows: the cloud states by how much.
        relative_error=math.hypot(speed.relative_error, cloud.noise),
        iterations=speed.points,
        startup_seconds=min(watch.startup_seconds, seconds),
        seconds=seconds,
        usd=usd,
        extended=watch.extended,
        reached_samples=settled.reached_samples if settled else 0.0,
        utilisation=settled.utilisation if settled else None,
        total_samples=settled.total_samples if settled else None,
        noise_scale=noise_scale(heard),
        learned=learned(heard, metric),
        node_metrics=settled.node_metrics if settled else None,
        is_finished=settled.is_finished if settled else False,
        transformer=settled.transformer if settled else None,
    )


def warnings(heard: Iterable[Reading]) -> tuple[str, ...]:
    """The warnings of the job, each once."""
    return tuple(dict.fromkeys(reading.warning for reading in heard if reading.warning))


def learned(heard: Iterable[Reading], metric: str) -> tuple[Learned, ...]:
    """The metric after each reported number of samples."""
    return tuple(
        Learned(reading.samples, reading.metrics[metric])
        for reading in heard
        if reading.samples is not None and metric in reading.metrics
    )


@dataclass(kw_only=True)
class _Watch:
    """The points of one trial so far, and whether it is time to stop."""

    policy: TrialPolicy
    nodes: int
    to_beat: float = 0.0
    noise: float = 0.0
    points: list[JobProgress] = field(default_factory=list)
    hung: bool = False
    extended: bool = False
    silence: str = ""
    """What a job without a sample wrote instead, where its lease knows."""
    disturbance: str = ""
    """What may have held up a job that hung, where its lease knows."""
    has_done_all: bool = False
    """Whether the job has reported all of its work: then it writes its results, and its silence is no hang."""
    startup_seconds: float = 0.0
    """The last point without a sample, or the first point: a cloud may report while it starts."""
    _last_change: float = 0.0
    _longest_gap: float = 1.0

    @property
    def worst_seconds(self) -> float:
        return self.policy.worst_seconds(self.nodes)

    @property
    def end_seconds(self) -> float:
        """When the trial ended: its last point, at most what was authorised (a simulated step may overshoot)."""
        return min(self.points[-1].seconds, self.worst_seconds) if self.points else self.worst_seconds

    @property
    def has_no_sample(self) -> bool:
        return not self.points or self.points[-1].samples <= 0

    @property
    def working_points(self) -> list[JobProgress]:
        """The points while it trained: without the time in which a job that has done all writes its results."""
        if not self.has_done_all or not self.points:
            return self.points
        most = self.points[-1].samples
        return self.points[: 1 + next(at for at, point in enumerate(self.points) if point.samples >= most)]

    @property
    def complaint(self) -> str:
        if self.has_no_sample:
            what = f"the {'trial' if self.hung else 'job'} ended before its first sample after {self.end_seconds:.0f} s"
            longer = "; increase search.trial.minutes" if self.hung else ""
            return f"{what}: {self.silence}" if self.silence else f"{what}{longer}"
        if not self.hung:
            return "the job ended after too few samples to measure its speed"
        return f"no progress for {self.policy.watchdog_seconds:.0f} s"

    def is_over(self, point: JobProgress) -> bool:
        """Add a point. True when the job hangs, or when the planned time is over and the speed is precise enough."""
        if not self.points or point.samples > self.points[-1].samples:
            if self.points and self.points[-1].samples > 0:
                self._longest_gap = max(self._longest_gap, point.seconds - self._last_change)
            self._last_change = point.seconds
        if not self.points or point.samples <= 0:
            self.startup_seconds = point.seconds
        self.points.append(point)
        if len(self.points) > MOST_POINTS:
            self.points[:] = [*self.points[:-1:2], point]
        if point.samples <= 0:
            self.hung = point.seconds >= self.policy.extended_seconds(self.nodes)
            return self.hung
        if self.has_done_all:
            return point.seconds >= self.policy.extended_seconds(self.nodes)
        silent = point.seconds - self._last_change
        self.hung = 0 < self.policy.watchdog_seconds <= silent
        if point.seconds >= self.policy.extended_seconds(self.nodes):
            # The trial ends before the watchdog would fire: an unusually long silence counts as a hang.
            self.hung = self.hung or (
                self.policy.watchdog_seconds > 0 and silent > TRIAL_QUIET_GAPS * self._longest_gap
            )
            return True
        if self.hung:
            return True
        if point.seconds < self.policy.planned_seconds(self.nodes):
            return self._is_known(point)
        speed = steady_speed(self.points)
        # One rate says nothing about its error, and may be that of a first step that compiles.
        imprecise = speed is None or speed.points < 2 or 1.96 * speed.relative_error > self.policy.precision
        self.extended = self.extended or imprecise
        return not imprecise

    def _is_known(self, point: JobProgress) -> bool:
        """Whether the speed is known well enough before the planned time is over."""
        measured_seconds, least_seconds = point.seconds - self.startup_seconds, self.policy.least_seconds(self.nodes)
        is_slow = 0 < point.samples < self.to_beat * measured_seconds / HOPELESS_SLOWDOWN
        if measured_seconds < (max(least_seconds / 2, LEAST_MEASURED_SECONDS) if is_slow else least_seconds):
            return False
        speed = steady_speed(self.points)
        if speed is None or speed.points < BATCH_MEANS // 2:
            return False
        most = speed.samples_per_second * math.exp(1.96 * math.hypot(speed.relative_error, self.noise))
        if is_slow and most * HOPELESS_SLOWDOWN < self.to_beat:
            return True
        return speed.points >= BATCH_MEANS and 1.96 * speed.relative_error <= self.policy.enough_precision(self.noise)


def steady_speed(points: list[JobProgress]) -> SteadySpeed | None:
    """The throughput after warm-up; None with too few points.

    The warm-up ends where the standard error of the rest is least (MSER, White 1997), at most half-way. The error is
    that of batch means.
    """
    # Heartbeats between two reports carry no speed: keep only the points where the samples rise.
    rising = [p for at, p in enumerate(points) if at + 1 == len(points) or points[at + 1].samples > p.samples]
    rising = [p for at, p in enumerate(rising) if at == 0 or p.samples > rising[at - 1].samples]
    seconds = np.array([p.seconds for p in rising])
    samples = np.array([p.samples for p in rising])
    durations, amounts = np.diff(seconds), np.diff(samples)
    keep = durations > 0
    durations, amounts = durations[keep], amounts[keep]
    if len(durations) == 0 or amounts.sum() <= 0:
        return None
    if len(durations) > MOST_RATES:
        starts = np.arange(0, len(durations), math.ceil(len(durations) / MOST_RATES))
        durations, amounts = np.add.reduceat(durations, starts), np.add.reduceat(amounts, starts)
    rates = amounts / durations
    cut = _warm_up_cut(rates)
    durations, amounts = durations[cut:], amounts[cut:]
    mean = amounts.sum() / durations.sum()
    batches = min(BATCH_MEANS, len(durations))
    if batches < 2 or mean <= 0:
        return None if mean <= 0 else SteadySpeed(samples_per_second=mean, relative_error=0.0, points=len(durations))
    edges = np.linspace(0, len(durations), batches + 1).astype(int)[:-1]
    batch_rates = np.add.reduceat(amounts, edges) / np.add.reduceat(durations, edges)
    error = float(batch_rates.std(ddof=1) / math.sqrt(batches) / mean)
    # With few batches, widen by Student's t, so that z standard errors mean the same confidence everywhere.
    widen = float(stdtrit(batches - 1, 0.975)) / 1.959964
    error = min(error * widen, MOST_RELATIVE_ERROR)
    return SteadySpeed(samples_per_second=float(mean), relative_error=error, points=len(durations))


def _warm_up_cut(rates: np.ndarray[tuple[int], np.dtype[np.float64]]) -> int:
    count = len(rates)
    if count < 4:
        return 0
    best, cut = math.inf, 0
    for start in range(count // 2 + 1):
        rest = rates[start:]
        score = float(((rest - rest.mean()) ** 2).sum()) / len(rest) ** 2
        if score < best:
            best, cut = score, start
    return cut
