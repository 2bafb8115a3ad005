"""Streams on plain sockets: requests sent, answers read as they arrive, thousands at the same time in one thread."""

import itertools
import select
import socket
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from mlcd.loadgen.chat.plan import MOST_STREAMS, Exchange
from mlcd.loadgen.chat.sse import Answer, BadAnswer
from mlcd.loadgen.wire import Done, InFlight

_READ_BYTES = 2**16
_EMPTY = memoryview(b"")
_TOO_LONG = 4
"""An answer of more pieces than this many times the tokens that were asked for never ends by itself."""
_SLACK_PIECES = 64


@dataclass(slots=True, eq=False)
class Stream(Done):
    """A request that ended.

    first, last    when its first and last pieces came; 0 where there were none
    gaps           seconds between its pieces
    input_tokens, output_tokens  as the server counted them, else as asked for, and its pieces
    counted        whether the server counted them
    text           of the answer, where it is kept
    """

    first: float = 0.0
    last: float = 0.0
    gaps: list[float] = field(default_factory=list)
    input_tokens: int = 0
    output_tokens: int = 0
    counted: bool = False
    text: str = ""

    @property
    def ttft_seconds(self) -> float:
        """From when it was due to its first piece."""
        return self.first - self.intended

    @property
    def tpot_seconds(self) -> float | None:
        """Seconds per token after the first; None for an answer of one token."""
        return (self.last - self.first) / (self.output_tokens - 1) if self.output_tokens > 1 else None

    @property
    def e2e_seconds(self) -> float:
        """From when it was due to its end."""
        return self.finished - self.intended


@dataclass(slots=True, eq=False)
class _Connection:
    """A socket with the request in flight on it, if there is one."""

    socket: socket.socket
    out: memoryview = _EMPTY
    answer: Answer | None = None
    exchange: Exchange | None = None
    intended: float = 0.0
    sent: float = 0.0
    heard: float = 0.0
    tag: int = 0
    server: int = 0


