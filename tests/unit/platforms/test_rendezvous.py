"""Where Horovod's workers meet: what a client of its protocol sees, and when a worker starts."""

import http.client
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlcd.platforms import rendezvous
from mlcd.platforms.rendezvous import MOST_BODY_BYTES, MOST_KEY_CHARACTERS, Rendezvous

FILE = Path(rendezvous.__file__)


@pytest.fixture
def server() -> Iterator[Rendezvous]:
    with Rendezvous(("127.0.0.1", 0)) as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def ask(server: Rendezvous, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=30)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_a_value_is_there_once_it_is_put_until_it_is_deleted(server: Rendezvous) -> None:
    assert ask(server, "GET", "/global/0") == (404, b"")
    assert ask(server, "PUT", "/global/0", b"\0address\xff") == (200, b"")
    assert ask(server, "GET", "/global/0") == (200, b"\0address\xff")
    assert ask(server, "GET", "/cross_0/0")[0] == 404
    assert ask(server, "PUT", "/global/0", b"another") == (200, b"")
    assert ask(server, "GET", "/global/0") == (200, b"another")
    assert ask(server, "DELETE", "/global/0")[0] == 200
    assert ask(server, "GET", "/global/0")[0] == 404
    assert ask(server, "DELETE", "/global/0")[0] == 200


def test_what_no_worker_sends_is_refused(server: Rendezvous, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ask(server, "PUT", "/a/b", b"x" * MOST_BODY_BYTES)[0] == 200
    assert ask(server, "PUT", "/a/large", b"x" * (MOST_BODY_BYTES + 1))[0] == 413
    assert ask(server, "PUT", "/a/length", b"x", **{"Content-Length": "-1"})[0] == 413
    assert ask(server, "PUT", "/" + "k" * MOST_KEY_CHARACTERS, b"x")[0] == 400
    monkeypatch.setattr(rendezvous, "MOST_KEYS", 1)
    assert ask(server, "PUT", "/a/c", b"x")[0] == 400
    assert ask(server, "PUT", "/a/b", b"y")[0] == 200  # no further key
    assert set(server.values) == {"/a/b"}


def test_a_worker_starts_when_the_server_accepts_connections() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    here = [sys.executable, "-I", str(FILE)]
    says = ["bash", "-c", "trap -p PIPE; kill -PIPE $$; echo survived"]  # one that is ignored cannot be reset by bash
    with subprocess.Popen([*here, "await", "127.0.0.1", port, *says], stdout=subprocess.PIPE) as waits:
        with pytest.raises(subprocess.TimeoutExpired):
            waits.wait(1.0)
        with subprocess.Popen([*here, "serve", "127.0.0.1", port]) as serves:
            try:
                assert waits.communicate(timeout=60)[0] == b""  # Python's own ignoring of SIGPIPE is not inherited
                assert waits.returncode == -13
                assert serves.poll() is None
            finally:
                serves.kill()
