"""The server's connections: uvicorn's HTTP protocol with limits on headers, time, memory and the number of clients.

uvicorn has limits for its slower parser only (h11), and none for headers or bodies that never end. Here every
connection is in one phase, with a deadline, and one timer looks at all of them:

    HEAD -> BODY -> WORKING -> IDLE -> HEAD ...        and from anywhere: CLOSING
"""

import asyncio
import json
import logging
from collections.abc import Callable
from enum import Enum, auto
from http import HTTPStatus
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from mlcd.server.journal import Journal
from mlcd.server.limits import LINGER_SECONDS, MOST_HEADERS, MOST_LINGERING, MOST_PIPELINED, Limits
from mlcd.server.memory import Memory

_SWEEP_SECONDS = 0.25
_FAIR_SHARE = 0.2
"""Part of all connections that a group must hold before its oldest makes room. Four groups wait for clients: unless a
fifth of the connections wait for the model, one of the four holds as much."""
_CHUNK_OVERHEAD_BYTES = 64 * 1024
"""Of a chunked body: lengths, extensions and trailers may take this and as much as the body itself."""
_DISCARDED_BYTES = 64 * 2**20
"""Of a body that was refused, this much is still read: a client that reads after it has sent all finds the answer."""
_log = logging.getLogger("mlcd.server")


class _Phase(Enum):
    """What a connection waits for: headers, the rest of a body, the model, the next request, its end."""

    HEAD = auto()
    BODY = auto()
    WORKING = auto()
    IDLE = auto()
    CLOSING = auto()


class Connections:
    """All connections of a server. For one event loop."""

    def __init__(self, limits: Limits, memory: Memory, journal: Journal) -> None:
        self.limits, self.memory, self._journal = limits, memory, journal
        self.open: set[Front] = set()
        # By phase, the oldest first: these may have to make room.
        self.reading_head: dict[Front, None] = {}
        self.reading_body: dict[Front, None] = {}
        self.idle: dict[Front, None] = {}
        self.unread: dict[Front, None] = {}
        """Those that close once their clients have read the answer."""
        self.closing: dict[Front, None] = {}

    def protocol(self, **given: Any) -> "Front":
        """A new connection; uvicorn calls it."""
        return Front(self, **given)

    def start(self) -> None:
        """Watch the deadlines, as long as the event loop runs."""
        self._sweep()

    def admit(self) -> bool:
        """Whether there is room for the newest; the oldest one that waits for its client may have to make room.

        Only a group that holds a fair part of all connections has to: in a small one, the oldest has hardly begun.
        """
        if len(self.open) - len(self.closing) <= self.limits.connections:
            return True
        for waiting in (self.unread, self.reading_head, self.idle, self.reading_body):
            if len(waiting) > self.limits.connections * _FAIR_SHARE:
                _log.warning("%d connections are open: new ones replace the oldest", self.limits.connections)
                next(iter(waiting)).make_room()
                return True
        return False

    def leave(self, front: "Front") -> None:
        """The connection is gone, or changes its phase."""
        for place in (self.reading_head, self.reading_body, self.idle, self.unread, self.closing):
            place.pop(front, None)

    def linger(self, front: "Front") -> None:
        """The connection was answered for the last time; it is read for a moment more."""
        self.closing[front] = None
        if len(self.closing) > MOST_LINGERING:
            next(iter(self.closing)).drop()

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        try:
            for front in [front for front in self.open if front.is_over(now)]:
                front.expire()
            self._journal.write_counts()
        finally:  # whatever one connection does, the others keep their deadlines
            loop.call_later(_SWEEP_SECONDS, self._sweep)


