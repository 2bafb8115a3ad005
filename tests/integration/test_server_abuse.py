"""Clients that are slow, too many, too large or not HTTP at all: each gets its answer, and others theirs meanwhile."""

import contextlib
import http.client
import json
import re
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from attacks.http_requests import body_of, case_of, chunked, post, raw_body
from mlcd.errors import BadInput
from mlcd.server import RunningServer, ServerOptions, start_server
from mlcd.server.limits import Limits

pytestmark = pytest.mark.together("an abused server")

pytest.importorskip("onnxruntime")
pytest.importorskip("starlette")
LIMITS = Limits(connections=30, header_seconds=1.0, body_seconds=1.5, idle_seconds=30.0, in_flight_bytes=4 * 2**20)
LONG = 60.0
ATTEMPTS = 10


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.tiny_onnx import write_open

    return write_open(tmp_path_factory.mktemp("model") / "m.onnx")


@pytest.fixture(scope="module")
def server(model: Path) -> Iterator[RunningServer]:
    options = ServerOptions(model=model, batch=4, sizes={"length": 4}, request_bytes=4 * 2**20, limits=LIMITS)
    with start_server(options) as found:
        yield found


def port_of(server: RunningServer) -> int:
    return int(server.address.rpartition(":")[2])


@contextlib.contextmanager
def connected(server: RunningServer, data: bytes = b"") -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port_of(server)), timeout=LONG) as found:
        found.sendall(data)
        yield found


def statuses(connection: socket.socket) -> list[int]:
    """Of all answers until the server closes the connection."""
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(2**16):
            data += part
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+) ", data)]


def asked(server: RunningServer, data: bytes) -> tuple[int, dict[str, str], Any]:
    """(status, headers, JSON) of the answer to these bytes."""
    with connected(server, data) as connection:
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, json.loads(answer.read())


def works(server: RunningServer) -> bool:
    return asked(server, post(body_of()))[0] == 200


def descriptors(server: RunningServer) -> int:
    return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))


