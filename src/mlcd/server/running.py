"""Runs an application behind the limits of front.py: on a bound socket, until SIGTERM or Ctrl-C."""

import asyncio
import errno
import logging
import math
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from mlcd.errors import BadInput
from mlcd.server.front import Connections
from mlcd.server.journal import Journal
from mlcd.server.limits import BACKLOG, Limits
from mlcd.server.memory import Memory


def listen(host: str, port: int) -> socket.socket:
    """A bound socket. Raises BadInput that names --port, where the address is in use or not this machine's."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio disables Nagle's algorithm only if the protocol is given as TCP; otherwise a request takes 40 ms more.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
            raise BadInput(
                f"--host: {host} is not an address of this machine; allowed: 127.0.0.1, or 0.0.0.0 for all addresses"
            ) from error
        problem = os.strerror(error.errno or 0) if isinstance(error.errno, int) and error.errno > 0 else str(error)
        raise BadInput(
            f"--port: {port} on {host} cannot be used: {problem}; choose another, or 0 for a free one"
        ) from error
    return listener


def allow_descriptors(limits: Limits) -> None:
    """Let this process open as many descriptors as its limits need. Raises BadInput where the system forbids that."""
    try:
        import resource  # noqa: PLC0415
    except ImportError:  # Windows has no such limit
        return
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if allowed == unlimited or allowed >= limits.descriptors:
        return
    if most != unlimited and most < limits.descriptors:
        raise BadInput(
            f"--connections: {limits.connections} need {limits.descriptors} descriptors, this process may open {most};"
            f" choose {max(most - limits.descriptors + limits.connections, 1)} or fewer, or raise the limit (ulimit -n)"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits.descriptors, most))


def address_of(listener: socket.socket) -> str:
    """The address of a bound socket, such as http://127.0.0.1:8000."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def run_app(
    application: Any,
    listener: socket.socket,
    limits: Limits,
    *,
    memory: Memory,
    ready: Callable[[], None],
    graceful_seconds: int = 5,
) -> None:
    """Serve until SIGTERM or Ctrl-C. `ready` is called once requests are answered.

    memory            what requests and answers may take together
    graceful_seconds  how long answers may take to complete after the signal
    """
    journal = Journal()
    logging.basicConfig(level=logging.WARNING, handlers=[journal])
    connections = Connections(limits, memory, journal)

    class Announced(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            """Shut down cleanly on Ctrl-C and SIGTERM, with exit code 0; uvicorn would raise the signal again."""
            before = {sign: signal.signal(sign, self.handle_exit) for sign in (signal.SIGINT, signal.SIGTERM)}
            yield
            for sign, handler in before.items():
                signal.signal(sign, handler)

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            asyncio.get_running_loop().set_exception_handler(_log_exception)
            connections.start()
            await super().startup(sockets)
            ready()

    server = Announced(
        uvicorn.Config(
            application,
            loop="asyncio",
            http=connections.protocol,  # type: ignore[arg-type] # a function that makes one
            ws="none",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,  # nothing here depends on the client's address, and no header may change it
            timeout_keep_alive=math.ceil(limits.idle_seconds),
            timeout_graceful_shutdown=graceful_seconds,
            backlog=BACKLOG,
        )
    )
    server.run(sockets=[listener])
    journal.write_counts(ending=True)


def _log_exception(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log what asyncio could tell nobody, such as that a connection could not be accepted."""
    logging.getLogger("asyncio").error(str(context.get("message")), exc_info=context.get("exception"))
