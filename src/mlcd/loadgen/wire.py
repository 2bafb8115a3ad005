"""Requests on plain sockets: built once, sent many times, responses read only as far as needed."""

import array
import json
import random
import select
import socket
import struct
import time
import urllib.parse
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from mlcd.errors import BadInput
from mlcd.loadgen.plan import MOST_CONNECTIONS, LoadInput
from mlcd.untrusted import printable

_CODES = {"FP32": "f", "FP64": "d", "INT8": "b", "UINT8": "B", "INT16": "h", "UINT16": "H", "INT32": "i"}
_CODES |= {"UINT32": "I", "INT64": "q", "UINT64": "Q"}
_READ_BYTES = 2**18
_HEAD_BYTES = 64 * 1024
"""The longest header of an answer; servers send under 1 KiB."""
_MOST_LENGTH_DIGITS = 15
_EMPTY = memoryview(b"")


def bodies(host: str, model: str, inputs: Sequence[LoadInput], *, seed: int, count: int = 4) -> list[bytes]:
    """`count` requests with different random numbers, ready for the wire, with binary tensors in and out."""
    rng = random.Random(seed)  # noqa: S311
    found = []
    for _ in range(count):
        tensors = [_numbers(rng, tensor) for tensor in inputs]
        document = {
            "inputs": [
                {
                    "name": tensor.name,
                    "datatype": tensor.datatype,
                    "shape": list(tensor.shape),
                    "parameters": {"binary_data_size": len(data)},
                }
                for tensor, data in zip(inputs, tensors, strict=True)
            ],
            "parameters": {"binary_data_output": True},
        }
        text = json.dumps(document).encode()
        length = len(text) + sum(len(data) for data in tensors)
        head = (
            f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/octet-stream\r\n"
            f"Inference-Header-Content-Length: {len(text)}\r\nContent-Length: {length}\r\n\r\n"
        )
        found.append(b"".join([head.encode(), text, *tensors]))
    return found


def plain_request(host: str, path: str, body: str) -> bytes:
    """A request that sends this JSON text, ready for the wire."""
    data = body.encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


def _numbers(rng: random.Random, tensor: LoadInput) -> bytes:
    count = 1
    for size in tensor.shape:
        count *= size
    if tensor.datatype in ("FP32", "FP64"):
        return array.array(_CODES[tensor.datatype], (rng.uniform(-1, 1) for _ in range(count))).tobytes()
    if tensor.datatype == "FP16":
        return b"".join(struct.pack("<e", rng.uniform(-1, 1)) for _ in range(count))
    if tensor.datatype == "BOOL":
        return bytes(rng.randrange(2) for _ in range(count))
    if tensor.datatype not in _CODES:
        raise BadInput(f"input {tensor.name}: cannot generate numbers of type {tensor.datatype}")
    return array.array(_CODES[tensor.datatype], (rng.randrange(tensor.high) for _ in range(count))).tobytes()


def server_place(address: str) -> tuple[str, int]:
    """(host, port) of http://HOST:PORT. Raises BadInput for anything else."""
    place = urllib.parse.urlsplit(address)
    if place.scheme != "http" or not place.hostname or not place.port:
        raise BadInput(f"the address must have the form http://HOST:PORT (got {address!r})")
    return place.hostname, place.port


class InFlight:
    """Requests in flight on each of several servers."""

    def __init__(self, servers: int) -> None:
        self.counts = [0] * servers
        self._turn = 0

    def least(self) -> int:
        """The server with the fewest in flight; of several such, the next in turn."""
        count = len(self.counts)
        if count == 1:
            return 0
        found = min(((self._turn + step) % count for step in range(count)), key=self.counts.__getitem__)
        self._turn = (found + 1) % count
        return found


@dataclass(slots=True, eq=False)
class Done:
    """A request that ended: answered, or failed (`error` says why). Times are of time.perf_counter."""

    intended: float
    sent: float
    finished: float
    tag: int
    error: str = ""


@dataclass(slots=True, eq=False)
class _Connection:
    """A socket, and the request in flight on it; `remaining_bytes` is -1 before the response's header is read."""

    socket: socket.socket
    out: memoryview = _EMPTY
    head: bytes = b""
    remaining_bytes: int = -1
    status: int = 0
    intended: float = 0.0
    sent: float = 0.0
    tag: int = 0
    server: int = 0


