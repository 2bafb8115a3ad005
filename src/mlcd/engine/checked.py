"""What a cloud says, checked before anything else sees it: a cloud may be wrong, or lie.

Every call goes through here. A value of the wrong type, NaN, an infinity, time that runs backwards or stands still:
each ends the lease as a LeaseFailed that names the cloud and the call. So does an exception that the interface does not
allow. Time is compared with the engine's own clock, and the longer one is charged.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from numbers import Real
from types import TracebackType
from typing import NoReturn, Protocol, Self, TypeVar, runtime_checkable

from mlcd.clouds.provider import Cloud, JobProgress, KnowsItsWork, Lease, LeaseFailed, Order, Settled
from mlcd.clouds.reading import Listening, Reading
from mlcd.clouds.serving.provider import Endpoint, ServerLease, ServingCloud
from mlcd.clouds.silence import ExplainsSilence, NamesDisturbance
from mlcd.engine.clock import boot_seconds
from mlcd.engine.performer import Situation
from mlcd.engine.watchdog import MAY_STILL_RUN, Bounds
from mlcd.errors import MlcdError, ProviderError
from mlcd.events import Warned
from mlcd.problem import Problem
from mlcd.run.step import Step
from mlcd.transformer import Transformer
from mlcd.trial.node_metrics import NodeMetrics
from mlcd.trial.trial import FailureKind
from mlcd.units import HOUR, Usd, format_seconds
from mlcd.untrusted import Malformed, printable

MOST_SECONDS = 1e12
"""The longest time that a cloud may state: 30,000 years; a dear one less, since the store keeps money in 64 bits."""
MOST_MICROS = 2**62
"""The most money that a step may cost: half of what the store can keep."""
MOST_SAMPLES = 1e30
"""The most samples that a cloud may state."""
MOST_STILL_REPORTS = 1_000
"""Progress reports in a row after which time that does not advance counts as standing still."""
MOST_IDLE_REPORTS = 100_000
"""Progress reports in a row without a further sample, on a simulated cloud."""
MOST_REPORTS, MOST_REPORTS_PER_SECOND = 1_000_000, 1_000
"""Progress reports of one lease: this many, and on real clouds this many more for each second."""
UNDERSTATED_SECONDS, UNDERSTATED_SHARE = 1.0, 0.01
"""The user is told of a cloud whose time is below the engine's by more than this."""
REACHED_FACTOR = 2.0
"""A checkpoint cannot cover more than this many times the work of a training."""
NEEDS_NODES = (FailureKind.OUT_OF_MEMORY, FailureKind.HANG, FailureKind.OVERRAN)
"""Failures that only a lease with nodes can have: they are charged, whatever the cloud says."""

T = TypeVar("T")


@runtime_checkable
class Checkpointed(Protocol):
    """A cloud whose trials continue where the last one stopped."""

    def reached_samples(self, run_id: str) -> float:
        """Samples up to which the training of a run is saved."""
        ...


