"""The browser that `mlcd ui` starts gets an address that other users may see: a ticket, good once and for one user."""

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlcd.web import ticket
from mlcd.web.guard import Guard, Scope
from mlcd.web.ticket import Place, Tickets, user_of_connection

TOKEN, OWN = "0123456789abcdef" * 3, "127.0.0.1:8377"
HERE, THERE = ("127.0.0.1", 50_000), ("127.0.0.1", 8377)


def scope(ticket: str, *, method: str = "GET", path: str = "/", host: str = OWN) -> Scope:
    headers = [(b"host", host.encode()), (b"x-mlcd-ui", b"1")]
    return {"method": method, "path": path, "query_string": f"ticket={ticket}".encode(), "headers": headers}


def user(number: int | None) -> Tickets:
    return Tickets(lambda _client, _server: number)


def test_a_ticket_is_good_once() -> None:
    tickets = user(os.getuid())
    made = tickets.issue()
    assert not tickets.take(made[:-1], HERE, THERE)
    assert tickets.take(made, HERE, THERE)
    assert not tickets.take(made, HERE, THERE)


def test_another_user_s_connection_is_refused_and_the_ticket_stays_good() -> None:
    asked: list[tuple[Place, Place]] = []

    def user_of(client: Place, server: Place) -> int:
        asked.append((client, server))
        return os.getuid() + len(asked) % 2

    tickets = Tickets(user_of)
    made = tickets.issue()
    assert not tickets.take(made, HERE, THERE)
    assert tickets.take(made, HERE, THERE)
    assert asked == [(HERE, THERE)] * 2


def test_where_the_system_tells_no_user_the_ticket_alone_decides() -> None:
    tickets = user(None)
    assert tickets.take(tickets.issue(), HERE, THERE)
    assert tickets.take(tickets.issue(), None, None)


def test_a_ticket_is_good_for_a_short_time(monkeypatch: pytest.MonkeyPatch) -> None:
    tickets = user(None)
    made = tickets.issue()
    monkeypatch.setattr(ticket, "TICKET_SECONDS", -1.0)
    assert not tickets.take(tickets.issue(), HERE, THERE)
    assert tickets.take(made, HERE, THERE)


def test_a_ticket_opens_pages_and_no_operation() -> None:
    guard = Guard(host="127.0.0.1", port=8377, token=TOKEN, tickets=user(None))
    for method, path in (("GET", "/api/runs"), ("POST", "/api/runs"), ("POST", "/"), ("HEAD", "/")):
        assert guard.problem(scope(guard.tickets.issue(), method=method, path=path)) is not None, (method, path)
    given = scope(guard.tickets.issue())
    assert guard.problem(given) is None
    assert guard.problem(given) is not None


@pytest.fixture(params=["127.0.0.1", "::1"])
def connection(request: pytest.FixtureRequest) -> Iterator[tuple[Place, Place]]:
    """The ends of a connection within this machine, the client's first."""
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    try:
        listener = socket.create_server((request.param, 0), family=family)
    except OSError as error:
        pytest.skip(f"no {request.param} here: {error}")
    with listener, socket.create_connection(listener.getsockname()[:2]) as client:
        yield client.getsockname()[:2], client.getpeername()[:2]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells whose connection it is")
def test_the_user_of_a_connection_is_known(connection: tuple[Place, Place]) -> None:
    client, server = connection
    assert user_of_connection(client, server) == os.getuid()
    assert user_of_connection((client[0], server[1]), server) is None


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="needs root, to connect as another user")
def test_another_user_of_this_machine_is_known() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        os.seteuid(65534)
        try:
            client = socket.create_connection(listener.getsockname())
        finally:
            os.seteuid(0)
        with client:
            assert user_of_connection(client.getsockname(), listener.getsockname()) == 65534


def test_a_system_that_says_something_else_is_no_hindrance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tcp").write_text("  sl  local_address\n what is this\n")
    monkeypatch.setattr(ticket, "_CONNECTIONS", (tmp_path / "tcp", tmp_path / "tcp6"))
    assert user_of_connection(HERE, THERE) is None


def test_own_host_is_still_asked_for() -> None:
    guard = Guard(host="127.0.0.1", port=8377, token=TOKEN, tickets=user(None))
    made = guard.tickets.issue()
    assert guard.problem(scope(made, host="evil.example:8377")) is not None
    assert guard.problem(scope(made)) is None