class Wire:
    """Connections to a server, opened as needed and reused. For one thread; only `wait` blocks.

    further  (host, port) of servers that share the load: a request goes to the one with the fewest in flight
    """

    def __init__(
        self,
        host: str,
        port: int,
        requests: Sequence[bytes],
        *,
        timeout_seconds: float,
        further: Sequence[tuple[str, int]] = (),
    ) -> None:
        self._places, self._requests, self._timeout_seconds = ((host, port), *further), requests, timeout_seconds
        self._in_flight = InFlight(len(self._places))
        self._idle: dict[int, list[_Connection]] = {server: [] for server in range(len(self._places))}
        self._busy: dict[socket.socket, _Connection] = {}
        self._writing: set[socket.socket] = set()
        self._failed: deque[Done] = deque()
        self._count = 0
        self._next_check = 0.0

    @property
    def under_way(self) -> int:
        """Requests that have not ended yet."""
        return len(self._busy) + len(self._failed)

    @property
    def oldest(self) -> float:
        """When the oldest of them was due; now, where there is none."""
        return min((connection.intended for connection in self._busy.values()), default=time.perf_counter())

    @property
    def has_room(self) -> bool:
        """Whether another request may be sent now."""
        return len(self._busy) < MOST_CONNECTIONS or (len(self._places) == 1 and bool(self._idle[0]))

    def send(self, intended: float, tag: int = 0) -> None:
        """Send a request on a free connection; its latency counts from `intended`."""
        now = time.perf_counter()
        server = self._in_flight.least()
        idle = self._idle[server]
        try:
            connection = idle.pop() if idle else self._open(server)
        except OSError as error:
            self._failed.append(Done(intended, now, now, tag, f"cannot connect: {error.strerror or error}"))
            return
        self._count += 1
        connection.intended, connection.sent, connection.tag = intended, now, tag
        connection.out = memoryview(self._requests[self._count % len(self._requests)])
        connection.head, connection.remaining_bytes, connection.status = b"", -1, 0
        self._busy[connection.socket] = connection
        self._in_flight.counts[server] += 1
        self._write(connection)

    def wait(self, seconds: float) -> list[Done]:
        """Wait until a request ends, for `seconds` at most; returns those that ended."""
        if self._failed:
            found = list(self._failed)
            self._failed.clear()
            return found
        if not self._busy:
            if seconds > 0:
                time.sleep(seconds)
            return []
        readable, writable, _ = select.select(list(self._busy), list(self._writing), [], max(seconds, 0.0))
        for each in writable:
            if each in self._busy:
                self._write(self._busy[each])
        found = [done for each in readable if each in self._busy and (done := self._read(self._busy[each]))]
        return found + self._late()

    def close(self) -> None:
        """Close every connection, including those with requests in flight."""
        for connection in [*(each for idle in self._idle.values() for each in idle), *self._busy.values()]:
            connection.socket.close()
        self._idle, self._busy, self._writing = {server: [] for server in self._idle}, {}, set()

    def _open(self, server: int) -> _Connection:
        spare = [each for idle in self._idle.values() for each in idle]
        if spare and len(self._busy) + len(spare) >= MOST_CONNECTIONS:  # all are of other servers
            self._idle[spare[0].server].remove(spare[0])
            spare[0].socket.close()
        opened = socket.create_connection(self._places[server], timeout=5)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        opened.setblocking(False)
        return _Connection(opened, server=server)

    def _write(self, connection: _Connection) -> None:
        try:
            sent = connection.socket.send(connection.out)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._failed.append(self._end(connection, f"cannot send: {error.strerror or error}", keep=False))
            return
        connection.out = connection.out[sent:]
        if connection.out:
            self._writing.add(connection.socket)
        else:
            self._writing.discard(connection.socket)

    def _read(self, connection: _Connection) -> Done | None:
        try:
            data = connection.socket.recv(_READ_BYTES)
        except BlockingIOError:
            return None
        except OSError as error:
            return self._end(connection, f"connection lost: {error.strerror or error}", keep=False)
        if not data:
            return self._end(connection, "the server closed the connection", keep=False)
        if connection.remaining_bytes < 0:
            head, found, rest = (connection.head + data).partition(b"\r\n\r\n")
            if not found:
                if len(head) > _HEAD_BYTES:
                    return self._end(connection, f"the answer's header is over {_HEAD_BYTES} bytes", keep=False)
                connection.head = head
                return None
            connection.status, length = _parse_head(head)
            if connection.status == 0:
                return self._end(connection, "the answer is not HTTP", keep=False)
            connection.head = rest[:300]
            connection.remaining_bytes = length - len(rest)
        else:
            connection.remaining_bytes -= len(data)
        if connection.remaining_bytes > 0:
            return None
        keep = not connection.out and connection.remaining_bytes == 0  # more than was announced is no next answer
        if connection.status != 200:
            text = printable(connection.head.decode(errors="replace"))
            return self._end(connection, f"status {connection.status}: {text}", keep=keep)
        return self._end(connection, "", keep=keep)

    def _late(self) -> list[Done]:
        now = time.perf_counter()
        if now < self._next_check:
            return []
        self._next_check = now + 0.1
        late = [connection for connection in self._busy.values() if now - connection.sent > self._timeout_seconds]
        return [self._end(each, f"no answer within {self._timeout_seconds:g} s", keep=False) for each in late]

    def _end(self, connection: _Connection, error: str, *, keep: bool) -> Done:
        del self._busy[connection.socket]
        self._writing.discard(connection.socket)
        self._in_flight.counts[connection.server] -= 1
        if keep:
            self._idle[connection.server].append(connection)
        else:
            connection.socket.close()
        return Done(connection.intended, connection.sent, time.perf_counter(), connection.tag, error)


def _parse_head(head: bytes) -> tuple[int, int]:
    """(status, length of the body); status 0 where it is not an HTTP response with a length."""
    lines = head.split(b"\r\n")
    parts = lines[0].split(b" ", 2)
    if len(parts) < 2 or not parts[0].startswith(b"HTTP/") or not _is_count(parts[1]):
        return 0, 0
    for line in lines[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length" and _is_count(value.strip()):
            return int(parts[1]), int(value)
    return 0, 0


def _is_count(text: bytes) -> bool:
    return text.isdigit() and len(text) <= _MOST_LENGTH_DIGITS
