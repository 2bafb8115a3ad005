"""Whether a server is ready is asked for two seconds at the most, and of nobody else."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mlcd.clouds.serving import CommandServing
from mlcd.clouds.serving.deploy import deploy
from mlcd.clouds.serving.local import is_ready
from mlcd.errors import ProviderError
from mlcd.space import Config

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


@contextlib.contextmanager
def server(answer: Callable[[socket.socket], None]) -> Iterator[tuple[str, list[bytes]]]:
    """Its address, and the requests that it got."""
    asked: list[bytes] = []

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                opened, _ = listener.accept()
                with opened, contextlib.suppress(OSError):
                    asked.append(opened.recv(65536))
                    answer(opened)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", asked


def said(text: bytes) -> Callable[[socket.socket], None]:
    return lambda opened: opened.sendall(text)


def dripped(opened: socket.socket) -> None:
    for letter in b"HTTP/1.1 " + b"x" * 1000:
        opened.sendall(bytes([letter]))
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("text", "ready"),
    [
        (OK, True),
        (b"HTTP/1.0 200\r\n\r\n", True),
        (b"HTTP/1.1 2000 OK\r\n\r\n", False),
        (b"HTTP/1.1 503 Busy\r\n\r\n", False),
        (b"200 OK\r\n\r\n", False),
        (b"x" * 5000, False),
        (b"", False),
    ],
)
def test_only_200_is_ready(text: bytes, ready: bool) -> None:
    with server(said(text)) as (address, asked):
        assert is_ready(f"{address}/up?now=1") is ready
        assert asked[0].startswith(b"GET /up?now=1 HTTP/1.1\r\nHost: 127.0.0.1:")


def test_a_proxy_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with server(said(OK)) as (address, _):
        assert is_ready(f"{address}/health")


def test_nothing_is_followed() -> None:
    with server(said(OK)) as (other, asked):
        moved = f"HTTP/1.1 302 Found\r\nLocation: {other}/\r\nContent-Length: 0\r\n\r\n".encode()
        with server(said(moved)) as (address, _):
            assert not is_ready(f"{address}/health")
        assert not asked


def test_a_server_that_drips_is_not_waited_for() -> None:
    with server(dripped) as (address, _):
        began = time.monotonic()
        assert not is_ready(f"{address}/health")
        assert time.monotonic() - began < 30.0, "its line would take 100 s"


def test_nobody_listens() -> None:
    assert not is_ready("http://127.0.0.1:1/health")


def test_a_deployed_server_has_the_time_that_it_is_given(tmp_path: Path) -> None:
    servers = CommandServing("exec sleep 60", home=tmp_path, noise=0.1, folder=tmp_path, model="m")
    with pytest.raises(ProviderError, match="not ready after 0 s"):
        deploy(servers, Config.of({"SEQS": 1}), run_id="r-1", host="127.0.0.1", port=0, ready_seconds=0.3)
