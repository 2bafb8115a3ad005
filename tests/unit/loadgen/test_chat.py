"""The load generator of language models: what it reads of answers, and what it measures of a server of known times."""

import itertools
import json
import math
import socket
import struct
import time
from collections.abc import Iterator

import pytest
from tests.chat_server import FRAME_TOKENS, chat_server

from mlcd.errors import BadInput
from mlcd.loadgen.chat import ChatLimit, ChatMetric, ChatPlan, ChatResult, Exchange, measure_chat
from mlcd.loadgen.chat import generator as chat
from mlcd.loadgen.chat.generator import generate_chat
from mlcd.loadgen.chat.prompts import PROBE_WORDS, Prompts
from mlcd.loadgen.chat.sse import MOST_EVENT_BYTES, MOST_HEAD_BYTES, Answer, BadAnswer
from mlcd.loadgen.chat.wire import ChatWire, Stream

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
ROLE = {"choices": [{"delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}
END = {"choices": [{"delta": {"content": ""}, "finish_reason": "stop"}]}
USAGE = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}


def piece(text: str) -> dict[str, object]:
    return {"choices": [{"delta": {"content": text}, "finish_reason": None}]}


def events(*values: object) -> bytes:
    return b"".join(b"data: " + json.dumps(value).encode() + b"\n\n" for value in values) + b"data: [DONE]\n\n"


def chunked(body: bytes, size: int) -> bytes:
    parts = [body[i : i + size] for i in range(0, len(body), size)]
    return b"".join(b"%x;name=v\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


STREAM = events(ROLE, piece("a"), piece('say \\"content\\": "x"'), piece("b"), END, USAGE)


def fed(wire: bytes, *, step: int) -> Answer:
    answer = Answer()
    for at, start in enumerate(range(0, len(wire), step)):
        answer.feed(wire[start : start + step], now=1.0 + at)
    return answer


@pytest.mark.parametrize("chunk", [1, 7, 10_000])
@pytest.mark.parametrize("step", [1, 3, 10_000])
def test_pieces_are_counted_however_the_answer_is_cut(chunk: int, step: int) -> None:
    answer = fed(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(STREAM, chunk), step=step)
    assert answer.is_over
    assert answer.keep_alive
    assert len(answer.times) == 3, "neither the role nor the end is a token"
    assert (answer.input_tokens, answer.output_tokens) == (7, 3)
    assert answer.times == sorted(answer.times)
    assert not answer.error


def test_an_answer_with_a_length_and_one_that_ends_with_the_connection_are_read_too() -> None:
    whole = fed(HEAD + b"Content-Length: %d\r\n\r\n" % len(STREAM) + STREAM, step=50)
    assert whole.is_over
    open_ended = fed(HEAD + b"\r\n" + STREAM, step=50)
    assert not open_ended.is_over
    assert open_ended.closed(99.0)
    assert len(whole.times) == len(open_ended.times) == 3


@pytest.mark.parametrize("more", [{}, {"finish_reason": None}])
def test_tokens_without_text_are_pieces(more: dict[str, None]) -> None:
    nothing: dict[str, object] = {"choices": [{"delta": {}, **more}]}
    answer = fed(HEAD + b"\r\n" + events(ROLE, nothing, nothing, END), step=1000)
    assert len(answer.times) == 2


@pytest.mark.parametrize(
    ("wire", "words"),
    [
        (b"220 smtp\r\n\r\n", "not HTTP"),
        (b"x" * (MOST_HEAD_BYTES + 2), "header is over"),
        (HEAD + b"Content-Length: -3\r\n\r\n", "length is no number"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", "size of a chunk"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1" * 2000, "size of a chunk"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nffffffff\r\n", "size of a chunk"),
        (HEAD + b"\r\ndata: " + b"x" * (MOST_EVENT_BYTES + 2), "an event of the stream is over"),
        (HEAD + b'\r\ndata: {"usage": {"prompt_tokens": -1}}\n\n', "usage"),
        (HEAD + b'\r\ndata: {"usage": {"prompt_tokens": ' + b"9" * 500 + b"}}\n\n", "usage"),
    ],
)
def test_what_no_such_server_sends_is_named(wire: bytes, words: str) -> None:
    with pytest.raises(BadAnswer, match=words):
        fed(wire, step=10**6)


@pytest.mark.parametrize("cut", range(0, 400, 7))
def test_any_beginning_of_an_answer_is_no_whole_one(cut: int) -> None:
    wire = HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(STREAM, 40)
    answer = fed(wire[:cut], step=5)
    assert not answer.is_over
    assert not answer.closed(2.0)


# ---- against a server whose times are known; loads of other work only make it slower


TTFT, TPOT, TOKENS = 0.2, 0.02, 20


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with chat_server(ttft_seconds=TTFT, tpot_seconds=TPOT) as found:
        yield found


def plan(address: str, **changes: object) -> ChatPlan:
    given = {"seconds": 3.0, "exchanges": (Exchange(input_tokens=50, output_tokens=TOKENS),), **changes}
    return ChatPlan(address=address, model="m", **given)  # type: ignore[arg-type]


def test_known_times_are_measured(address: str) -> None:
    result = measure_chat(plan(address, concurrency=8))
    seen = result.chosen
    assert TTFT <= seen.ttft["p50"] < 1.5 * TTFT
    assert 0.95 * TPOT <= seen.tpot["p50"] < 1.5 * TPOT
    assert seen.e2e["p50"] == pytest.approx(seen.ttft["p50"] + (TOKENS - 1) * seen.tpot["p50"], rel=0.1)
    assert seen.gaps["p50"] == pytest.approx(seen.tpot["p50"], rel=0.2)
    assert seen.requests_per_second == pytest.approx(8 / seen.e2e["p50"], rel=0.25)
    assert seen.output_tokens_per_second == pytest.approx(TOKENS * seen.requests_per_second, rel=0.25)
    assert result.input_tokens == pytest.approx(50, abs=1), "counted by the server, frame included"
    assert result.output_tokens == TOKENS
    assert result.tokens_from == "usage"
    assert seen.errors == 0
    assert ChatResult.from_json(json.loads(json.dumps(result.as_json()))) == result


def test_poisson_arrivals_and_a_trace_keep_their_pace(address: str) -> None:
    open_loop = generate_chat(plan(address, rate=20.0))
    assert open_loop.chosen.rate == 20.0
    assert 10 < open_loop.chosen.requests <= 60
    trace = tuple(Exchange(input_tokens=9 + i, output_tokens=i + 2, at_seconds=0.1 * i) for i in range(10))
    traced = generate_chat(plan(address, exchanges=trace))
    assert traced.chosen.requests == 10
    assert traced.output_tokens == pytest.approx(sum(each.output_tokens for each in trace) / 10)
    assert traced.total_seconds >= 0.9


def test_the_search_ends_at_the_servers_slots() -> None:
    """Four answers are written at once: with more in flight, the first token comes later and nothing is won."""
    with chat_server(ttft_seconds=0.05, tpot_seconds=0.005, slots=4) as address:
        limits = (ChatLimit(metric=ChatMetric.TTFT, percentile=95, seconds=0.15),)
        result = generate_chat(plan(address, concurrency=64, search=True, seconds=6.0, limits=limits))
    assert result.chosen.kept
    assert 2 <= result.chosen.concurrency < 6
    assert any(not step.kept for step in result.steps)
    assert max(step.concurrency for step in result.steps) < 32, "the search ends where the limit breaks"


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("status", "status 503: no"),
        ("garbage", "not HTTP"),
        ("endless", "does not end"),
        ("silent", "nothing came for"),
        ("error-event", "out of memory"),
        ("no-stream", "not a stream"),
        ("huge-event", "an event of the stream is over"),
    ],
)
def test_a_server_that_is_no_such_server_is_told_at_once(fault: str, words: str) -> None:
    with chat_server(fault=fault, tpot_seconds=0.0005) as address, pytest.raises(BadInput, match=words) as raised:
        generate_chat(plan(address, timeout_seconds=0.5))
    assert "\x1b" not in str(raised.value)


def test_answers_that_break_off_are_errors() -> None:
    with chat_server(fault="closes", ttft_seconds=0.01) as address, pytest.raises(BadInput, match="closed the conn"):
        generate_chat(plan(address))


def test_more_tokens_than_were_asked_for_are_not_believed() -> None:
    with chat_server(fault="boasts", ttft_seconds=0.01) as address, pytest.raises(BadInput, match="were asked for"):
        generate_chat(plan(address))


@pytest.mark.parametrize("counted", [(20, 21), (16, 272 * 40)])
def test_tokens_of_a_word_that_no_tokenizer_makes_are_not_believed(counted: tuple[int, int]) -> None:
    made = Prompts(plan("http://h:1"), "h:1")
    with pytest.raises(BadInput, match="cannot be right"):
        made.calibrate(list(zip(PROBE_WORDS, counted, strict=True)))


def test_a_last_event_that_is_wrong_and_ends_with_the_connection_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        requests = itertools.repeat((b"x", Exchange(input_tokens=1, output_tokens=1)))
        wire = ChatWire("127.0.0.1", listener.getsockname()[1], requests, timeout_seconds=10, most_seconds=10)
        wire.send(time.perf_counter())
        opened, _ = listener.accept()
        with opened:
            opened.recv(1)
            opened.sendall(HEAD + b'\r\ndata: {"usage": {"prompt_tokens": -1}}')
        ended = []
        while wire.under_way:
            ended += wire.wait(0.1)
        wire.close()
    assert [each.error.partition(":")[0] for each in ended] == ["the stream's usage"]


def test_a_server_that_resets_before_it_has_read_a_prompt_is_an_error() -> None:
    body = b"x" * 20_000_000  # more than the system keeps for the server
    with socket.create_server(("127.0.0.1", 0)) as listener:
        requests = itertools.repeat((body, Exchange(input_tokens=1, output_tokens=1)))
        wire = ChatWire("127.0.0.1", listener.getsockname()[1], requests, timeout_seconds=10, most_seconds=10)
        wire.send(time.perf_counter())
        opened, _ = listener.accept()
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        opened.close()
        ended = []
        while wire.under_way:
            ended += wire.wait(0.1)
        wire.close()
    assert [each.error.partition(":")[0] for each in ended] in (["cannot send"], ["connection lost"])


def test_without_usage_pieces_are_counted() -> None:
    with chat_server(fault="no-usage", ttft_seconds=0.01) as address:
        result = generate_chat(plan(address, seconds=1.0))
    assert result.tokens_from == "pieces"
    assert result.output_tokens == TOKENS


# ---- what counts


def stream(first: float, tpot: float, tokens: int, *, error: str = "", intended: float = 0.0) -> Stream:
    last = first + tpot * (tokens - 1)
    return Stream(intended, intended, last, 0, error, first=first, last=last, output_tokens=tokens, counted=True)


def test_a_request_keeps_the_limits_by_itself() -> None:
    limits = tuple(
        ChatLimit(metric=metric, percentile=99, seconds=at)
        for metric, at in ((ChatMetric.TTFT, 0.5), (ChatMetric.TPOT, 0.05), (ChatMetric.E2E, 2.0))
    )
    assert chat.keeps(stream(0.5, 0.05, 11), limits)
    assert not chat.keeps(stream(0.51, 0.05, 11), limits)
    assert not chat.keeps(stream(0.5, 0.051, 11), limits)
    assert not chat.keeps(stream(0.5, 0.05, 40), limits)
    assert not chat.keeps(stream(0.1, 0.01, 5, error="lost"), limits)
    assert chat.keeps(stream(0.1, 0.0, 1), limits), "one token has no pace"


def test_a_step_counts_requests_and_tokens_of_its_own_time() -> None:
    limit = ChatLimit(metric=ChatMetric.TTFT, percentile=50, seconds=1.5)
    early = stream(9.0, 0.1, 11, intended=8.0)  # from 9 to 10: half of it before the window
    inside = stream(11.0, 0.1, 11, intended=10.0)
    late = stream(13.0, 0.1, 31, intended=11.0)  # from 13 to 16: two thirds after the window
    step = chat._Step(begun=9.5, ended=14.0, streams=[inside, late], all=[early, inside, late], area=9.0)
    seen = step.result((limit,))
    assert seen.output_tokens_per_second == pytest.approx((11 / 2 + 11 + 31 / 3) / 4.5)
    assert seen.requests_per_second == pytest.approx(2 / 4.5), "early and inside ended within it"
    assert seen.good_per_second == pytest.approx(2 / 4.5)
    assert seen.concurrency == 2.0
    assert seen.requests == 2
    assert seen.kept, "the median of 1 s and 2 s is 1 s"
    assert not chat._Step(begun=0, ended=1, streams=[stream(0.1, 0.1, 2, error="x")]).result(()).kept


@pytest.mark.parametrize(("behind", "kept"), [(0.0, True), (0.2, False)])
def test_without_limits_a_server_that_falls_behind_does_not_hold_the_rate(behind: float, kept: bool) -> None:
    """Each second, it is `behind` seconds later; nothing else tells that where there is no limit."""
    step = chat._Step(begun=0.0, ended=60.0, rate=1.0, is_open=True)
    for at in range(60):
        end = at + 1.0 + behind * at
        step.streams.append(Stream(at, at, end, 0, first=at + 0.5, last=end, output_tokens=8))
    step.all = step.streams
    assert step.result(()).kept is kept
    late = ChatLimit(metric=ChatMetric.E2E, percentile=99, seconds=100.0)
    assert step.result((late,)).kept, "a limit decides by itself"
    step.is_open = False
    assert step.result(()).kept, "where so many are in flight, the server sets the pace"


def test_the_best_pace_has_the_most_tokens_of_requests_within_the_limits() -> None:
    limit = ChatLimit(metric=ChatMetric.TTFT, percentile=50, seconds=1.0)
    slow = [stream(at, 0.1, 11, intended=at - wait) for at, wait in ((3.0, 0.5), (4.0, 0.6), (5.0, 2.0), (6.0, 0.7))]
    few = [stream(at, 0.1, 11, intended=at - 0.5) for at in (3.0, 4.0, 5.0, 6.0)]
    many = chat._Step(begun=0.0, ended=9.0, streams=[*slow, *few[:1]], all=[*slow, *few[:1]], area=80.0)
    within = chat._Step(begun=0.0, ended=9.0, streams=few, all=few, area=9.0)
    assert many.result((limit,)).kept, "the median is within the limit"
    seen = many.result((limit,))
    assert seen.good_share == pytest.approx(4 / 5)
    assert seen.good_tokens_per_second == pytest.approx(0.8 * seen.output_tokens_per_second)
    assert seen.output_tokens_per_second > within.result((limit,)).output_tokens_per_second
    assert chat._best([many, within], (limit,)).result((limit,)).good_share == 1.0
    assert chat._best([many, within], ()) is many, "without limits all count"


def test_a_probe_keeps_the_text_of_its_answer() -> None:
    answer = Answer(pieces=[])
    answer.feed(HEAD + b"\r\n" + events(ROLE, piece("a "), {"choices": [{"text": "b"}]}, END, USAGE), now=1.0)
    assert answer.text() == "a b"
    assert not fed(HEAD + b"\r\n" + events(ROLE, piece("a")), step=1000).text(), "others do not"


def test_an_open_loop_ends_once_a_limit_cannot_be_kept() -> None:
    limit = ChatLimit(metric=ChatMetric.TTFT, percentile=95, seconds=1.0)
    step = chat._Step(begun=0.0)
    is_lost = chat._lost(step, (limit,), 40)
    for _ in range(2):
        step.streams.append(stream(2.0, 0.1, 3))
    assert not is_lost(), "two of forty may be late"
    step.streams.append(stream(2.0, 0.1, 3))
    assert is_lost()


def test_percentiles_of_nothing_are_infinite_and_survive_json() -> None:
    step = chat._Step(begun=0.0, ended=1.0, streams=[], all=[]).result(())
    assert step.ttft["p99"] == math.inf
    assert not step.kept


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rate": 0.0}, "rate"),
        ({"rate": math.inf}, "rate"),
        ({"seconds": 0.0}, "more than 0 s"),
        ({"concurrency": 0}, "in flight"),
        ({"concurrency": 10**6}, "in flight"),
        ({"exchanges": ()}, "lengths"),
        ({"search": True, "rate": 1.0}, "rate"),
        ({"path": "v1"}, "path"),
        ({"path": "/v1\r\nX: y"}, "path"),
        ({"shared_tokens": 1000}, "shared"),
    ],
)
def test_plans_that_make_no_sense(changes: dict[str, object], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        plan("http://127.0.0.1:1", **changes)


@pytest.mark.parametrize("address", ["127.0.0.1:80", "https://h:1", "http://h", "ftp://h:1"])
def test_addresses_that_are_none(address: str) -> None:
    with pytest.raises(BadInput, match="address"):
        generate_chat(plan(address))


def test_nobody_listens() -> None:
    with pytest.raises(BadInput, match="cannot connect"):
        measure_chat(plan("http://127.0.0.1:1"))


def test_prompts_have_their_length_and_their_shared_start(address: str) -> None:
    made = Prompts(plan(address, shared_tokens=20), "h:1")
    made.calibrate([(16, 16 * 2 + FRAME_TOKENS), (272, 272 * 2 + FRAME_TOKENS)])
    texts = [made.text(Exchange(input_tokens=85, output_tokens=1)).split() for _ in range(3)]
    assert {len(words) for words in texts} == {40}, "(85 - 5) / 2"
    for one, other in itertools.pairwise(texts):
        assert one[:10] == other[:10]
        assert one[10:] != other[10:]