class Front(HttpToolsProtocol):
    """One connection."""

    def __init__(self, connections: Connections, **given: Any) -> None:
        super().__init__(**given)
        self._all, self._limits = connections, connections.limits
        self._phase = _Phase.HEAD
        self._deadline = self.loop.time() + self._limits.header_seconds
        self._write_deadline: float | None = None
        self._messages = self._head_bytes = self._headers = self._body_bytes = 0
        self._raw_bytes = 0  # of the message's present part, headers or body, without the packet in which it began
        self._refusal: tuple[int, str] | None = None
        self._unread = connections.memory.hold()
        self.give_up: Callable[[], None] | None = None
        """Called when the client is gone; the application sets it while a request waits for the model."""

    # asyncio's side

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See asyncio.Protocol."""
        super().connection_made(transport)
        self._all.open.add(self)
        self._all.reading_head[self] = None
        if not self._all.admit():
            _log.warning("%d connections are open and busy: new ones are answered 503", self._limits.connections)
            self.refuse(503, "the server has too many connections; try again later")

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol. A request that waits for the model gives up its place."""
        self._all.leave(self)
        self._all.open.discard(self)
        self._unread.set(0)
        self._unset_keepalive_if_required()
        self._abandon()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        if self._phase is _Phase.CLOSING:
            return
        self._unset_keepalive_if_required()
        before = (self._messages, self._phase)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._ignore_upgrade()
        except httptools.HttpParserError:
            status, problem = self._refusal or (400, "this is not a valid HTTP/1.1 request")
            self.refuse(status, problem)
        else:
            if before == (self._messages, self._phase):
                self._raw_bytes += len(data)
                self._check_progress()

    def pause_writing(self) -> None:
        """See asyncio.Protocol."""
        self._write_deadline = self.loop.time() + self._limits.body_seconds
        super().pause_writing()

    def resume_writing(self) -> None:
        """See asyncio.Protocol."""
        self._write_deadline = None
        self._unread.set(0)
        super().resume_writing()

    # The parser's side

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        super().on_message_begin()
        self.scope["state"]["connection"] = self
        self._messages += 1
        self._head_bytes = self._headers = self._body_bytes = self._raw_bytes = 0
        if self._phase is not _Phase.HEAD:  # a new connection's time began when it was opened
            self._enter(_Phase.HEAD, self._limits.header_seconds)

    def on_url(self, url: bytes) -> None:
        """A part of the target."""
        super().on_url(url)
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer."""
        super().on_header(name, value)
        self._headers += 1
        if self._headers > MOST_HEADERS:
            self._stop(431, f"the request has more than {MOST_HEADERS} headers")
        self._count_head(len(name) + len(value) + 4)

    def on_headers_complete(self) -> None:
        """The headers are complete: the request starts, or waits for those before it on the connection."""
        if self.parser.get_http_version() not in ("1.0", "1.1"):
            self._stop(400, "only HTTP/1.1 and HTTP/1.0 are spoken here")
        if len(self.pipeline) >= MOST_PIPELINED:
            self._stop(400, f"more than {MOST_PIPELINED} requests were sent ahead of their answers")
        self._enter(_Phase.BODY, self._limits.body_seconds)
        self._raw_bytes = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is complete."""
        super().on_message_complete()
        if self.cycle.response_complete:
            self._enter(_Phase.IDLE, self._limits.idle_seconds)
        else:
            self._enter(_Phase.WORKING, None)

    def on_response_complete(self) -> None:
        """The answer is written, though perhaps not read by the client."""
        self._unread.set(self.transport.get_write_buffer_size())
        super().on_response_complete()
        if self._phase is _Phase.WORKING and self.cycle.response_complete:
            self._enter(_Phase.IDLE, self._limits.idle_seconds)

    # Phases and deadlines

    def is_over(self, now: float) -> bool:
        """Whether a deadline has passed."""
        if self._phase is not _Phase.CLOSING and self.transport.is_closing():
            self._enter(_Phase.CLOSING, self._limits.body_seconds)  # uvicorn closes it once all is written
            self._all.leave(self)
            self._all.unread[self] = None  # it counts until then: a client may read for ever
        return now > self._deadline or (self._write_deadline is not None and now > self._write_deadline)

    def expire(self) -> None:
        """The deadline has passed."""
        answered = self.cycle is not None and self.cycle.response_complete
        if self._phase is _Phase.HEAD and self._messages:
            _log.warning("requests whose headers take longer than %g s are answered 408", self._limits.header_seconds)
            self.refuse(408, f"the headers were not complete after {self._limits.header_seconds:g} s")
        elif self._phase is _Phase.BODY and not answered and self._write_deadline is None:
            _log.warning("requests whose bodies take longer than %g s are answered 408", self._limits.body_seconds)
            self.refuse(408, f"the body was not complete after {self._limits.body_seconds:g} s")
        else:
            self.drop()

    def make_room(self) -> None:
        """End it for a new connection."""
        if self._phase is _Phase.BODY:
            self.refuse(503, "the server has too many connections, and this one was the slowest; try again later")
        else:
            self.drop()

    def drop(self) -> None:
        """Close the connection at once."""
        self._disconnect()
        self._all.leave(self)
        self._all.closing[self] = None
        self._phase = _Phase.CLOSING
        self.transport.abort()

    def refuse(self, status: int, problem: str) -> None:
        """Answer, and close the connection once the client had time to read that."""
        if self.transport.is_closing():
            return
        # An answer to an earlier request may be under way: this one would be taken for it.
        is_busy = self.cycle is not None and not self.cycle.response_complete
        started = is_busy and (self._phase is _Phase.HEAD or self.cycle.response_started or bool(self.pipeline))
        self._disconnect()
        self._enter(_Phase.CLOSING, LINGER_SECONDS)
        self._unset_keepalive_if_required()
        if started:
            self.transport.abort()
            return
        self.transport.write(_answer(status, problem))
        try:
            self.transport.write_eof()
        except OSError:  # the client has reset the connection, and asyncio does not know it yet
            self.transport.abort()
            return
        self.flow.resume_reading()
        self._all.linger(self)

    def send_400_response(self, msg: str) -> None:
        """uvicorn's own refusals, in the protocol's form."""
        self.refuse(400, msg)

    def _enter(self, phase: _Phase, seconds: float | None) -> None:
        self._all.leave(self)
        self._phase = phase
        self._deadline = float("inf") if seconds is None else self.loop.time() + seconds
        if phase is _Phase.HEAD:
            self._all.reading_head[self] = None
        elif phase is _Phase.BODY:
            self._all.reading_body[self] = None
        elif phase is _Phase.IDLE:
            self._all.idle[self] = None
        elif phase is _Phase.CLOSING:
            self._all.closing[self] = None

    def _check_progress(self) -> None:
        """What is incomplete must stay within its limits."""
        if self._phase is _Phase.HEAD and self._raw_bytes > self._limits.header_bytes:
            self.refuse(431, f"the headers are longer than {self._limits.header_bytes} bytes")
        elif self._phase is _Phase.BODY:
            if self._raw_bytes > _CHUNK_OVERHEAD_BYTES + 2 * self._body_bytes:
                self.refuse(400, "the chunks of the body are too small, or their extensions and trailers too long")
            elif self._body_bytes > _DISCARDED_BYTES and self.cycle.response_complete:
                self.drop()

    def _count_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > self._limits.header_bytes:
            self._stop(431, f"the headers are longer than {self._limits.header_bytes} bytes")

    def _stop(self, status: int, problem: str) -> None:
        """End the parser's call; data_received answers."""
        self._refusal = (status, problem)
        raise ValueError(problem)

    def _ignore_upgrade(self) -> None:
        """Answer in HTTP/1.1: other protocols are not offered.

        The parser takes no body for such a request, and whatever follows for the next request, which would let a body
        pass as a request behind a proxy. So a body is refused, and the connection ends with the answer.
        """
        lengths = [value for name, value in self.headers if name in (b"content-length", b"transfer-encoding")]
        if any(value.strip(b"0 ") for value in lengths):
            self.refuse(400, "an upgrade with a body is not offered; omit the header Upgrade")
        elif self.cycle.response_complete:
            self.drop()
        else:
            self.cycle.keep_alive = False

    def _disconnect(self) -> None:
        """Tell the application that nobody waits for its answer any more."""
        self._abandon()
        for cycle in (self.cycle, *(cycle for cycle, _ in self.pipeline)):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        self.pipeline.clear()

    def _abandon(self) -> None:
        if self.give_up is not None:
            self.give_up()
            self.give_up = None


def _answer(status: int, problem: str) -> bytes:
    body = json.dumps({"error": problem}).encode()
    retry = b"retry-after: 1\r\n" if status == HTTPStatus.SERVICE_UNAVAILABLE else b""
    head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n".encode()
    return b"%scontent-length: %d\r\n%sconnection: close\r\n\r\n%s" % (head, len(body), retry, body)
