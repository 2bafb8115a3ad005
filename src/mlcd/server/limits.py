"""What clients may take of the server: time, memory and connections; `ServerOptions` limits single bodies."""

import math
from dataclasses import dataclass, fields

from mlcd.errors import BadInput

MOST_HEADERS = 100
"""Header lines of one request, trailers included; clients send about ten."""
MOST_PIPELINED = 16
"""Requests that a connection may send ahead of their answers; clients that do so at all send a few."""
LINGER_SECONDS = 2.0
"""How long a refused connection is still read, so that its client finds the answer and not a reset connection."""
MOST_LINGERING = 128
BACKLOG = 256
"""Connections that the system accepts for the server in advance."""
OTHER_DESCRIPTORS = 64
"""Descriptors of the process that are no connections: the model, the log, the event loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Raises BadInput for values out of range.

    connections      that are open at once; one more replaces the oldest that waits for its client, else it gets 503
    header_bytes     of a request's first line and headers; more are answered 431
    header_seconds   from the first byte of a request, or from connecting, until its headers are complete; else 408
    body_seconds     from there until the body is complete (else 408), and for a client to read an answer
    idle_seconds     that a connection is kept without a request
    in_flight_bytes  of all requests and answers over 64 KiB that are in memory at once; more are answered 503
    """

    connections: int = 1024
    header_bytes: int = 16 * 1024
    header_seconds: float = 10.0
    body_seconds: float = 60.0
    idle_seconds: float = 75.0
    in_flight_bytes: int = 256 * 2**20

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not (math.isfinite(value) and value > 0):
                raise BadInput(f"{flag(field.name)}: must be more than 0 (got {value:g})")

    @property
    def descriptors(self) -> int:
        """Descriptors that the process needs to keep these limits without running out of them."""
        return self.connections + MOST_LINGERING + BACKLOG + OTHER_DESCRIPTORS

    def arguments(self) -> list[str]:
        """As options of `python -m mlcd.server`."""
        return [f"{flag(field.name)}={getattr(self, field.name)}" for field in fields(self)]


def flag(name: str) -> str:
    """The option of a field."""
    return f"--{name.replace('_', '-')}"
