"""Clouds that lie, fail and hang, each in one way: an engine has to survive every one of them.

Everything else about them is honest: a real one takes real time, a simulated one states made-up time.
"""

import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import zip_longest
from types import TracebackType
from typing import Any, NoReturn

from mlcd.clouds.functions.provider import EpochFailed, EpochOrder
from mlcd.clouds.provider import JobProgress, LeaseFailed, Order, Purpose, Settled
from mlcd.clouds.serving.provider import Endpoint
from mlcd.trial.epoch import Epoch, Phase
from mlcd.trial.trial import FailureKind
from mlcd.units import Usd

STEP_SECONDS = 0.02
"""Time between two progress reports."""
FAULT_AFTER = 2
"""Honest progress reports before the fault."""
SPEED = 1_000.0
"""Samples per second."""
UNDERSTATED_SECONDS = 0.2
"""What an epoch takes that says that it took no time."""
FAR_SECONDS = 1e6
"""What a cloud that overran says that it took."""


class Fault(StrEnum):
    """What a hostile cloud of nodes does."""

    LEASE_HANGS = "lease() never returns"
    ENTER_HANGS = "__enter__() never returns"
    PROGRESS_HANGS = "progress() stops reporting"
    FINISH_HANGS = "finish() never returns"
    EXIT_HANGS = "__exit__() never returns"
    REACHED_HANGS = "reached_samples() never returns"
    LEASE_RAISES = "lease() raises"
    ENTER_RAISES = "__enter__() raises"
    PROGRESS_RAISES = "progress() raises"
    FINISH_RAISES = "finish() raises"
    EXIT_RAISES = "__exit__() raises"
    REACHED_RAISES = "reached_samples() raises"
    EXITS = "progress() calls sys.exit()"
    SWALLOWS = "__exit__() swallows every exception"
    LEASE_NONE = "lease() returns None"
    PROGRESS_NONE = "progress() returns None"
    REPORT_TYPE = "a progress report is a mapping"
    SECONDS_TEXT = "seconds are a text"
    SECONDS_NAN = "seconds are NaN"
    SECONDS_INFINITE = "seconds are infinite"
    SECONDS_NEGATIVE = "seconds are negative"
    SECONDS_HUGE = "seconds are 1e300"
    SECONDS_BACKWARDS = "seconds run backwards"
    SECONDS_STILL = "seconds stand still"
    SAMPLES_NAN = "samples are NaN"
    SAMPLES_INFINITE = "samples are infinite"
    SAMPLES_NEGATIVE = "samples are negative"
    SAMPLES_FALL = "samples go down"
    SAMPLES_STILL = "no sample is ever processed"
    NEVER_ENDS = "ignores the authorised time, reporting ever less progress"
    FLOODS = "reports without a pause"
    SETTLED_NONE = "finish() returns None"
    SETTLED_NAN = "finish() says NaN seconds"
    SETTLED_NEGATIVE = "finish() says negative seconds"
    SETTLED_OVER = "finish() says far more than was authorised"
    SETTLED_UNDER = "finish() says 0 seconds"
    REACHED_NAN = "finish() says that NaN samples are saved"
    REACHED_BEYOND = "finish() says that more than the work is saved"
    FAILED_OVER = "fails after far more than was authorised"
    FAILED_NAN = "fails after NaN seconds"
    FAILED_UNDER = "fails after 0 seconds"
    FAILED_KIND = "fails with a kind that does not exist"
    FAILED_UNBILLED = "fails unbilled after processing samples"
    NOISE_NAN = "noise is NaN"
    SIMULATED_TEXT = "simulated is a text"


HANGS = frozenset(
    {
        Fault.LEASE_HANGS,
        Fault.ENTER_HANGS,
        Fault.PROGRESS_HANGS,
        Fault.FINISH_HANGS,
        Fault.EXIT_HANGS,
        Fault.REACHED_HANGS,
    }
)
REFUSED = frozenset({Fault.NOISE_NAN, Fault.SIMULATED_TEXT})
"""What makes a cloud unusable as a whole: a ProviderError, no outcome."""


