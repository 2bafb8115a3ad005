"""What a hostile server answers: limits on headers, lengths and texts; nothing left over becomes the next answer."""

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from mlcd.errors import BadInput
from mlcd.loadgen import LoadInput
from mlcd.loadgen.wire import Done, Wire, bodies


@contextmanager
def answering(answer: bytes, *, times: int = 1) -> Iterator[int]:
    """A server that sends this on every connection, `times` times, and then waits; its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            kept = []
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                kept.append(connection)
                connection.recv(2**16)
                try:
                    for _ in range(times):
                        connection.sendall(answer)
                except OSError:
                    pass

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def ended(port: int, count: int = 1) -> list[Done]:
    inputs = [LoadInput(name="x", datatype="FP32", shape=(1, 4))]
    wire, found = Wire("127.0.0.1", port, bodies("h", "m", inputs, seed=0), timeout_seconds=20.0), []
    for _ in range(count):
        wire.send(time.perf_counter())
        while not (some := wire.wait(1.0)):
            pass
        found += some
    wire.close()
    return found


@pytest.mark.parametrize(
    ("answer", "times", "problem"),
    [
        (b"HTTP/1.1 200 OK\r\nX: " + b"v" * 2**16, 20, "header is over"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n", 1, "not HTTP"),
        (b"HTTP/1.1 " + b"9" * 5000 + b" OK\r\nContent-Length: 0\r\n\r\n", 1, "not HTTP"),
        (b"HTTP/1.1 500 no\r\nContent-Length: 4\r\n\r\n\x1b[2J", 1, "status 500: �[2J"),
    ],
)
def test_hostile_answers_end_with_a_word(answer: bytes, times: int, problem: str) -> None:
    with answering(answer, times=times) as port:
        (done,) = ended(port)
    assert problem in done.error


def test_more_than_was_announced_is_not_the_next_answer() -> None:
    good = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
    with answering(good + b"HTTP/1.1 500 no\r\nContent-Length: 0\r\n\r\n") as port:
        assert [done.error for done in ended(port, 3)] == ["", "", ""]


@pytest.mark.parametrize(
    "described",
    [
        b"[]",
        b"{}",
        b'{"inputs": 7}',
        b'{"inputs": [7]}',
        b'{"inputs": [{"name": "x"}]}',
        b"[" * 5000,
        b"\xff",
        b"NaN",
        b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [99999999999, 99]}]}',
    ],
)
def test_a_hostile_description_is_refused_with_one_line(described: bytes) -> None:
    with answering(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(described), described)) as port:
        command = [sys.executable, "-m", "mlcd.loadgen", f"http://127.0.0.1:{port}", "--model", "m", "--seconds", "0.5"]
        found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert found.returncode == BadInput.exit_code
    assert "does not describe a model" in found.stderr
    assert len(found.stderr.splitlines()) == 1