class TestAnswers:
    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            (raw_body("[1,NaN,2,3]"), "inputs: x: data has NaN"),
            (raw_body("[1,Infinity,2,3]"), "inputs: x: data has Infinity"),
            (raw_body("[1,1e999,2,3]"), "inputs: x: a number does not fit FP32"),
            (raw_body("[1,1e40,2,3]"), "inputs: x: a number does not fit FP32"),
            (raw_body("[1,true,2,3]"), "inputs: x: data must be numbers"),
            (raw_body("[1,2,3,4]", datatype=r'"\ud800"'), "not UTF-8"),
            (raw_body("[1,2,3,4]", shape=f"[1, {'9' * 5000}]"), "digits"),
            (raw_body("[3e38,3e38,2,3]"), ""),
        ],
    )
    def test_numbers(self, server: RunningServer, text: bytes, problem: str) -> None:
        status, _, answer = asked(server, post(text))
        assert status == (400 if problem else 200)
        assert problem in answer.get("error", "")

    def test_a_length_of_thousands_of_digits(self, server: RunningServer) -> None:
        for header in ("Inference-Header-Content-Length: " + "9" * 4301, "Content-Length: " + "9" * 4301):
            assert asked(server, post(body_of(), header))[0] == 400

    def test_the_right_status_for_each_excess(self, server: RunningServer) -> None:
        assert asked(server, b"GET /v2 HTTP/1.1\r\nX: " + b"v" * 20_000 + b"\r\n\r\n")[0] == 431
        assert asked(server, b"GET /v2 HTTP/1.1\r\nX: " + b"v" * 500_000)[0] == 431
        assert asked(server, b"GET /v2 HTTP/1.1\r\n" + b"X: v\r\n" * 101 + b"\r\n")[0] == 431
        assert asked(server, b"GET /" + b"v" * 20_000 + b" HTTP/1.1\r\n\r\n")[0] == 431
        assert asked(server, post(b"x" * 100_000, length=str(2**23)))[0] == 413
        assert asked(server, chunked(b" " * (5 * 2**20), 2**16))[0] == 413
        assert asked(server, chunked(b"1" * 60_000, 1))[0] == 400
        assert asked(server, post(body_of(), "Origin: http://evil.example"))[0] == 403
        assert asked(server, post(body_of()).replace(b"localhost", b"["))[0] == 403
        assert works(server)

    @pytest.mark.parametrize("upgrade", ["h2c", "websocket"])
    def test_the_body_of_an_upgrade_is_no_request(self, server: RunningServer, upgrade: str) -> None:
        """Behind a proxy, it would be a way to send requests in another client's name."""
        head = post(b"", "Connection: Upgrade", f"Upgrade: {upgrade}", length="30")
        with connected(server, head) as connection:
            time.sleep(0.05)
            with contextlib.suppress(OSError):
                connection.sendall(b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert statuses(connection) == [400]

    def test_an_upgrade_without_a_body_is_answered_in_http(self, server: RunningServer) -> None:
        with connected(server, b"GET /v2 HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n") as connection:
            with contextlib.suppress(OSError):
                connection.sendall(b"GET /v2 HTTP/1.1\r\n\r\n")
            assert statuses(connection) == [200]

    def test_hostile_cases_of_the_attack(self, server: RunningServer) -> None:
        tried = 0
        for number in range(200):
            case = case_of(7, number)
            if (
                len(case.pieces) == 1
                and case.answers == case.clients == 1
                and case.kind not in ("mutated", "gone", "not HTTP")
            ):
                if 200 in case.allowed or 0 in case.allowed:
                    continue
                tried += 1
                with connected(server) as connection:
                    with contextlib.suppress(OSError):
                        connection.sendall(case.pieces[0][0])
                    answer = http.client.HTTPResponse(connection)
                    answer.begin()
                    assert answer.status in {*case.allowed, 503}, case.kind
        assert tried > 50


class TestTime:
    def test_slow_headers_and_bodies_are_answered_408_and_closed(self, server: RunningServer) -> None:
        body = post(body_of(), length="500")
        with connected(server, b"GET /v2 HT") as head, connected(server, body) as slow, connected(server) as silent:
            assert works(server)
            assert statuses(head) == [408]
            assert statuses(slow) == [408]
            assert statuses(silent) == []

    def test_slow_headers_of_a_later_request_are_answered_408_too(self, server: RunningServer) -> None:
        with connected(server, post(body_of())) as connection:
            answer = http.client.HTTPResponse(connection)
            answer.begin()
            answer.read()
            assert answer.status == 200
            connection.sendall(b"GET /v2 HT")
            assert statuses(connection) == [408]

    def test_a_body_that_trickles_after_its_refusal_is_closed(self, server: RunningServer) -> None:
        with connected(server, post(b"x", length=str(2**40))) as connection:
            assert statuses(connection) == [413]

    def test_an_answer_that_is_not_read_is_given_up(self, server: RunningServer) -> None:
        count = 900_000  # an answer of 20 MB: more than the system keeps for a client
        text = raw_body("[" + ",".join(["0.1"] * count) + "]", f"[1, {count}]")
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.settimeout(LONG)
            connection.connect(("127.0.0.1", port_of(server)))
            connection.sendall(post(text))
            until, most = time.monotonic() + LONG, 0
            while (held := server.stats()["in_flight_bytes"]) or most < 5 * count:
                assert time.monotonic() < until
                most = max(most, held)
                time.sleep(0.05)
        assert works(server)

    def test_others_are_answered_while_a_large_body_is_read(self, server: RunningServer, model: Path) -> None:
        """Each of many small requests takes less than the large one: none waits for it.

        On a busy machine a request may be late for another reason, so one large body of five is enough. If requests
        waited for it, they would wait for each.
        """
        count = 400_000
        text = post(raw_body("[" + ",".join(["1.5"] * count) + "]", f"[1, {count}]"))
        with start_server(ServerOptions(model=model, sizes={"length": 4})) as roomy:
            assert any(is_answered_beside(roomy, text) for _ in range(5))


def is_answered_beside(server: RunningServer, large_request: bytes) -> bool:
    """Whether at least five small requests are answered in the time of a large one, each in less than half of it."""
    with connected(server) as large:
        connection = http.client.HTTPConnection("127.0.0.1", port_of(server), timeout=LONG)
        began = time.monotonic()
        large.sendall(large_request)
        large.setblocking(False)
        longest, answered = 0.0, 0
        while True:
            with contextlib.suppress(BlockingIOError):
                assert large.recv(12) == b"HTTP/1.1 200"
                break
            sent = time.monotonic()
            connection.request("POST", "/v2/models/m/infer", body_of())
            assert connection.getresponse().read()
            longest, answered = max(longest, time.monotonic() - sent), answered + 1
        whole = time.monotonic() - began
        connection.close()
    return answered >= 5 and longest < whole / 2


class TestNumberOfClients:
    def test_silent_connections_make_room(self, server: RunningServer) -> None:
        before = descriptors(server)
        with contextlib.ExitStack() as stack:
            for _ in range(3 * LIMITS.connections):
                stack.enter_context(connected(server, b"GET /v2 HTTP/1.1\r\n"))
            assert works(server)
            assert descriptors(server) <= before + LIMITS.connections + 1

    def test_bodies_that_never_end_make_room(self, server: RunningServer) -> None:
        """The oldest are told so; newcomers are not dropped for one another."""
        with contextlib.ExitStack() as stack:
            slow = [
                stack.enter_context(connected(server, post(b"{", length="5"))) for _ in range(2 * LIMITS.connections)
            ]
            assert all(works(server) for _ in range(10))
            assert {status for each in slow for status in statuses(each)} <= {408, 503}

    def test_requests_that_wait_for_the_model_do_not(self, model: Path) -> None:
        """A newcomer is told to come back."""
        limits = Limits(connections=8)
        with (
            start_server(
                ServerOptions(model=model, batch=32, delay_seconds=8.0, sizes={"length": 4}, limits=limits)
            ) as server,
            contextlib.ExitStack() as stack,
        ):
            waiting = [stack.enter_context(connected(server, post(body_of(), "Connection: close"))) for _ in range(8)]
            time.sleep(0.2)
            status, headers, _ = asked(server, post(body_of()))
            assert (status, headers["retry-after"]) == (503, "1")
            assert [statuses(each) for each in waiting] == [[200]] * 8

    def test_many_large_requests_are_turned_away_and_small_ones_answered(self, server: RunningServer) -> None:
        large = post(b" " * (2**20), length=str(2**21))
        for _ in range(ATTEMPTS):
            with contextlib.ExitStack() as stack:
                senders = [stack.enter_context(connected(server, large)) for _ in range(6)]
                assert works(server)
                found = {status for each in senders for status in statuses(each)}
            assert found <= {408, 503}
            if 503 in found:
                break
        assert 503 in found
        assert server.stats()["in_flight_bytes"] == 0

    def test_a_client_that_leaves_gives_up_its_place(self, model: Path) -> None:
        with start_server(ServerOptions(model=model, batch=4, delay_seconds=3.0, sizes={"length": 4})) as server:
            for _ in range(3):
                with connected(server, post(body_of())):
                    time.sleep(0.1)
            assert server.stats()["requests"] == 3
            assert works(server)
            assert server.stats()["batches"] == 1
            assert server.stats()["items"] == 1

    def test_a_system_with_too_few_descriptors_is_told_at_the_start(self, model: Path) -> None:
        found = subprocess.run(
            [sys.executable, "-m", "mlcd.server", str(model), "--size", "length=4"],
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (500, 500)),
        )
        assert found.returncode == BadInput.exit_code
        assert re.search(
            r"--connections: 1024 need \d+ descriptors, this process may open 500; choose \d+", found.stderr
        )

    def test_the_log_has_one_line_a_kind(self, model: Path, tmp_path: Path) -> None:
        """Also where descriptors run out, which the event loop itself reports."""
        command = [sys.executable, "-m", "mlcd.server", str(model), "--size=length=4", "--connections=400"]
        with (tmp_path / "log").open("wb") as log:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        try:
            assert process.stdout is not None
            port = int(json.loads(process.stdout.readline())["address"].rpartition(":")[2])
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (60, 60))
            with contextlib.ExitStack() as stack:
                for _ in range(150):
                    each = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=LONG))
                    each.sendall(b"GET /v2 HTTP/1.1\r\n")
                time.sleep(2.5)  # it tries again every second
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LONG)
            connection.request("POST", "/v2/models/m/infer", body_of())
            assert connection.getresponse().status == 200
            connection.close()
        finally:
            process.terminate()
            process.wait(LONG)
        text = (tmp_path / "log").read_text()
        assert text.count("out of system resource") == 2  # the first, and the count at the end
        assert len(text) < 10_000