@dataclass
class HostileCloud:
    """Nodes with one fault, in leases for `at`. Call `let_go` in the end, so that what hangs returns.

    held  (start, end or None) of each lease on this cloud's own clock: what has to be charged at the least
    """

    fault: Fault | None
    simulated: Any = False
    at: Purpose = Purpose.TRIAL
    work_samples: float = math.inf
    name: str = "hostile"
    noise: float = 0.0
    held: list[list[float | None]] = field(default_factory=list)
    _go: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        if self.fault is Fault.NOISE_NAN:
            self.noise = math.nan
        if self.fault is Fault.SIMULATED_TEXT:
            self.simulated = "no"

    def let_go(self) -> None:
        """Let everything return that hangs."""
        self._go.set()

    def hang(self) -> NoReturn:
        """Until `let_go`; then fail, so that nothing more is done."""
        self._go.wait()
        raise LeaseFailed(FailureKind.ERROR, "it was let go", seconds=0.0)

    def lease(self, order: Order) -> Any:
        """Order nodes."""
        self.held.append([time.monotonic(), None])
        fault = self.fault if order.purpose is self.at else None
        _trouble(fault, Fault.LEASE_HANGS, self.hang)
        _trouble(fault, Fault.LEASE_RAISES, _raise)
        return None if fault is Fault.LEASE_NONE else HostileLease(self, fault, order)

    def reached_samples(self, run_id: str) -> float:
        """No sample is ever saved."""
        _trouble(self.fault, Fault.REACHED_HANGS, self.hang)
        _trouble(self.fault, Fault.REACHED_RAISES, _raise)
        return 0.0

    def charged_at_least(self) -> float:
        """Seconds that leases were held, each until it was released or another one began; not where simulated."""
        if self.simulated is True:
            return 0.0
        later = [start for start, _ in self.held[1:]]
        spans = [(start, end or after) for (start, end), after in zip_longest(self.held, later)]
        return sum(end - start for start, end in spans if start is not None and end is not None)


class HostileLease:
    """One lease of a HostileCloud; `fault` is None where it is honest."""

    def __init__(self, cloud: HostileCloud, fault: Fault | None, order: Order) -> None:
        self.cloud, self.fault, self.order = cloud, fault, order
        self.span = cloud.held[-1]

    def __enter__(self) -> "HostileLease":
        _trouble(self.fault, Fault.ENTER_HANGS, self.cloud.hang)
        _trouble(self.fault, Fault.ENTER_RAISES, _raise)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self.span[1] = time.monotonic()
        _trouble(self.fault, Fault.EXIT_HANGS, self.cloud.hang)
        _trouble(self.fault, Fault.EXIT_RAISES, _raise)
        return self.fault is Fault.SWALLOWS

    def progress(self) -> Any:
        """Reports."""
        return None if self.fault is Fault.PROGRESS_NONE else self._reports()

    def finish(self, at: JobProgress) -> Any:
        """End the job."""
        _trouble(self.fault, Fault.FINISH_HANGS, self.cloud.hang)
        _trouble(self.fault, Fault.FINISH_RAISES, _raise)
        if self.fault is Fault.SETTLED_NONE:
            return None
        seconds = {
            Fault.SETTLED_NAN: math.nan,
            Fault.SETTLED_NEGATIVE: -1.0,
            Fault.SETTLED_OVER: FAR_SECONDS,
            Fault.SETTLED_UNDER: 0.0,
        }
        reached = {Fault.REACHED_NAN: math.nan, Fault.REACHED_BEYOND: 1e12}
        return Settled(
            seconds=seconds.get(self.fault, self._seconds(at.seconds)) if self.fault else self._seconds(at.seconds),
            reached_samples=reached.get(self.fault, 0.0) if self.fault else 0.0,
        )

    def _seconds(self, simulated: float) -> float:
        start = self.span[0]
        return simulated if self.cloud.simulated or start is None else time.monotonic() - start

    def _reports(self) -> Iterator[Any]:
        """Honest progress until the work is done; after FAULT_AFTER reports, the fault."""
        seconds, count, changed = 0.0, 0, _CHANGED.get(self.fault) if self.fault else None
        last = JobProgress(0.0, 0.0)
        while True:
            if count >= FAULT_AFTER:
                self._fail(last)
            is_work_done = self.order.purpose is Purpose.RUN and last.samples >= self.cloud.work_samples
            if is_work_done and not self.cloud.simulated and changed is None:
                return
            if self.fault is not Fault.FLOODS and not self.cloud.simulated:
                time.sleep(STEP_SECONDS)
            seconds = self._seconds(seconds + STEP_SECONDS)
            honest = JobProgress(seconds, SPEED * seconds)
            if changed is not None and count >= FAULT_AFTER:
                yield changed(last)
            else:
                last = honest
                yield honest
            count += 1

    def _fail(self, last: JobProgress) -> None:
        _trouble(self.fault, Fault.PROGRESS_HANGS, self.cloud.hang)
        _trouble(self.fault, Fault.PROGRESS_RAISES, _raise)
        if self.fault is Fault.EXITS:
            raise SystemExit("I am done")
        seconds = {Fault.FAILED_OVER: FAR_SECONDS, Fault.FAILED_NAN: math.nan, Fault.FAILED_UNDER: 0.0}
        if self.fault in seconds:
            raise LeaseFailed(FailureKind.ERROR, "it failed\x1b[2J", seconds=seconds[self.fault])
        if self.fault is Fault.FAILED_KIND:
            kind: Any = "because"
            raise LeaseFailed(kind, "it failed", seconds=last.seconds)
        if self.fault is Fault.FAILED_UNBILLED:
            raise LeaseFailed(FailureKind.CAPACITY, "no nodes", seconds=last.seconds, billed=False)