def number(value: object, name: str, *, least: float = 0.0, most: float = math.inf) -> float:
    """`value` as a finite number within [least, most]. Raises Malformed."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise Malformed(name, f"should be a number, is {_shown(value)}")
    try:
        found = float(value)
    except (OverflowError, ValueError, TypeError) as error:
        raise Malformed(name, f"should be a number, is {_shown(value)}") from error
    if not math.isfinite(found):
        raise Malformed(name, f"should be a finite number, is {found}")
    if not least <= found <= most:
        raise Malformed(name, f"should be between {least:g} and {most:g}, is {found:g}")
    return found


def instance_of(value: object, kind: type[T], name: str) -> T:
    """`value`, if it is one of `kind`. Raises Malformed."""
    if not isinstance(value, kind):
        raise Malformed(name, f"should be {kind.__name__}, is {_shown(value)}")
    return value


def text_of(error: BaseException) -> str:
    """An exception that a cloud raised, for the user: its type and its first line."""
    try:
        words = str(error).strip().splitlines()
    except Exception:
        words = []
    name = type(error).__name__
    return printable(f"{name}: {words[0]}" if words else name, most_characters=300)


def most_seconds_at(price: Usd) -> float:
    """The longest time whose cost at `price` per hour can be stored."""
    return min(MOST_SECONDS, MOST_MICROS / price.micros * HOUR) if price.micros > 0 else MOST_SECONDS


@dataclass(kw_only=True)
class CheckedCloud:
    """A cloud during one step.

    warn          called with what the user should know
    clock         the engine's own, in seconds
    most_seconds  the longest time that the cloud may state
    most_samples  the most samples that a checkpoint may cover
    """

    cloud: Cloud
    bounds: Bounds = field(default_factory=Bounds)
    warn: Callable[[str], None] = lambda _text: None
    clock: Callable[[], float] = boot_seconds
    most_seconds: float = MOST_SECONDS
    most_samples: float = MOST_SAMPLES
    simulated: bool = field(init=False)
    _ordered_at: float | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.simulated = is_simulated(self.cloud)

    @property
    def name(self) -> str:
        """See Cloud."""
        return cloud_name(self.cloud)

    @property
    def noise(self) -> float:
        """See Cloud. Raises ProviderError for what is no noise."""
        try:
            return number(self.cloud.noise, "noise", most=1.0)
        except Malformed as problem:
            raise ProviderError(f"the cloud {self.name}: {problem}") from problem
        except MlcdError:
            raise
        except Exception as error:
            raise ProviderError(f"the cloud {self.name}: noise raised {text_of(error)}") from error

    @property
    def outlives_mlcd(self) -> bool:
        """Whether its nodes go on when mlcd dies, until the time of their order is over."""
        return outlives_mlcd(self.cloud)

    def lease(self, order: Order) -> "CheckedLease":
        """See Cloud. Raises LeaseFailed for whatever goes wrong, and MlcdErrors."""
        self._ordered_at = self.clock()
        calls = _Calls(cloud=self, order=order)
        lease = calls.make("lease()", lambda: self.cloud.lease(order))
        listens = calls.make("lease()", lambda: isinstance(lease, Listening))
        return CheckedListener(lease, calls) if listens else CheckedLease(lease, calls)

    def reached_samples(self, run_id: str) -> float:
        """Samples up to which the cloud has saved the training; 0 where it saves none, or does not say so plausibly."""
        if not isinstance(self.cloud, Checkpointed):
            return 0.0
        try:
            return number(self.cloud.reached_samples(run_id), "reached_samples()", most=self.most_samples)
        except MlcdError:
            raise
        except Malformed as problem:
            self.warn(f"the cloud {self.name}: {problem}: nothing counts as saved")
        except Exception as error:
            self.warn(f"the cloud {self.name}: reached_samples() raised {text_of(error)}: nothing counts as saved")
        return 0.0

    def passed_seconds(self) -> float:
        """Seconds since the order by the engine's clock; 0 before it, and where time is simulated."""
        return 0.0 if self.simulated or self._ordered_at is None else max(self.clock() - self._ordered_at, 0.0)

    def charged(self, seconds: float) -> float:
        """What a lease is charged that says it took `seconds`: the engine's time where that is longer."""
        return max(seconds, self.passed_seconds())


@dataclass(kw_only=True)
class CheckedServingCloud(CheckedCloud):
    """A cloud of servers during one step."""

    cloud: ServingCloud

    def lease(self, order: Order) -> "CheckedServer":
        """See ServingCloud. Raises as CheckedCloud.lease does."""
        self._ordered_at = self.clock()
        calls = _Calls(cloud=self, order=order)
        return CheckedServer(calls.make("lease()", lambda: self.cloud.lease(order)), calls)


def checked_cloud(cloud: Cloud, step: Step, situation: Situation[Problem], bounds: Bounds) -> CheckedCloud:
    """The cloud of nodes during `step`."""
    problem = situation.run.problem
    is_counted = problem.work_known and problem.target is None and problem.batching is None
    return CheckedCloud(
        cloud=cloud,
        bounds=bounds,
        warn=lambda text: situation.tell(Warned(text=text)),
        most_seconds=most_seconds_at(step.price),
        most_samples=REACHED_FACTOR * problem.work_samples if is_counted else MOST_SAMPLES,
    )


