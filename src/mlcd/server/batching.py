"""Requests become batches: requests that arrive while every replica is busy run together."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcd.server.model import Feeds, ModelRefused
from mlcd.server.protocol import BadRequest

Array = NDArray[Any]
Run = Callable[[int, Feeds], list[Array]]


@dataclass(slots=True, eq=False)
class _Waiting:
    feeds: Feeds
    rows: int
    shapes: tuple[tuple[int, ...], ...]
    since: float
    answer: "asyncio.Future[list[Array]]"


@dataclass(slots=True)
class Counts:
    """Totals since the start, and the number of requests and batches that wait and run now."""

    requests: int = 0
    rows: int = 0
    batches: int = 0
    refused: int = 0
    turned_away: int = 0
    waiting: int = 0
    running: int = 0
    run_seconds: float = 0.0
    wait_seconds: float = 0.0
    started: float = field(default_factory=time.monotonic)


class Batcher:
    """A queue of requests in front of `replicas` threads that run the model.

    A batch starts when a replica is free and either `max_rows` items wait, or the first has waited `delay_seconds`.
    Only requests of equal shapes share a batch, in order of arrival. Must be used from one event loop.
    """

    def __init__(self, run: Run, *, max_rows: int, replicas: int, delay_seconds: float, limit: int) -> None:
        self.counts = Counts()
        self._run, self._max_rows, self._limit = run, max_rows, limit
        self._delay_seconds = delay_seconds if max_rows > 1 else 0.0
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Waiting] = deque()
        self._free = list(range(replicas))
        self._pumping: asyncio.Handle | None = None
        self._executor = ThreadPoolExecutor(replicas, thread_name_prefix="replica")

    def submit(self, feeds: Feeds, rows: int) -> "asyncio.Future[list[Array]]":
        """The model's outputs for these items, or BadRequest where the model refuses them (400).

        Raises BadRequest where the queue is full (503). A future that is done before its turn comes is not run.
        """
        if len(self._waiting) >= self._limit:
            self.counts.turned_away += 1
            raise BadRequest(f"{self._limit} requests are already waiting; try again later", status=503)
        shapes = tuple(array.shape[1:] for _, array in sorted(feeds.items()))
        answer: asyncio.Future[list[Array]] = self._loop.create_future()
        waiting = _Waiting(feeds, rows, shapes, time.monotonic(), answer)
        self._waiting.append(waiting)
        self.counts.requests += 1
        self.counts.waiting += 1
        self._pump_soon(0.0)
        return answer

    def close(self) -> None:
        """Finish the running batches and end the threads; requests still in the queue are answered 503."""
        for waiting in self._waiting:
            if not waiting.answer.done():
                waiting.answer.set_exception(BadRequest("the server is shutting down", status=503))
        self._waiting.clear()
        self._executor.shutdown(wait=True, cancel_futures=True)

    def _pump_soon(self, seconds: float) -> None:
        """Call `_pump` after `seconds`; with 0, after this turn of the event loop, when all arrivals are queued."""
        if self._pumping is not None:
            if seconds > 0:
                return
            self._pumping.cancel()
        later = self._loop.call_later(seconds, self._pump) if seconds > 0 else self._loop.call_soon(self._pump)
        self._pumping = later

    def _pump(self) -> None:
        self._pumping = None
        while self._free and self._waiting:
            full = sum(waiting.rows for waiting in self._waiting) >= self._max_rows
            wait = self._waiting[0].since + self._delay_seconds - time.monotonic()
            if not full and wait > 0:
                self._pump_soon(wait)
                return
            if batch := self._take():
                replica = self._free.pop()
                self.counts.running += 1
                running = self._loop.run_in_executor(self._executor, self._work, replica, batch)
                running.add_done_callback(partial(self._done, replica, batch))

    def _take(self) -> list[_Waiting]:
        """The first request and as many of equal shape behind it as fit; drops requests whose client disconnected."""
        taken: list[_Waiting] = []
        skipped: deque[_Waiting] = deque()
        rows, now = 0, time.monotonic()
        while self._waiting and rows < self._max_rows:
            waiting = self._waiting.popleft()
            if waiting.answer.done():
                self.counts.waiting -= 1
            elif rows + waiting.rows <= self._max_rows and (not taken or waiting.shapes == taken[0].shapes):
                taken.append(waiting)
                rows += waiting.rows
                self.counts.wait_seconds += now - waiting.since
            else:
                skipped.append(waiting)
        self._waiting.extendleft(reversed(skipped))
        self.counts.waiting -= len(taken)
        return taken

    def _work(self, replica: int, batch: list[_Waiting]) -> tuple[list[list[Array] | BadRequest], float]:
        """(the answers, the seconds it took), on a thread of the executor."""
        begun = time.monotonic()
        return self._answers(replica, batch), time.monotonic() - begun

    def _answers(self, replica: int, batch: list[_Waiting]) -> list[list[Array] | BadRequest]:
        """One answer per request. If the model refuses a batch, each request runs alone: only the faulty ones fail."""
        if len(batch) == 1:
            try:
                return [self._run(replica, batch[0].feeds)]
            except ModelRefused as error:
                return [BadRequest(f"the model refused these inputs: {error}")]
        try:
            outputs = self._run(replica, _together([waiting.feeds for waiting in batch]))
        except ModelRefused:
            return [answer for waiting in batch for answer in self._answers(replica, [waiting])]
        ends = np.cumsum([waiting.rows for waiting in batch])
        return [[o[end - w.rows : end] for o in outputs] for w, end in zip(batch, ends, strict=True)]

    def _done(
        self, replica: int, batch: list[_Waiting], done: "asyncio.Future[tuple[list[list[Array] | BadRequest], float]]"
    ) -> None:
        self._free.append(replica)
        self.counts.running -= 1
        self.counts.batches += 1
        answers: list[list[Array] | BaseException]
        if (error := done.exception()) is not None:  # a bug in the server: clients get the error
            answers = [error] * len(batch)
        else:
            given, seconds = done.result()
            answers = [*given]
            self.counts.run_seconds += seconds
        for waiting, answer in zip(batch, answers, strict=True):
            self.counts.rows += waiting.rows
            self.counts.refused += isinstance(answer, BadRequest)
            if waiting.answer.done():
                continue
            if isinstance(answer, BaseException):
                waiting.answer.set_exception(answer)
            else:
                waiting.answer.set_result(answer)
        if self._waiting:
            self._pump_soon(0.0)


def _together(feeds: list[Feeds]) -> Mapping[str, Array]:
    return {name: np.concatenate([each[name] for each in feeds]) for name in feeds[0]}