_Change = Callable[[JobProgress], Any]
_CHANGED: dict[Fault, _Change] = {
    Fault.REPORT_TYPE: lambda last: {"seconds": last.seconds, "samples": last.samples},
    Fault.SECONDS_TEXT: lambda last: JobProgress("soon", last.samples),  # type: ignore[arg-type]  # that is the fault
    Fault.SECONDS_NAN: lambda last: JobProgress(math.nan, last.samples),
    Fault.SECONDS_INFINITE: lambda last: JobProgress(math.inf, last.samples),
    Fault.SECONDS_NEGATIVE: lambda last: JobProgress(-1.0, last.samples),
    Fault.SECONDS_HUGE: lambda last: JobProgress(1e300, last.samples),
    Fault.SECONDS_BACKWARDS: lambda last: JobProgress(last.seconds / 2, last.samples + 1),
    Fault.SECONDS_STILL: lambda last: JobProgress(last.seconds, last.samples),
    Fault.SAMPLES_NAN: lambda last: JobProgress(last.seconds + STEP_SECONDS, math.nan),
    Fault.SAMPLES_INFINITE: lambda last: JobProgress(last.seconds + STEP_SECONDS, math.inf),
    Fault.SAMPLES_NEGATIVE: lambda last: JobProgress(last.seconds + STEP_SECONDS, -1.0),
    Fault.SAMPLES_FALL: lambda last: JobProgress(last.seconds + STEP_SECONDS, last.samples / 2),
    Fault.SAMPLES_STILL: lambda last: JobProgress(last.seconds, last.samples),
    Fault.NEVER_ENDS: lambda last: JobProgress(last.seconds, last.samples + 1e-9),
    Fault.FLOODS: lambda last: JobProgress(last.seconds, last.samples),
}


# ---- servers


class ServerFault(StrEnum):
    """What a hostile cloud of servers does."""

    LEASE_HANGS = "lease() never returns"
    NEVER_READY = "the server never becomes ready"
    TIME_STILL = "the server never becomes ready, and time stands still"
    READY_RAISES = "progress() raises"
    ENDPOINT_TYPE = "endpoint is a text"
    CHECK_RAISES = "check() raises"
    MEMORY_NAN = "memory_gib() is NaN"
    FINISH_NAN = "finish() says NaN seconds"
    EXIT_HANGS = "__exit__() never returns"


@dataclass
class HostileServers:
    """Servers with one fault. Call `let_go` in the end."""

    fault: ServerFault | None
    simulated: bool = False
    name: str = "hostile"
    noise: float = 0.0
    _go: threading.Event = field(default_factory=threading.Event)

    def let_go(self) -> None:
        """Let everything return that hangs."""
        self._go.set()

    def hang(self) -> NoReturn:
        """Until `let_go`."""
        self._go.wait()
        raise LeaseFailed(FailureKind.ERROR, "it was let go", seconds=0.0)

    def lease(self, order: Order) -> Any:
        """Order a server."""
        _trouble(self.fault, ServerFault.LEASE_HANGS, self.hang)
        return HostileServer(self)


class HostileServer:
    """One server of HostileServers."""

    def __init__(self, cloud: HostileServers) -> None:
        self.cloud, self.fault, self._began = cloud, cloud.fault, time.monotonic()

    def __enter__(self) -> "HostileServer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        _trouble(self.fault, ServerFault.EXIT_HANGS, self.cloud.hang)

    def progress(self) -> Iterator[JobProgress]:
        """Until the server is ready."""
        yield JobProgress(0.0, 0.0)
        _trouble(self.fault, ServerFault.READY_RAISES, _raise)
        while self.fault in (ServerFault.NEVER_READY, ServerFault.TIME_STILL):
            time.sleep(STEP_SECONDS)
            still = self.fault is ServerFault.TIME_STILL
            yield JobProgress(0.0 if still else time.monotonic() - self._began, 0.0)

    @property
    def endpoint(self) -> Any:
        """Where it would answer."""
        if self.fault is ServerFault.ENDPOINT_TYPE:
            return "http://localhost"
        return Endpoint(address="http://localhost:1", model="toy")

    def check(self) -> None:
        """It lives."""
        _trouble(self.fault, ServerFault.CHECK_RAISES, _raise)

    def memory_gib(self) -> float | None:
        """Its memory."""
        return math.nan if self.fault is ServerFault.MEMORY_NAN else 1.0

    def finish(self, at: JobProgress) -> Settled:
        """End it."""
        passed = time.monotonic() - self._began
        return Settled(seconds=math.nan if self.fault is ServerFault.FINISH_NAN else passed)


