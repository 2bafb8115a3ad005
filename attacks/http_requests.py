"""Hostile HTTP requests, one a case: what is sent, in which pieces, and which answers are right."""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

MODEL = "m"
REQUEST_BYTES = 4 * 2**20
HEADER_SECONDS, BODY_SECONDS = 2.0, 4.0
CLOSED = 0
"""In place of a status: the server closed the connection without an answer."""
REFUSED = frozenset({400})
ANY = frozenset({CLOSED, *range(200, 500), 503})


class End(Enum):
    """What the client does once it has sent all."""

    READ = auto()
    CLOSE = auto()
    RESET = auto()
    HOLD = auto()
    """Reads nothing and keeps the connection until the server closes it."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """(bytes, seconds to wait after them), how the client ends, and the answers that are right.

    clients  connections that do the same at once
    answers  that are awaited on each: more than one where requests are pipelined
    """

    kind: str
    pieces: list[tuple[bytes, float]]
    allowed: frozenset[int]
    end: End = End.READ
    clients: int = 1
    answers: int = 1


def _tensor(**change: object) -> dict[str, object]:
    return {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1.5, -2, 0.25, 3], **change}


def body_of(**change: object) -> bytes:
    """The JSON of a good request, with changes of its tensor."""
    return json.dumps({"inputs": [_tensor(**change)]}).encode()


def raw_body(data: str, shape: str = "[1, 4]", datatype: str = '"FP32"') -> bytes:
    """The same with any text as data."""
    return f'{{"inputs": [{{"name": "x", "datatype": {datatype}, "shape": {shape}, "data": {data}}}]}}'.encode()


def post(body: bytes, *headers: str, path: str = f"/v2/models/{MODEL}/infer", length: str | None = None) -> bytes:
    """A request with this body."""
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {length or len(body)}", *headers]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def chunked(body: bytes, size: int) -> bytes:
    """A request whose body comes in chunks."""
    head = f"POST /v2/models/{MODEL}/infer HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    return head + b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def _get(path: str = "/v2", *headers: str, method: str = "GET", version: str = "1.1") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/{version}", "Host: localhost", *headers, "", ""]).encode("latin-1")


def _one(kind: str, data: bytes, *allowed: int) -> Case:
    return Case(kind=kind, pieces=[(data, 0.0)], allowed=frozenset(allowed or REFUSED))


def _good(rng: random.Random) -> Case:
    nested = rng.random() < 0.5
    body = raw_body("[ [1,2,\n3 , 4e0] ]") if nested else body_of()
    return _one("good", chunked(body, rng.randint(9, 60)) if rng.random() < 0.3 else post(body), 200)


def _numbers(rng: random.Random) -> Case:
    bad = ["NaN", "Infinity", "-Infinity", "1e999", "1e40", "-3.5e38", "true", "false", "null", '"1"', "{}", "[]"]
    bad += [
        "1.",
        ".5",
        "+1",
        "01",
        "0x1",
        "1e",
        "- 1",
        "1 2",
        "",
        "[1]",
        "1]",
        "[1",
        "9" * 400,
        "9" * 5000,
        "1_0",
        "\u0661",
    ]
    return _one("bad number", post(raw_body(f"[1, {rng.choice(bad)}, 2, 3]")))


def _nesting(rng: random.Random) -> Case:
    texts = [
        "[[1,2],[3,]4]",
        "[[1,2,3,4]",
        "[1,2,3,4]]",
        "[[1,2],[3,4]]",
        "[[[1,2,3,4]]]",
        "[[1,2,3],[4]]",
        "[[],[1,2,3,4]]",
    ]
    texts += [
        "[" * 40 + "1" + "]" * 40,
        "[" * 100_000,
        "[1,2,3,4",
        "[1,,3,4]",
        "[,1,2,3,4]",
        "[1,2,3,4,]",
        "[]",
        "[[]]",
    ]
    texts += ["[" + "[],".join(["1"] * 5) + "]", "[1" + " " * rng.choice((10, 20_000, 300_000)) + "2,3,4,5]"]
    return _one("bad nesting", post(raw_body(rng.choice(texts))))


def _shapes(rng: random.Random) -> Case:
    shapes = [
        "[1, 3]",
        "[4]",
        "[2, 2, 1]",
        "[-1, 4]",
        "[1, -4]",
        "[1.0, 4]",
        "[true, 4]",
        '["1", 4]',
        "null",
        "4",
        "[]",
    ]
    shapes += [
        "[0, 4]",
        "[1, 9223372036854775808]",
        f"[1, {'9' * 30}]",
        f"[1, {'9' * 5000}]",
        "[99999999999, 99999999999]",
    ]
    shapes += ["[1000000000, 0]", "[[1, 4]]", "{}", "[1, 4, 1]"]
    return _one("bad shape", post(raw_body("[1,2,3,4]", rng.choice(shapes))))


def _documents(rng: random.Random) -> Case:
    good = body_of().decode()
    texts = [
        "",
        "{",
        "[]",
        "7",
        "null",
        '"x"',
        "{}",
        '{"inputs": []}',
        '{"inputs": [7]}',
        '{"inputs": {"x": 1}}',
        "\ufeff" + good,
    ]
    texts += [
        good[:-1],
        good + "}",
        good + " x",
        good.replace("1.5", "1.5 //"),
        good.replace('"x"', '"x", "name": "x"'),
    ]
    texts += [
        good.replace('"x"', "'x'"),
        good.replace("FP32", "FP64"),
        good.replace("FP32", "\\ud800"),
        good.replace('"x"', '"\\udfff"'),
    ]
    texts += [
        good.replace('"FP32"', '["\\ud800"]'),
        f'{{"id": "\\ud83d", {good[1:]}',
        f'{{"id": {"[" * 50}{"]" * 50}, {good[1:]}',
    ]
    texts += [
        '{"a":' * 3000 + "1" + "}" * 3000,
        '{"id": "' + "a" * 400_000 + '"}',
        " " * 400_000 + good,
        good.replace("data", "d\\u0061ta2"),
    ]
    texts += [
        '{"inputs": [' + '{"data": [1]},' * 5000 + "{}]}",
        '{"x": [' + "[]," * 60_000 + "1]}",
        good.replace("[1.5", '["data": [1.5'),
    ]
    found = rng.choice(texts).encode()
    return _one("bad document", post(found if rng.random() < 0.9 else found + b"\xff\xfe"))


def _binary(rng: random.Random) -> Case:
    size = rng.choice(["16", "15", "17", "-1", "1e3", "null", '"16"', "9" * 30, "9" * 5000])
    text = raw_body("null").decode().replace('"data": null', f'"parameters": {{"binary_data_size": {size}}}').encode()
    tail = rng.randbytes(rng.choice((0, 15, 17, 16)))
    right = size == "16" and len(tail) == 16
    lengths = [str(len(text))] if right else [str(len(text)), "0", "-1", "9" * 4301, "9" * 15, "²", "1e2", "", "+5"]
    given = rng.choice(lengths)
    allowed = {200, 400} if right else {400}  # NaN in the answer cannot be told in JSON
    return _one("binary", post(text + tail, f"Inference-Header-Content-Length: {given}"), *allowed)


def _framing(rng: random.Random) -> Case:
    good = body_of()
    head = f"POST /v2/models/{MODEL}/infer HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    texts = [
        post(good, "Transfer-Encoding: chunked"),
        post(good, "Content-Length: 5"),
        post(good, length="9" * 5000),
        post(good, length="-1"),
        post(good, length="+5"),
        post(good, length="5, 5"),
        post(good, length="0x10"),
        head + b"zz\r\n{}\r\n0\r\n\r\n",
        head + b"ffffffffffffffffff\r\n",
        head + b"-1\r\n",
        head + b"5\r\n{}{}{}{}\r\n0\r\n\r\n",
        head.replace(b"chunked", b"chunked, identity") + b"0\r\n\r\n",
        head.replace(b"chunked", b"\x0bchunked") + b"0\r\n\r\n",
        head + b"1;" + b"x" * 400_000 + b"\r\n",
        head + b"1\r\nx\r\n" * 60_000,
        head + b"0\r\n" + b"T: v\r\n" * 500,
    ]
    return _one("framing", rng.choice(texts), 400, 431)


def _headers(rng: random.Random) -> Case:
    which = rng.randrange(5)
    if which == 0:
        return _one("many headers", _get("/v2", *[f"X-{i}: v" for i in range(rng.choice((200, 5000)))]), 431)
    if which == 1:
        return _one("long header", _get("/v2", "X: " + "v" * rng.choice((20_000, 500_000))), 431)
    if which == 2:
        return _one("long target", _get("/v2/" + "a" * rng.choice((20_000, 300_000))), 431)
    if which == 3:
        return _one("long header name", _get("/v2", "X" * 100_000 + ": v"), 431)
    return _one("long method", b"A" * 100_000 + b" /v2 HTTP/1.1\r\n\r\n", 400, 431)


def _targets(rng: random.Random) -> Case:
    right = [
        _get("http://localhost/v2"),
        _get("/v2", version="1.0"),
        _get("/v2?a=%00"),
        _get("/v2", "Connection: close"),
    ]
    right += [_get("/v2", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==")]
    right += [_get("/v2", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAARAAAAA")]
    if rng.random() < 0.3:
        return _one("unusual target", rng.choice(right), 200)
    paths = [
        "/",
        "//",
        "/v2/",
        "/v2/models",
        "/v2/models/../../etc/passwd",
        "/v2/models/%2e%2e%2fm",
        "/v2/models/other/infer",
    ]
    paths += [
        "/v2/models/%00",
        "/v2/models/m%2f..%2f",
        "/v2/models/%ed%a0%80",
        "/v2/models/m/versions/2",
        "/v2/models/" + "x" * 9000,
    ]
    paths += [
        "/../../etc/passwd",
        "/metrics/",
        "/static/..%5c",
        "/v2/models/m/infer/",
        "/%",
        "/%zz",
        "/v2/models/m\tm",
        "*",
        "a:80",
    ]
    paths += ["http://", "http://[", "/v2\\models", "/é", "/\x7f", "/a\x00b", "?", "#", ""]
    return _one("target", _get(rng.choice(paths)), 400, 404, 405)


def _methods(rng: random.Random) -> Case:
    method = rng.choice(
        ["PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "CONNECT", "PRI", "FOO", "get", "POST", "PROPFIND"]
    )
    return _one("method", _get("/v2", "Content-Length: 0", method=method), 400, 404, 405)


def _not_http(rng: random.Random) -> Case:
    texts = [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + rng.randbytes(200),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /v2\r\n\r\n",
    ]
    texts += [
        b"\0" * 1000,
        rng.randbytes(rng.randint(1, 5000)) + b"\r\n\r\n\0",
        b"GET /v2 HTTP/9.9\r\n\r\n",
        b"SSH-2.0-x\r\n",
    ]
    texts += [
        b"GET /v2 HTTP/1.1\nHost: localhost\n\n\n\0",
        b"GET /v2 HTTP/1.1\r\nHost : localhost\r\n\r\n",
        b"GET /v2 HTTP/1.1\r\nA: \0\r\n\r\n",
    ]
    texts += [b"GET /v2 HTTP/1.1\r\nA: b\r\n c\r\n\r\n", b"\r\n" * 20_000]
    return _one("not HTTP", rng.choice(texts), 400, 431, 408, CLOSED)


def _origins(rng: random.Random) -> Case:
    texts = [
        "Origin: http://evil.example",
        "Origin: null",
        "Origin: http://localhost.evil.example",
        "Origin: http://127.0.0.1@evil.example",
    ]
    if rng.random() < 0.5:
        return _one("origin", post(body_of(), rng.choice(texts)), 403)
    host = rng.choice(
        [
            "evil.example",
            "evil.example:80",
            "[",
            "[::2]",
            "localhost.evil.example",
            "\xff",
            "127.0.0.1.evil.example",
            "::::",
        ]
    )
    return _one("host", post(body_of()).replace(b"Host: localhost", b"Host: " + host.encode("latin-1")), 400, 403)


def _upgrades(rng: random.Random) -> Case:
    smuggled = post(
        _get("/v2/models/other"), "Connection: Upgrade", f"Upgrade: {rng.choice(('h2c', 'websocket', 'x'))}"
    )
    at = smuggled.index(b"\r\n\r\n") + 4
    return Case(
        kind="upgrade with a body",
        pieces=[(smuggled[:at], 0.02), (smuggled[at:], 0.0)],
        allowed=frozenset({400, CLOSED}),
        answers=2,
    )


def _expect(rng: random.Random) -> Case:
    if rng.random() < 0.3:
        return _one("expect too much", post(b"", "Expect: 100-continue", length=str(REQUEST_BYTES * 2)), 413)
    request = post(body_of(), "Expect: 100-continue")
    at = request.index(b"\r\n\r\n") + 4
    return Case(kind="expect", pieces=[(request[:at], 0.01), (request[at:], 0.0)], allowed=frozenset({200}))


def _pipelined(rng: random.Random) -> Case:
    count = rng.choice((2, 8, 15))
    if rng.random() < 0.5:
        return Case(kind="pipelined", pieces=[(post(body_of()) * count, 0.0)], allowed=frozenset({200}), answers=count)
    data = _get() * rng.choice((500, 5000))
    return Case(kind="pipelined too far", pieces=[(data, 0.0)], allowed=frozenset({200, 400, CLOSED}), answers=20)


def _slow(rng: random.Random) -> Case:
    request = post(body_of())
    at = request.index(b"\r\n\r\n") + 4
    if rng.random() < 0.5:  # a byte at a time, until the server has enough of it
        pieces = [(request[i : i + 1], HEADER_SECONDS / 4) for i in range(12)]
        return Case(kind="slow headers", pieces=pieces, allowed=frozenset({408, CLOSED}))
    pieces = [(request[:at], 0.0), *((request[i : i + 1], BODY_SECONDS / 4) for i in range(at, at + 12))]
    return Case(kind="slow body", pieces=pieces, allowed=frozenset({408, CLOSED}))


def _gone(rng: random.Random) -> Case:
    request = post(body_of()) if rng.random() < 0.7 else post(body_of()[:-1] + b" " * 100_000 + b"}")
    cut = rng.randint(0, len(request))
    end = rng.choice((End.CLOSE, End.RESET))
    return Case(kind="gone", pieces=[(request[:cut], rng.choice((0.0, 0.0, 0.003)))], allowed=ANY, end=end)


def _half_open(rng: random.Random) -> Case:
    start = rng.choice(
        (
            b"",
            b"GET",
            b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n",
            b"POST /v2/models/m/infer HTTP/1.1\r\nContent-Length: 9\r\n\r\n",
        )
    )
    return Case(
        kind="half-open",
        pieces=[(start, 0.0)],
        allowed=frozenset({408, 503, CLOSED}),
        end=End.HOLD,
        clients=rng.choice((1, 20, 90)),
    )


def _large(rng: random.Random) -> Case:
    which = rng.randrange(6)
    count = rng.choice((20_000, 60_000, 150_000))
    text = ",".join([repr(rng.random())] * count)
    if which == 0:
        return _one("large", post(raw_body(f"[{text}]", f"[1, {count}]")), 200, 503)
    if which == 1:
        return _one("large, wrong shape", post(raw_body(f"[{text}]")), 400, 503)
    if which == 2:
        return _one("large, bad end", post(raw_body(f"[{text},NaN]", f"[1, {count + 1}]")), 400, 503)
    if which == 3:
        body = b'{"x":[' + rng.choice((b'"a",', b"[],", b"{},", b"1,")) * 400_000 + b"1]}"
        return _one("large, no tensor", post(body), 400, 503)
    if which == 4:
        head = post(b"", length=str(REQUEST_BYTES + 1))
        return _one("too large", head + b"x" * rng.choice((0, 100_000)), 413)
    declared = post(b"{", length=str(REQUEST_BYTES))
    return Case(
        kind="large, never sent",
        pieces=[(declared, 0.0)],
        allowed=frozenset({408, 503, CLOSED}),
        clients=rng.choice((1, 12)),
    )


def _never_read(rng: random.Random) -> Case:
    count = rng.choice((1000, 150_000))
    request = post(raw_body("[" + ",".join(["0.123456789"] * count) + "]", f"[1, {count}]"))
    return Case(kind="answer not read", pieces=[(request, 0.0)], allowed=ANY, end=End.HOLD)


def _encoded(rng: random.Random) -> Case:
    return _one(
        "encoded", post(body_of(), f"Content-Encoding: {rng.choice(('gzip', 'br', 'deflate, gzip', 'x'))}"), 415
    )


def _mutated(rng: random.Random) -> Case:
    request = bytearray(post(body_of(), "Content-Type: application/json", "Accept: */*"))
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(request))
        which = rng.randrange(3)
        if which == 0:
            request[at] = rng.randrange(256)
        elif which == 1:
            del request[at : at + rng.randint(1, 9)]
        else:
            request[at:at] = rng.choice((b"\r\n", b"\0", b"9" * 30, b'"', b"[", b"\xff", b"}", b"{", b"-", b"e"))
    return Case(kind="mutated", pieces=[(bytes(request), 0.0)], allowed=ANY)


_KINDS: tuple[tuple[Callable[[random.Random], Case], int], ...] = (
    (_good, 60),
    (_numbers, 100),
    (_nesting, 60),
    (_shapes, 80),
    (_documents, 80),
    (_binary, 60),
    (_framing, 60),
    (_headers, 40),
    (_targets, 80),
    (_methods, 30),
    (_not_http, 60),
    (_origins, 40),
    (_upgrades, 15),
    (_expect, 20),
    (_pipelined, 15),
    (_slow, 8),
    (_gone, 80),
    (_half_open, 3),
    (_large, 10),
    (_never_read, 2),
    (_encoded, 10),
    (_mutated, 200),
)


def case_of(seed: int, number: int) -> Case:
    """Case `number` of an attack with this seed."""
    rng = random.Random(f"http {seed} {number}")
    (make,) = rng.choices([kind for kind, _ in _KINDS], [weight for _, weight in _KINDS])
    return make(rng)
