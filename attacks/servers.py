"""Servers of language models that are no such servers: what they send to the load generator of `mlcd serve`.

Each case is a server in this process and one load test of it, in a process of its own as in a trial. Beside a
traceback, a hang or too much memory, these are defects: a message with control characters, tokens that were not asked
for in a result, and a number that is not one.
"""

import math
import random
import resource
import socket
import struct
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from attacks.attack import MEMORY_MIB, Attack, Kind, Tally
from attacks.job_files import odd_characters
from mlcd.errors import BadInput, MlcdError
from mlcd.loadgen.chat import ChatLimit, ChatMetric, ChatPlan, ChatResult, Exchange, measure_chat

HANG_SECONDS = 45.0
"""A test of a second, whose answers may be silent for a second: what is longer waits for what never comes."""
AT_ONCE = 3
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
_CHUNKED = _HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
_TOKEN = b'data: {"choices":[{"index":0,"delta":{"content":"word "},"finish_reason":null}]}\n\n'
_DONE = b"data: [DONE]\n\n"
_LIES: tuple[bytes, ...] = (
    *(b"1e400", b"-1", b"NaN", b"Infinity", b'"64"', b"null", b"[]", b"{}", b"true", b"1.5", b"1e18", b"9" * 5000),
    *(b"99999999", b"100000000", b"9223372036854775808", b"0", b"-0", b"\xff\xfe", b'"\\ud800"', b"[" * 5000),
)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _usage(prompt: bytes, completion: bytes) -> bytes:
    return b'data: {"choices":[],"usage":{"prompt_tokens":%s,"completion_tokens":%s}}\n\n' % (prompt, completion)


def _good(asked: int, words: int) -> bytes:
    """An answer as it should be."""
    events = _TOKEN * asked + _usage(b"%d" % (words + 5), b"%d" % asked) + _DONE
    return _CHUNKED + _chunk(events) + b"0\r\n\r\n"


class _Conversation:
    """One connection of the server: what was asked, and what is said."""

    def __init__(self, opened: socket.socket, chance: random.Random, ended: threading.Event) -> None:
        self.opened, self.chance, self.ended = opened, chance, ended
        self.asked, self.words = 0, 0

    def ask(self) -> bool:
        """Read one request; whether there was one."""
        data = b""
        while b"\r\n\r\n" not in data:
            more = self.opened.recv(65536)
            if not more:
                return False
            data += more
        head, _, body = data.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        while len(body) < length:
            more = self.opened.recv(2**20)
            if not more:
                return False
            body += more
        self.asked = int(body.partition(b'"max_tokens": ')[2].partition(b",")[0])
        self.words = body.count(b" ") - 10
        return True

    def say(self, data: bytes) -> None:
        self.opened.sendall(data)

    def drip(self, data: bytes, seconds: float) -> None:
        """A byte at a time."""
        for at in range(len(data)):
            if self.ended.wait(seconds):
                return
            self.say(data[at : at + 1])

    def for_ever(self, data: bytes, pause: float = 0.0) -> None:
        while not self.ended.is_set():
            self.say(data)
            if pause:
                self.ended.wait(pause)

    def reset(self) -> None:
        """Close with RST in place of FIN."""
        self.opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.opened.close()


Behaviour = Callable[[_Conversation], None]


def _said(*texts: bytes) -> Behaviour:
    """One of some texts, at once."""

    def say(to: _Conversation) -> None:
        to.say(to.chance.choice(texts))

    return say


def _silent(to: _Conversation) -> None:
    to.ended.wait(HANG_SECONDS)


def _cut(to: _Conversation) -> None:
    whole = _good(to.asked, to.words)
    to.say(whole[: to.chance.randrange(len(whole))])
    if to.chance.random() < 0.5:
        to.reset()
    else:
        to.opened.close()


def _dripped(to: _Conversation) -> None:
    to.drip(_good(to.asked, to.words), to.chance.choice((0.9, 0.3, 0.05)))


def _lying_usage(to: _Conversation) -> None:
    prompt, completion = (to.chance.choice((*_LIES, b"20")) for _ in range(2))
    to.say(_CHUNKED + _chunk(_TOKEN * to.asked + _usage(prompt, completion) + _DONE) + b"0\r\n\r\n")