def checked_serving(
    cloud: ServingCloud, step: Step, situation: Situation[Problem], bounds: Bounds
) -> CheckedServingCloud:
    """The cloud of servers during `step`."""
    return CheckedServingCloud(
        cloud=cloud,
        bounds=bounds,
        warn=lambda text: situation.tell(Warned(text=text)),
        most_seconds=most_seconds_at(step.price),
    )


def is_understated(seconds: float, passed_seconds: float) -> bool:
    """Whether a cloud says clearly less than what passed by the engine's clock."""
    return passed_seconds - seconds > UNDERSTATED_SECONDS + UNDERSTATED_SHARE * passed_seconds


def cloud_name(cloud: object) -> str:
    """A cloud's name, for messages."""
    try:
        return printable(str(getattr(cloud, "name", type(cloud).__name__)), most_characters=100)
    except Exception:
        return type(cloud).__name__


def outlives_mlcd(cloud: object) -> bool:
    """Whether a cloud says that its nodes go on when mlcd dies."""
    try:
        return getattr(cloud, "outlives_mlcd", False) is True
    except Exception:
        return False


def is_simulated(cloud: object) -> bool:
    """Whether a cloud's time and money are simulated. Raises ProviderError where it does not say."""
    try:
        simulated = getattr(cloud, "simulated", None)
    except Exception as error:
        raise ProviderError(f"the cloud {cloud_name(cloud)}: simulated raised {text_of(error)}") from error
    if not isinstance(simulated, bool):
        raise ProviderError(f"the cloud {cloud_name(cloud)}: simulated should be True or False, is {_shown(simulated)}")
    return simulated


@dataclass(kw_only=True)
class _Calls:
    """Makes calls into one lease, and turns everything that may go wrong into a LeaseFailed."""

    cloud: CheckedCloud
    order: Order
    last: JobProgress = field(default_factory=lambda: JobProgress(0.0, 0.0))
    """The last progress that was plausible."""

    def make(self, what: str, call: Callable[[], T]) -> T:
        """What `call` returns. Raises LeaseFailed, MlcdErrors, and exceptions that are no errors, such as Ctrl-C."""
        try:
            return call()
        except LeaseFailed as failed:
            raise self.checked(failed) from failed
        except Malformed as problem:
            self.fail(f"{what}: {problem}", problem)
        except MlcdError:
            raise
        except (Exception, SystemExit) as error:  # somebody else's cloud: any error of it is its failure
            self.fail(f"{what} raised {text_of(error)}", error)

    def fail(self, message: str, error: BaseException | None = None, kind: FailureKind = FailureKind.ERROR) -> NoReturn:
        seconds = self.cloud.charged(self.last.seconds)
        raise self._failure(kind, f"the cloud {self.cloud.name}: {message}", seconds=seconds) from error

    def checked(self, failed: LeaseFailed) -> LeaseFailed:
        """The failure with values that can be believed; the engine's clock counts where they cannot."""
        kind = failed.kind if isinstance(failed.kind, FailureKind) else FailureKind.ERROR
        message = printable(str(failed.message))
        try:
            seconds = number(failed.seconds, "LeaseFailed.seconds", most=self.cloud.most_seconds)
            reached = number(failed.reached_samples, "LeaseFailed.reached_samples", most=self.cloud.most_samples)
        except Malformed as problem:
            seconds, reached = self.last.seconds, 0.0
            message = f"{message} (the cloud {self.cloud.name}: {problem})"
        # One that had a node, or that says it failed in a way that needs one, is paid for.
        billed = failed.billed is not False or self.last.samples > 0 or kind in NEEDS_NODES
        seconds = self.cloud.charged(max(seconds, self.last.seconds) if billed else seconds)
        return self._failure(kind, message, seconds=seconds, billed=billed, reached=reached)

    def _failure(
        self, kind: FailureKind, message: str, *, seconds: float, billed: bool = True, reached: float = 0.0
    ) -> LeaseFailed:
        if seconds > self.order.seconds + self.cloud.bounds.late_seconds:
            most = f"{format_seconds(self.order.seconds)} were authorised"
            kind, message = FailureKind.OVERRAN, f"{message}; it took {format_seconds(seconds)}, {most}"
        return LeaseFailed(kind, message, seconds=seconds, billed=billed, reached_samples=reached)