# ---- functions


class FunctionFault(StrEnum):
    """What a hostile cloud of functions does."""

    HANGS = "run_epoch() never returns"
    RAISES = "run_epoch() raises"
    EXITS = "run_epoch() calls sys.exit()"
    NONE = "run_epoch() returns None"
    NUMBER = "answers with another epoch"
    NAN = "the loss is NaN"
    NEGATIVE = "the cost is negative"
    HUGE = "the cost is beyond what can be stored"
    OVER = "costs more than was authorised"
    LATE = "takes longer than was authorised"
    UNDER = "says 0 seconds"
    FAILED_NAN = "fails after NaN seconds"
    FAILED_OVER = "fails, and costs more than was authorised"
    FAILED_ALWAYS = "every epoch fails"
    CALLS = "lists calls that are none"
    RESTORE_RAISES = "restore() raises"
    RESTORE_HANGS = "restore() never returns"


@dataclass
class HostileFunctions:
    """Functions with one fault. Call `let_go` in the end."""

    fault: FunctionFault | None
    simulated: bool = False
    name: str = "hostile"
    calls: Any = ()
    _go: threading.Event = field(default_factory=threading.Event)

    def let_go(self) -> None:
        """Let everything return that hangs."""
        self._go.set()

    def hang(self) -> NoReturn:
        """Until `let_go`."""
        self._go.wait()
        raise EpochFailed("it was let go", seconds=0.0, usd=Usd(0))

    def restore(self, run_id: str, epochs: Any) -> None:
        """Continue a run."""
        _trouble(self.fault, FunctionFault.RESTORE_RAISES, _raise)
        _trouble(self.fault, FunctionFault.RESTORE_HANGS, self.hang)

    def run_epoch(self, order: EpochOrder) -> Any:
        """One epoch of half the authorised cost."""
        fault = self.fault
        _trouble(fault, FunctionFault.HANGS, self.hang)
        _trouble(fault, FunctionFault.RAISES, _raise)
        if fault is FunctionFault.EXITS:
            raise SystemExit("I am done")
        if fault is FunctionFault.NONE:
            return None
        if fault is FunctionFault.UNDER:
            time.sleep(UNDERSTATED_SECONDS)
        if fault is FunctionFault.CALLS:
            self.calls = ("a call", None)
        if fault is FunctionFault.FAILED_NAN:
            raise EpochFailed("it failed", seconds=math.nan, usd=order.usd)
        if fault is FunctionFault.FAILED_OVER:
            raise EpochFailed("it failed", seconds=0.1, usd=order.usd * 1000)
        if fault is FunctionFault.FAILED_ALWAYS:
            raise EpochFailed("it failed", seconds=0.1, usd=Usd(1))
        nothing = Phase(mean_seconds=0.0, max_seconds=0.0)
        epoch = Epoch(
            number=order.number + (fault is FunctionFault.NUMBER),
            fleet=order.fleet,
            loss=1.0 / (1 + order.number),
            seconds=FAR_SECONDS if fault is FunctionFault.LATE else 0.0 if fault is FunctionFault.UNDER else 0.01,
            usd=order.usd * (1000 if fault is FunctionFault.OVER else 0.5),
            fetch=nothing,
            compute=nothing,
            update=nothing,
            calls=order.fleet.functions,
        )
        wrong: dict[FunctionFault, tuple[str, Any]] = {
            FunctionFault.NAN: ("loss", math.nan),
            FunctionFault.NEGATIVE: ("usd", Usd(-1)),
            FunctionFault.HUGE: ("usd", Usd(2**70)),
        }
        if fault in wrong:
            object.__setattr__(epoch, *wrong[fault])  # past the checks of Epoch itself, as another class could
        return epoch


def _trouble(fault: object, when: object, do: Callable[[], object]) -> None:
    if fault is when:
        do()


def _raise() -> NoReturn:
    raise ValueError("the API answered \x1b[31mnonsense\nand more")
