"""A way into the page that may be seen: for the browser that `mlcd ui` starts, whose command line every user can read.

A ticket is good once, for a short time, and, where the system tells whose connections are whose, for this user alone.
"""

import hmac
import ipaddress
import os
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

TICKET_SECONDS = 120.0
"""How long a browser may take to start."""
_CONNECTIONS = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
Place = tuple[str, int]


class Tickets:
    """The tickets of one server.

    user_of  the user whose process opened a connection, by its two ends; None where the system does not tell
    """

    def __init__(self, user_of: Callable[[Place, Place], int | None] | None = None) -> None:
        self._user_of = user_of or user_of_connection
        self._until: dict[str, float] = {}
        self._lock = threading.Lock()

    def issue(self) -> str:
        """A new ticket."""
        made = secrets.token_hex(24)
        with self._lock:
            self._until[made] = time.monotonic() + TICKET_SECONDS
        return made

    def take(self, given: str, client: Place | None, server: Place | None) -> bool:
        """Whether the ticket lets this connection in; it lets no other in after it. Of another user's it stays good."""
        with self._lock:
            found = next((each for each in self._until if hmac.compare_digest(each.encode(), given.encode())), None)
            if found is None or time.monotonic() > self._until[found]:
                return False
            user = self._user_of(client, server) if client is not None and server is not None else None
            if user is not None and user != os.getuid():
                return False
            del self._until[found]
            return True


def user_of_connection(client: Place, server: Place) -> int | None:
    """The user whose process has the client's end; None where it is not on this machine, or the system is silent."""
    if sys.platform != "linux":
        return None
    wanted = (_plain(client[0]), client[1], _plain(server[0]), server[1])
    for file in _CONNECTIONS:
        with suppress(OSError, ValueError, IndexError):
            for local, remote, user in _rows(file):
                if (*_decoded(local), *_decoded(remote)) == wanted:
                    return user
    return None


def _rows(file: Path) -> Iterator[tuple[str, str, int]]:
    """(own end, other end, user) of each connection."""
    with file.open(encoding="ascii") as lines:
        next(lines, "")
        for line in lines:
            fields = line.split()
            yield fields[1], fields[2], int(fields[7])


def _decoded(place: str) -> tuple[str, int]:
    """`0100007F:1F90` as 127.0.0.1 and 8080: the system writes words of an address in this machine's order of bytes."""
    address, _, port = place.partition(":")
    words = [address[at : at + 8] for at in range(0, len(address), 8)]
    data = b"".join(int(word, 16).to_bytes(4, sys.byteorder) for word in words)
    return _plain(str(ipaddress.ip_address(data))), int(port, 16)


def _plain(address: str) -> str:
    """The address in one form, one of version 4 in IPv6 as such."""
    found = ipaddress.ip_address(address.partition("%")[0])
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return str(mapped or found)