class CheckedLease:
    """A lease whose every word is checked. See mlcd.clouds.provider.Lease."""

    def __init__(self, inner: Lease, calls: _Calls) -> None:
        self._inner, self._calls = inner, calls

    def __enter__(self) -> Self:
        # `with` may give another object than the lease itself: that is the one to watch.
        self._entered = self._calls.make("__enter__()", lambda: self._inner.__enter__())  # noqa: PLW0108 - it may have none
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the nodes. What happened inside goes on, whatever the lease says of it."""
        try:
            self._inner.__exit__(kind, value, trace)
        except MlcdError:
            raise
        except (Exception, SystemExit) as error:  # somebody else's cloud
            problem = f"could not give the nodes back: {text_of(error)}; {MAY_STILL_RUN}"
            if value is not None:
                self._calls.cloud.warn(f"the cloud {self._calls.cloud.name} {problem}")
                return
            self._calls.fail(problem, error)

    def progress(self) -> Iterator[JobProgress]:
        """See Lease."""
        calls, cloud = self._calls, self._calls.cloud
        points = calls.make("progress()", lambda: iter(self._entered.progress()))
        end = object()
        still = idle = count = 0
        while True:
            found: object = calls.make("progress()", lambda: next(points, end))
            if found is end:
                return
            point = calls.make("progress()", lambda: self._point(found))  # noqa: B023 - called at once
            count += 1
            still = 0 if point.seconds > calls.last.seconds else still + 1
            idle = 0 if point.samples > calls.last.samples else idle + 1
            calls.last = point
            self._check_pace(still, idle, count)
            yield point
            if cloud.passed_seconds() > calls.order.seconds + cloud.bounds.late_seconds:
                calls.fail("the job still runs after its time", kind=FailureKind.OVERRAN)

    def finish(self, at: JobProgress) -> Settled:
        """See Lease."""
        return self._calls.make("finish()", lambda: self._settled(self._entered.finish(at), at))

    def _point(self, found: object) -> JobProgress:
        point, last = instance_of(found, JobProgress, "a report"), self._calls.last
        seconds = number(point.seconds, "seconds", most=self._calls.cloud.most_seconds)
        samples = number(point.samples, "samples", most=MOST_SAMPLES)
        if seconds < last.seconds:
            raise Malformed("seconds", f"ran backwards, from {last.seconds:g} to {seconds:g}")
        if samples < last.samples:
            raise Malformed("samples", f"went down, from {last.samples:g} to {samples:g}")
        return point if type(point.seconds) is type(point.samples) is float else JobProgress(seconds, samples)

    def _check_pace(self, still: int, idle: int, count: int) -> None:
        """Raises LeaseFailed for a cloud that reports for ever, without time or samples going on."""
        calls, cloud = self._calls, self._calls.cloud
        if cloud.simulated and still > MOST_STILL_REPORTS:
            calls.fail(f"its time stands still at {calls.last.seconds:g} s", kind=FailureKind.HANG)
        if cloud.simulated and idle > MOST_IDLE_REPORTS:
            calls.fail(f"no sample in {MOST_IDLE_REPORTS:,} reports", kind=FailureKind.HANG)
        if count > MOST_REPORTS + MOST_REPORTS_PER_SECOND * cloud.passed_seconds():
            calls.fail(f"more than {MOST_REPORTS:,} progress reports", kind=FailureKind.HANG)

    def _settled(self, found: object, at: JobProgress) -> Settled:
        settled, cloud = instance_of(found, Settled, "the answer"), self._calls.cloud
        seconds = number(settled.seconds, "seconds", most=cloud.most_seconds)
        reached = number(settled.reached_samples, "reached_samples", most=MOST_SAMPLES)
        if reached > cloud.most_samples:
            work = cloud.most_samples / REACHED_FACTOR
            fix = "correct job.samples and job.epochs, or what the script reports"
            self._calls.fail(f"the job has trained {reached:,.0f} samples, and all of its work is {work:,.0f}: {fix}")
        used, total = settled.utilisation, settled.total_samples
        checked = replace(
            settled,
            seconds=cloud.charged(max(seconds, at.seconds)),
            reached_samples=reached,
            utilisation=None if used is None else number(used, "utilisation", most=MOST_SAMPLES),
            total_samples=None if total is None else number(total, "total_samples", most=MOST_SAMPLES),
            node_metrics=_node_metrics(settled.node_metrics),
            missing_outputs=_texts(settled.missing_outputs, "missing_outputs"),
            kept_folder=_text(settled.kept_folder, "kept_folder"),
            is_finished=instance_of(settled.is_finished, bool, "is_finished"),
            transformer=_transformer(settled.transformer),
        )
        if is_understated(seconds, cloud.passed_seconds()):
            more = f"{format_seconds(checked.seconds)} passed and are charged"
            cloud.warn(f"the cloud {cloud.name} says that a lease took {format_seconds(seconds)}; {more}")
        return checked


class CheckedListener(CheckedLease):
    """A lease whose job reports more than its progress."""

    @property
    def heard(self) -> list[Reading]:
        """See mlcd.clouds.reading.Listening: the readings so far; what is no reading is left out."""
        try:
            return [found for found in getattr(self._entered, "heard", ()) if isinstance(found, Reading)]
        except Exception:
            return []

    def silence(self) -> str:
        """See mlcd.clouds.silence.ExplainsSilence; "" where the lease cannot say."""
        try:
            return _text(self._entered.silence(), "silence()") if isinstance(self._entered, ExplainsSilence) else ""
        except Exception:
            return ""

    def disturbance(self) -> str:
        """See mlcd.clouds.silence.NamesDisturbance; "" where the lease cannot say."""
        try:
            found = self._entered.disturbance() if isinstance(self._entered, NamesDisturbance) else ""
            return _text(found, "disturbance()")
        except Exception:
            return ""

    def has_done_all(self) -> bool:
        """See mlcd.clouds.provider.KnowsItsWork; False where the lease does not say."""
        try:
            return isinstance(self._entered, KnowsItsWork) and self._entered.has_done_all() is True
        except Exception:
            return False


class CheckedServer(CheckedLease):
    """A server's lease. See mlcd.clouds.serving.provider.ServerLease."""

    _entered: ServerLease

    @property
    def endpoint(self) -> Endpoint:
        """See ServerLease."""
        return self._calls.make("endpoint", lambda: instance_of(self._entered.endpoint, Endpoint, "the answer"))

    def check(self) -> None:
        """See ServerLease."""
        self._calls.make("check()", lambda: self._entered.check())  # noqa: PLW0108 - it may have none

    def memory_gib(self) -> float | None:
        """See ServerLease."""

        def asked() -> float | None:
            found: object = self._entered.memory_gib()
            return None if found is None else number(found, "the answer", most=1e9)

        return self._calls.make("memory_gib()", asked)