class ChatWire:
    """Connections to a server, opened as needed and reused. For one thread; only `wait` blocks.

    requests         the next request, with its lengths
    timeout_seconds  how long an answer may be silent
    most_seconds     how long an answer may take
    further          (host, port) of servers that share the load: a request goes to the one with the fewest in flight
    keeps_text       whether the answers' texts are kept
    """

    def __init__(
        self,
        host: str,
        port: int,
        requests: Iterator[tuple[bytes, Exchange]],
        *,
        timeout_seconds: float,
        most_seconds: float,
        further: Sequence[tuple[str, int]] = (),
        keeps_text: bool = False,
    ) -> None:
        self._places, self._requests = ((host, port), *further), requests
        self._in_flight = InFlight(len(self._places))
        self._timeout_seconds, self._most_seconds = timeout_seconds, most_seconds
        self._keeps_text = keeps_text
        self._poll = select.epoll()
        self._open_ones: dict[int, _Connection] = {}
        self._idle: dict[int, list[_Connection]] = {server: [] for server in range(len(self._places))}
        self._busy = 0
        self._failed: deque[Stream] = deque()
        self._next_check = 0.0
        self._area, self._area_at = 0.0, time.perf_counter()

    @property
    def under_way(self) -> int:
        """Requests that have not ended yet."""
        return self._busy + len(self._failed)

    @property
    def oldest(self) -> float:
        """When the oldest of them was due; now, where there is none."""
        due = (each.intended for each in self._open_ones.values() if each.answer is not None)
        return min(due, default=time.perf_counter())

    @property
    def has_room(self) -> bool:
        """Whether another request may be sent now."""
        return self._busy < MOST_STREAMS

    def area(self) -> float:
        """Requests in flight x seconds, up to now."""
        self._count_area(time.perf_counter())
        return self._area

    def send(self, intended: float, tag: int = 0) -> None:
        """Send the next request on a free connection; its times count from `intended`."""
        now = time.perf_counter()
        body, exchange = next(self._requests)
        server = self._in_flight.least()
        idle = self._idle[server]
        try:
            connection = idle.pop() if idle else self._connect(server)
        except OSError as error:
            self._failed.append(Stream(intended, now, now, tag, f"cannot connect: {error.strerror or error}"))
            return
        self._count_area(now)
        self._busy += 1
        self._in_flight.counts[server] += 1
        connection.answer, connection.exchange = Answer(pieces=[] if self._keeps_text else None), exchange
        connection.intended, connection.sent, connection.heard, connection.tag = intended, now, now, tag
        connection.out = memoryview(body)
        self._write(connection)

    def wait(self, seconds: float) -> list[Stream]:
        """Wait until something arrives, for `seconds` at most; returns the requests that ended."""
        found = list(self._failed)
        self._failed.clear()
        ready = self._poll.poll(0 if found else max(seconds, 0.0), MOST_STREAMS)
        for number, event in ready:
            connection = self._open_ones.get(number)
            if connection is None:
                continue
            if event & select.EPOLLOUT:
                self._write(connection)
                if self._open_ones.get(number) is not connection:
                    continue  # it could not be sent
            if event & ~select.EPOLLOUT and (ended := self._read(connection)) is not None:
                found.append(ended)
        return found + self._late()

    def close(self) -> None:
        """Close every connection, including those with requests in flight."""
        for connection in list(self._open_ones.values()):
            self._drop(connection)
        self._idle, self._busy = {server: [] for server in self._idle}, 0
        self._poll.close()

    def _connect(self, server: int) -> _Connection:
        opened = socket.create_connection(self._places[server], timeout=5)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        opened.setblocking(False)
        connection = _Connection(opened, server=server)
        self._open_ones[opened.fileno()] = connection
        self._poll.register(opened.fileno(), select.EPOLLIN)
        return connection

    def _drop(self, connection: _Connection) -> None:
        self._open_ones.pop(connection.socket.fileno(), None)
        connection.socket.close()  # which also takes it out of epoll

    def _write(self, connection: _Connection) -> None:
        try:
            sent = connection.socket.send(connection.out)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._failed.append(self._end(connection, f"cannot send: {error.strerror or error}"))
            return
        waited = len(connection.out) > 0
        connection.out = connection.out[sent:]
        wanted = select.EPOLLIN | (select.EPOLLOUT if connection.out else 0)
        if waited:
            self._poll.modify(connection.socket.fileno(), wanted)

    def _read(self, connection: _Connection) -> Stream | None:
        answer = connection.answer
        try:
            data = connection.socket.recv(_READ_BYTES)
        except BlockingIOError:
            return None
        except OSError as error:
            data, lost = b"", f"connection lost: {error.strerror or error}"
        else:
            lost = "the server closed the connection"
        now = time.perf_counter()
        if answer is None:  # an idle connection: closed, or out of step
            self._idle[connection.server].remove(connection)
            self._drop(connection)
            return None
        connection.heard = now
        try:
            if not data:
                return self._end(connection, "" if answer.closed(now) else lost)
            answer.feed(data, now)
        except BadAnswer as bad:
            return self._end(connection, str(bad))
        asked = connection.exchange.output_tokens if connection.exchange is not None else 0
        if len(answer.times) > _TOO_LONG * asked + _SLACK_PIECES:
            return self._end(connection, f"the answer does not end: {len(answer.times):,} pieces for {asked:,} tokens")
        if (answer.output_tokens or 0) > _TOO_LONG * asked + _SLACK_PIECES:
            return self._end(
                connection, f"the stream's usage: {answer.output_tokens:,} tokens, and {asked:,} were asked for"
            )
        return self._end(connection, "") if answer.is_over else None

    def _late(self) -> list[Stream]:
        now = time.perf_counter()
        if now < self._next_check:
            return []
        self._next_check = now + 0.25
        busy = [each for each in self._open_ones.values() if each.answer is not None]
        silent = [each for each in busy if now - each.heard > self._timeout_seconds]
        endless = [each for each in busy if now - each.sent > self._most_seconds and each not in silent]
        found = [self._end(each, f"nothing came for {self._timeout_seconds:g} s") for each in silent]
        return found + [self._end(each, f"no end within {self._most_seconds:g} s") for each in endless]

    def _end(self, connection: _Connection, error: str) -> Stream:
        answer, exchange, now = connection.answer, connection.exchange, time.perf_counter()
        assert answer is not None and exchange is not None  # noqa: S101, PT018 - a request was in flight
        self._count_area(now)
        self._busy -= 1
        self._in_flight.counts[connection.server] -= 1
        connection.answer = None
        times = answer.times
        error = error or answer.error or ("" if times else "the answer has no token")
        keep = not error and answer.keep_alive and not connection.out
        if keep:
            self._idle[connection.server].append(connection)
        else:
            self._drop(connection)
        counted = answer.output_tokens is not None and answer.input_tokens is not None
        return Stream(
            connection.intended,
            connection.sent,
            now,
            connection.tag,
            error,
            first=times[0] if times else 0.0,
            last=times[-1] if times else 0.0,
            gaps=[after - before for before, after in itertools.pairwise(times)],
            input_tokens=answer.input_tokens if counted and answer.input_tokens is not None else exchange.input_tokens,
            output_tokens=answer.output_tokens if counted and answer.output_tokens is not None else len(times),
            counted=counted,
            text=answer.text() if self._keeps_text else "",
        )

    def _count_area(self, now: float) -> None:
        self._area += self._busy * (now - self._area_at)
        self._area_at = now
