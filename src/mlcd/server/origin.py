"""Who may talk to a server on loopback: programs of this machine, not pages that a browser has open.

A page of any site can send requests to loopback, and one whose name is made to resolve to 127.0.0.1 can read the
answers. Both say where they come from: in `Origin` and in `Host`.
"""

import ipaddress
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from mlcd.untrusted import printable

Application = Callable[
    [MutableMapping[str, Any], Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]], Awaitable[None]
]


def is_loopback(name: str) -> bool:
    """Whether a name or an address (without brackets) is this machine's alone."""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")


def stranger(headers: Iterable[tuple[bytes, bytes]], allowed: tuple[str, ...] = ()) -> str:
    """What is wrong with where a request comes from; "" where nothing is."""
    for name, value in headers:
        if name not in (b"host", b"origin"):
            continue
        host = host_of(value.decode("latin-1"))
        if not is_loopback(host) and host not in allowed:
            given = printable(value.decode("latin-1"), most_characters=100)
            return f"{name.decode().capitalize()} {given!r}: only this machine may use this server; see --allow-host"
    return ""


def host_of(value: str) -> str:
    """The host of "host", "host:port", "[address]:port" or "scheme://" before one of them; lower case."""
    host = value.rpartition("://")[2].strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() and ":" in host else host


def loopback_only(application: Application, allowed: tuple[str, ...]) -> Application:
    """The application behind that check: others are answered 403."""
    from starlette.responses import JSONResponse  # noqa: PLC0415

    async def checked(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        problem = stranger(scope["headers"], allowed) if scope["type"] == "http" else ""
        if problem:
            await JSONResponse({"error": problem}, status_code=403)(scope, receive, send)
        else:
            await application(scope, receive, send)

    return checked