_NODE_VALUES = ("cpu_percent", "received_bytes", "sent_bytes", "gpu_percent", "gpu_memory_gib")


def _node_metrics(found: object) -> NodeMetrics | None:
    """A summary as it can be stored and shown. Raises Malformed."""
    if found is None:
        return None
    metrics = instance_of(found, NodeMetrics, "node_metrics")
    stated = {name: getattr(metrics, name) for name in _NODE_VALUES}
    values = {name: number(value, name) for name, value in stated.items() if value is not None}
    source = printable(instance_of(metrics.source, str, "source"))
    try:
        return NodeMetrics(source=source, nodes=int(number(metrics.nodes, "nodes")), **values)
    except ValueError as error:
        raise Malformed("node_metrics", str(error)) from error


def _transformer(found: object) -> Transformer | None:
    """Sizes that can be stored. Raises Malformed."""
    return None if found is None else instance_of(found, Transformer, "transformer")


def _texts(found: object, name: str) -> tuple[str, ...]:
    return tuple(_text(each, name) for each in instance_of(found, tuple, name))


def _text(found: object, name: str) -> str:
    """A text as it can be stored and shown. Raises Malformed."""
    return printable(instance_of(found, str, name))


def _shown(value: object) -> str:
    try:
        return printable(repr(value), most_characters=60)
    except Exception:
        return type(value).__name__