def _lying_calibration(to: _Conversation) -> None:
    """Words that would make next to no token, or very many."""
    prompt = to.chance.choice((b"%d" % (1000 + to.words // 100), b"%d" % (to.words * 300_000), b"%d" % (9 * 10**7)))
    to.say(_CHUNKED + _chunk(_TOKEN * to.asked + _usage(prompt, b"%d" % to.asked) + _DONE) + b"0\r\n\r\n")


def _endless(to: _Conversation) -> None:
    text = to.chance.choice(
        (
            _TOKEN, b": ping\n\n", b"\n\n", b"data: [DONE]\n\n", b'data: {"choices":[{"delta":{"role":"a"}}]}\n\n',
            b"data: x\n\n", b"event: x\r\n\r\n", b"x", _usage(b"5", b"5"), b"data: " + b"[" * 2000 + b"\n\n",
        )
    )  # fmt: skip
    data = _chunk(text * to.chance.choice((1, 500)))
    to.say(_CHUNKED)
    to.for_ever(data, to.chance.choice((0.0, 0.2)))


def _endless_head(to: _Conversation) -> None:
    to.say(b"HTTP/1.1 200 OK\r\n")
    to.for_ever(to.chance.choice((b"x: y\r\n" * 100, b"x" * 1000, b"\0" * 10)), 0.01)


def _endless_plain(to: _Conversation) -> None:
    to.say(_HEAD + to.chance.choice((b"\r\n", b"Content-Length: 999999999999999\r\n\r\n")))
    to.for_ever(to.chance.choice((_TOKEN, b"x" * 65536, b"\r", b"\r\n", b"\n", b": x\n")) * 50)


def _tiny_chunks(to: _Conversation) -> None:
    to.say(_CHUNKED + _chunk(b"data: "))
    to.for_ever(_chunk(b"x") * 10_000)


def _lying_chunks(to: _Conversation) -> None:
    body = _TOKEN * to.asked
    size = to.chance.choice(
        (
            b"-5", b"+5", b"0x5", b" 5", b"5 ", b"ffffffffffffffff", b"1000000", b"", b"zz", b"5" * 300, b"0005",
            b"5_0", b"5;" + b"x" * 3000, b"%x" % (len(body) // 2), b"%x" % (len(body) * 2), b"\xd9\xa3",
        )
    )  # fmt: skip
    to.say(_CHUNKED + size + b"\r\n" + body + b"\r\n0\r\n\r\n")
    if to.chance.random() < 0.5:
        to.opened.close()


def _lying_length(to: _Conversation) -> None:
    body = _TOKEN * to.asked + _DONE
    length = to.chance.choice(
        (b"-1", b"+5", b"1e3", b"0", b"%d" % (len(body) // 2), b"%d" % (len(body) * 2), b"9" * 400, b"\xb2", b"5, 5")
    )
    to.say(_HEAD + b"Content-Length: " + length + b"\r\n\r\n" + body)
    if to.chance.random() < 0.5:
        to.opened.close()


def _redirect(to: _Conversation) -> None:
    place = to.chance.choice(
        (b"file:///etc/passwd", b"http://127.0.0.1:1/", b"//evil", b"\x1b[2J", b"http://[::1", b"")
    )
    status = to.chance.choice((b"301", b"302", b"303", b"307", b"308"))
    to.say(b"HTTP/1.1 " + status + b" Moved\r\nLocation: " + place + b"\r\nContent-Length: 0\r\n\r\n")


def _compressed(to: _Conversation) -> None:
    bomb = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff" + to.chance.randbytes(100_000)
    to.say(_HEAD + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb) + bomb)


def _statuses(to: _Conversation) -> None:
    status = to.chance.choice((b"100", b"101", b"103", b"204", b"304", b"400", b"429", b"500", b"503", b"000", b"999"))
    body = to.chance.choice(
        (b"", b"no \x1b[31mway\x07", b"\xff\xfe" * 50, b"x" * 10**6, b"line\nline\r\x9b2J", b"\xe2\x80\xae")
    )
    to.say(b"HTTP/1.1 " + status + b" What\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


def _errors(to: _Conversation) -> None:
    text = to.chance.choice(
        (b'{"error":"\x1b[31m"}', b'{"error":{"message":"' + b"x" * 9000 + b'"}}', b'{"error":1e999}', b'{ "error" :')
    )
    to.say(_CHUNKED + _chunk(b"data: " + text + b"\n\n") + b"0\r\n\r\n")


def _garbage(to: _Conversation) -> None:
    to.say(
        to.chance.choice((b"", _HEAD + b"\r\n", _CHUNKED)) + to.chance.randbytes(to.chance.choice((1, 300, 200_000)))
    )
    if to.chance.random() < 0.7:
        to.opened.close()


def _twice(to: _Conversation) -> None:
    to.say(_good(to.asked, to.words) * to.chance.randint(2, 40))


def _too_many(to: _Conversation) -> None:
    """More tokens than were asked for, and all at once."""
    to.say(_CHUNKED + _chunk(_TOKEN * to.asked * 4 + _DONE) + b"0\r\n\r\n")


def _large(to: _Conversation) -> None:
    """Events near and over what is read."""
    size = to.chance.choice((1000, 200_000, 260_000, 300_000, 5_000_000))
    text = b'data: {"choices":[{"delta":{"content":"' + b"\\" * size + b'"}}]}\n\n'
    to.say(_CHUNKED)
    for at in range(0, len(text), 2**20):
        to.say(_chunk(text[at : at + 2**20]))
    to.say(_chunk(_DONE) + b"0\r\n\r\n")


def _mutated(to: _Conversation) -> None:
    """A good answer with some bytes changed, left out or doubled."""
    data = bytearray(_good(to.asked, to.words))
    for _ in range(to.chance.randint(1, 6)):
        at = to.chance.randrange(len(data))
        match to.chance.randrange(3):
            case 0:
                data[at] = to.chance.randrange(256)
            case 1:
                del data[at : at + to.chance.randint(1, 50)]
            case _:
                data[at:at] = data[at : at + to.chance.randint(1, 50)]
    to.say(bytes(data))
    if to.chance.random() < 0.5:
        to.opened.close()


def _answered(to: _Conversation) -> None:
    to.say(_good(to.asked, to.words))


BEHAVIOURS: dict[str, Behaviour] = {
    "silent": _silent, "closed": lambda to: to.opened.close(), "reset": _Conversation.reset, "cut": _cut,
    "dripped": _dripped, "lying usage": _lying_usage, "lying calibration": _lying_calibration, "endless": _endless,
    "endless head": _endless_head, "endless body": _endless_plain, "tiny chunks": _tiny_chunks,
    "lying chunks": _lying_chunks, "lying length": _lying_length, "redirect": _redirect, "compressed": _compressed,
    "status": _statuses, "error": _errors, "garbage": _garbage, "twice": _twice, "too many": _too_many,
    "large": _large, "mutated": _mutated,
    "not HTTP": _said(
        b"220 smtp ESMTP\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"HTTP/0.9 200\r\n\r\n", b"\r\n" * 999
    ),
    "no token": _said(
        _CHUNKED + b"0\r\n\r\n", _CHUNKED + _chunk(_DONE) + b"0\r\n\r\n", _HEAD + b"Content-Length: 0\r\n\r\n"
    ),
}  # fmt: skip
_WITHOUT_READING = "without reading"
_NAMES = (*BEHAVIOURS, _WITHOUT_READING, "mixed")


class _Server:
    """Answers `spared` requests well, then each as `name` says; "mixed": each in another way."""

    def __init__(self, name: str, chance: random.Random, spared: int) -> None:
        self.name, self.chance, self.spared = name, chance, spared
        self.ended = threading.Event()
        self.lock = threading.Lock()
        self.seen = 0
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def close(self) -> None:
        self.ended.set()
        self.listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                opened, _ = self.listener.accept()
                threading.Thread(target=self._talk, args=(opened,), daemon=True).start()

    def _talk(self, opened: socket.socket) -> None:
        with suppress(OSError, ValueError), opened:
            opened.settimeout(HANG_SECONDS)
            with self.lock:
                chance = random.Random(self.chance.random())
            talk = _Conversation(opened, chance, self.ended)
            while not self.ended.is_set():
                with self.lock:
                    is_hostile = self.seen >= self.spared
                if is_hostile and self.name == _WITHOUT_READING:
                    self.ended.wait(chance.choice((0.05, 0.5, 3.0)))
                    talk.reset()
                    return
                if not talk.ask():
                    return
                with self.lock:
                    self.seen += 1
                name = self.name if is_hostile else ""
                if name == "mixed":
                    name = chance.choice((*BEHAVIOURS, "", ""))
                BEHAVIOURS.get(name, _answered)(talk)


def _plan(chance: random.Random, address: str) -> ChatPlan:
    """A short test of a random kind; one in six with prompts that fill the buffers of a connection."""
    tokens = chance.choice((1, 16, 128, 1000, 1000, 1_500_000))
    plan = ChatPlan(
        address=address,
        model="m",
        exchanges=(Exchange(input_tokens=tokens, output_tokens=chance.choice((1, 4, 16))),),
        seconds=1.0,
        timeout_seconds=1.0,
        limits=(ChatLimit(metric=ChatMetric.TTFT, percentile=95, seconds=0.5),) if chance.random() < 0.5 else (),
        seed=chance.randrange(100),
    )
    match chance.randrange(4):
        case 0:
            return replace(plan, rate=20.0)
        case 1:
            arrivals = sorted(chance.uniform(0.0, 1.0) for _ in range(10))
            return replace(plan, exchanges=tuple(replace(plan.exchanges[0], at_seconds=at) for at in arrivals))
        case _:
            return replace(plan, concurrency=4, search=chance.random() < 0.7)


def _case(case: int, seed: int) -> tuple[str, str, list[tuple[Kind, str]]]:
    """What was tried, how it ended, and what is wrong with that."""
    chance = random.Random(f"servers|{seed}|{case}")
    name = chance.choice(_NAMES)
    server = _Server(name, chance, spared=chance.choice((0, 0, 1, 2, 2, 5)))
    plan = _plan(chance, server.address)
    what = f"{name} after {server.spared} good answers, prompts of {plan.exchanges[0].input_tokens:,} tokens"
    wrong: list[tuple[Kind, str]] = []
    began = time.monotonic()
    try:
        result = measure_chat(plan)
        ending = "a result"
        wrong += [(Kind.WRONG, text) for text in _wrong(result, plan)]
    except BadInput as error:
        ending, text = "told as no such server", str(error)
    except MlcdError as error:
        ending, text = "failed", str(error)
        wrong.append((Kind.TRACEBACK if "with code" in text else Kind.HANG, text[:300]))
    else:
        text = result.first_error
    finally:
        server.close()
    if odd := odd_characters(text):
        wrong.append((Kind.WRONG, f"says {odd!r}"))
    if (seconds := time.monotonic() - began) > HANG_SECONDS:
        wrong.append((Kind.HANG, f"took {seconds:.0f} s"))
    return what, ending, wrong


def _wrong(result: ChatResult, plan: ChatPlan) -> list[str]:
    """What cannot be in the result of a plan."""
    found = []
    for step in result.steps:
        numbers = (step.concurrency, step.requests_per_second, step.good_per_second, step.output_tokens_per_second)
        if not all(math.isfinite(number) and number >= 0 for number in numbers):
            found.append(f"{numbers} in a result")
    asked = plan.exchanges[0].output_tokens
    if not 0 <= result.output_tokens <= 4 * asked + 64:
        found.append(f"{result.output_tokens:g} tokens an answer, and {asked} were asked for")
    return found


def _attack(count: int, seed: int, folder: Path) -> Tally:  # noqa: ARG001 - nothing is kept on disk
    tally = Tally()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for case, (what, ending, wrong) in enumerate(pool.map(lambda case: _case(case, seed), range(count))):
            tally.count(ending)
            for kind, text in wrong:
                tally.find(kind, case, f"{what}: {text}")
    tally.peak_mib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    if tally.peak_mib > MEMORY_MIB:
        tally.find(Kind.MEMORY, -1, f"a load test took {tally.peak_mib:,.0f} MiB, over {MEMORY_MIB:,}")
    return tally


ATTACKS = (Attack(name="servers", what="hostile servers of language models under load tests", count=150, run=_attack),)
