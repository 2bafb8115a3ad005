"""The generators on a node of their own: a real server of plans on loopback, and whoever talks to it."""

import http.client
import json
import socket
import threading
from collections.abc import Iterator

import pytest
from tests.chat_server import chat_server

from mlcd.errors import BadInput, MlcdError
from mlcd.loadgen.chat import ChatPlan, measure_chat
from mlcd.loadgen.chat.plan import Exchange
from mlcd.loadgen.generator import _saturation
from mlcd.loadgen.node import MOST_REQUEST_BYTES, RUN, TOKEN_HEADER, serve
from mlcd.loadgen.phases import LoadPhase
from mlcd.loadgen.plan import LoadPlan
from mlcd.loadgen.process import result_of
from mlcd.loadgen.remote import RemoteGenerator
from mlcd.loadgen.result import LoadResult

TOKEN = "not a secret"


@pytest.fixture
def place() -> Iterator[str]:
    """Of a server of plans."""
    server = serve("127.0.0.1", 0, TOKEN)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def asked(place: str, headers: dict[str, str] | None = None, *, path: str = RUN) -> int:
    way = http.client.HTTPConnection(place, timeout=10)
    way.request("POST", path, body=b"{}", headers={TOKEN_HEADER: TOKEN, **(headers or {})})
    status = way.getresponse().status
    way.close()
    return status


def test_a_plan_is_run_there_and_its_result_is_the_same(place: str) -> None:
    remote = RemoteGenerator(place=place, token=TOKEN)
    with chat_server(ttft_seconds=0.01, tpot_seconds=0.001, slots=4) as address:
        plan = ChatPlan(
            address=address, model="toy", exchanges=(Exchange(input_tokens=8, output_tokens=4),), seconds=1.0
        )
        found = measure_chat(plan, remote)
    assert found.chosen.requests > 0
    assert found.chosen.errors == 0
    with pytest.raises(MlcdError, match=r"no request was answered|refused"):
        measure_chat(ChatPlan(address="http://127.0.0.1:9", model="toy", seconds=1.0), remote)


def test_a_plan_that_is_none_is_refused_there(place: str) -> None:
    remote = RemoteGenerator(place=place, token=TOKEN)
    with pytest.raises(BadInput, match=r"mlcd\.cli is no load generator"):
        remote("mlcd.cli", "{}", most_seconds=1.0)
    with pytest.raises(BadInput, match="most_seconds should be between 0 and"):
        remote("mlcd.loadgen", "{}", most_seconds=-1.0)


def test_strangers_load_nothing_from_there(place: str) -> None:
    with pytest.raises(MlcdError, match="status 403"):
        RemoteGenerator(place=place, token="guessed")("mlcd.loadgen", "{}", most_seconds=1.0)
    assert asked(place, path="/other") == 404
    assert asked(place, {TOKEN_HEADER: "é"}) == 403
    for length in (str(MOST_REQUEST_BYTES + 1), "-1", "one", "9" * 5000):
        assert asked(place, {"Content-Length": length}) == 413
    assert TOKEN not in repr(RemoteGenerator(place=place, token=TOKEN))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"no JSON", "is not JSON"),
        (b"[]", "should be a mapping"),
        (b"{}", "output is missing"),
        (b'{"output": 5}', "output should be a string"),
        (b'{"error": null}', "output is missing"),
        (b'{"error": "it broke"}', "it broke"),
    ],
)
def test_an_answer_of_something_else_is_an_error(body: bytes, message: str) -> None:
    def answer_once() -> None:
        client, _ = listening.accept()
        with client:
            client.recv(65_536)
            client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=answer_once)
        thread.start()
        place = f"127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(MlcdError, match=message):
            RemoteGenerator(place=place, token=TOKEN)("mlcd.loadgen", "{}", most_seconds=1.0)
        thread.join()


def test_a_node_that_is_gone_is_an_error() -> None:
    with pytest.raises(MlcdError, match="the node that sends the load does not answer"):
        RemoteGenerator(place="127.0.0.1:9", token=TOKEN)("mlcd.loadgen", "{}", most_seconds=1.0)


@pytest.mark.parametrize("output", ["", "[]", "{}", '{"steps": 5}', json.dumps({"steps": [], "rate": 1})])
def test_a_generator_that_prints_something_else_is_an_error(output: str) -> None:
    with pytest.raises(MlcdError, match="did not print a result"):
        result_of(output, LoadResult.from_json)


def test_a_part_of_a_processor_is_soon_used_up() -> None:
    phase = LoadPhase(begun=0.0, ended=10.0, processor_seconds=3.0)
    assert _saturation(phase, None) == ""
    assert _saturation(phase, None, processors=0.3) == "the load generator used 30% of a processor"
    with pytest.raises(BadInput, match="more than 0 and at most 1 processor"):
        LoadPlan(address="", model="", inputs=(), rate=1.0, processors=0.0)
