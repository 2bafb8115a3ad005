"""Watches an epoch's calls: repeats those that fail or lag, and continues those whose time is up."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from mlcd.clouds.functions.lithops.call import CallOrder, CallReport
from mlcd.clouds.functions.lithops.invoker import Answer, Call

POLL_SECONDS = 0.05
LAG_FACTOR = 3.0
"""A call is repeated once it takes this many times the median of the ended calls ..."""
LAG_SECONDS = 5.0
"""... and this much longer than the median."""

Invoke = Callable[[Sequence[CallOrder]], list[Call]]


@dataclass(slots=True)
class Running:
    """A call without an answer so far."""

    order: CallOrder
    call: Call
    begun: float
    repeated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A call and how it ended; `answer` is None where nobody waited for it (`overtaken`)."""

    order: CallOrder
    answer: Answer | None
    wall_seconds: float

    @property
    def report(self) -> CallReport | None:
        """The call's report; None where it gave none, or one that cannot be."""
        value = self.answer.value if self.answer else None
        return value if isinstance(value, CallReport) and not value.malformed else None

    @property
    def problem(self) -> str:
        """Why it failed; "" where it did not."""
        if self.answer is None:
            return ""
        if self.report is not None:
            return self.answer.error or self.report.failed
        wrong = self.answer.value.malformed if isinstance(self.answer.value, CallReport) else ""
        return self.answer.error or (f"the call's report is wrong: {wrong}" if wrong else "the call gave no report")


class TooManyFailures(Exception):
    """More calls had to be repeated than were authorised."""


class UntrainableModel(Exception):
    """The user's model cannot be trained."""


class CallWatch:
    """All calls of one epoch.

    repeats   how many calls may be repeated
    deadline  on the monotonic clock; calls that run longer are ended
    """

    def __init__(self, invoke: Invoke, orders: Sequence[CallOrder], *, repeats: int, deadline: float) -> None:
        self._invoke, self._repeats, self._deadline = invoke, repeats, deadline
        self._running: list[Running] = []
        self._attempts = dict.fromkeys((order.shard for order in orders), 0)
        self._open_shards = set(self._attempts)
        self.ended: list[Ended] = []
        self.repeated = 0
        self._start(orders)

    @property
    def running(self) -> list[Running]:
        """The calls without an answer."""
        return list(self._running)

    def until_done(self, is_over: Callable[[], bool]) -> None:
        """Wait until every shard is done, or `is_over` is true after a call's end (ASP closes before all are done).

        Raises TimeoutError at the deadline, TooManyFailures, UntrainableModel.
        """
        while self._open_shards:
            if time.monotonic() > self._deadline:
                raise TimeoutError
            if self._collect() and is_over():
                return
            self._repeat_slow()
            time.sleep(POLL_SECONDS)

    def again(self, order: CallOrder) -> None:
        """One more call for a shard that is done (no call has closed the epoch). Raises as `until_done`."""
        self._open_shards.add(order.shard)
        self._repeat(order, "no call closed the epoch")
        self.until_done(lambda: False)

    def abandon(self) -> list[Running]:
        """Stop waiting; returns the calls that still run."""
        abandoned, self._running = self._running, []
        now = time.monotonic()
        self.ended += [Ended(order=r.order, answer=None, wall_seconds=now - r.begun) for r in abandoned]
        return abandoned

    # ---- inside

    def _start(self, orders: Sequence[CallOrder]) -> None:
        now = time.monotonic()
        numbered = []
        for order in orders:
            self._attempts[order.shard] += 1
            seconds = max(1.0, min(order.seconds, self._deadline - now))
            numbered.append(replace(order, attempt=self._attempts[order.shard], seconds=seconds))
        calls = self._invoke(numbered)
        self._running += [Running(order, call, now) for order, call in zip(numbered, calls, strict=True)]

    def _collect(self) -> bool:
        """Take in the calls that ended; returns whether there were any."""
        found = False
        for running in list(self._running):
            answer = running.call.answer()
            if answer is None:
                continue
            found = True
            self._running.remove(running)
            ended = Ended(order=running.order, answer=answer, wall_seconds=time.monotonic() - running.begun)
            self.ended.append(ended)
            self._settle(running, ended)
        return found

    def _settle(self, running: Running, ended: Ended) -> None:
        report, shard = ended.report, running.order.shard
        if report is not None and report.broken:
            raise UntrainableModel(report.broken)
        if shard not in self._open_shards:
            return
        others = any(other.order.shard == shard for other in self._running)
        if ended.problem:
            if not others:
                self._repeat(running.order, ended.problem)
        elif report is not None and (report.done or report.closed):
            self._open_shards.discard(shard)
        elif report is not None and not others:
            self._start([_remaining_order(running.order, report)])

    def _repeat(self, order: CallOrder, why: str) -> None:
        if self.repeated >= self._repeats:
            raise TooManyFailures(why)
        self.repeated += 1
        self._start([order])

    def _repeat_slow(self) -> None:
        took = [e.wall_seconds for e in self.ended if e.report is not None and not e.problem]
        if len(took) * 2 < len(self._attempts) or self.repeated >= self._repeats:
            return
        usual = statistics.median(took)
        for running in list(self._running):
            waited = time.monotonic() - running.begun
            slow = waited > max(LAG_FACTOR * usual, usual + LAG_SECONDS)
            if slow and not running.repeated and running.order.shard in self._open_shards:
                running.repeated = True
                self._repeat(running.order, "the call was too slow")
                return


def _remaining_order(order: CallOrder, report: CallReport) -> CallOrder:
    """The rest of a shard whose call ran out of time, with the remaining authorised storage requests."""
    return replace(order, most_puts=order.most_puts - report.puts, most_gets=order.most_gets - report.gets)
