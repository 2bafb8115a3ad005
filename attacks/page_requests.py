"""Hostile requests to the live page, one a case: what is sent, in which pieces, and which answers are right."""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import quote

from tests.ui_page import JOB

from attacks.http_requests import CLOSED, Case, End

REFUSED = frozenset({401, 403})
WRONG = frozenset({CLOSED, *range(400, 500), 503})
ANY = frozenset({CLOSED, *range(200, 500), 503})
HEADER_SECONDS, BODY_SECONDS, IDLE_SECONDS = 2.0, 4.0, 3.0


@dataclass(frozen=True, kw_only=True)
class Target:
    """The server that is attacked: its port and token, and the runs of its home."""

    port: int
    token: str
    runs: tuple[str, ...]

    @property
    def host(self) -> str:
        """What Host should be."""
        return f"127.0.0.1:{self.port}"

    def head(
        self, path: str, *headers: str, method: str = "GET", host: str | None = None, token: str | None = None
    ) -> str:
        """The first lines of a request; `token` "" sends none."""
        given = self.token if token is None else token
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self.host if host is None else host}"]
        lines += [f"Authorization: Bearer {given}"] if given else []
        return "\r\n".join([*lines, *headers, "", ""])

    def get(self, path: str, *headers: str, **more: str) -> bytes:
        """A request without a body."""
        return self.head(path, *headers, **more).encode("latin-1", "replace")

    def post(self, path: str, body: bytes, *headers: str, length: str | None = None) -> bytes:
        """A request that may change something."""
        own = ("X-Mlcd-Ui: 1", "Content-Type: application/json", f"Content-Length: {length or len(body)}")
        return self.head(path, *own, *headers, method="POST").encode("latin-1", "replace") + body


def _one(kind: str, data: bytes, allowed: frozenset[int] = ANY, **more: object) -> Case:
    return Case(kind=kind, pieces=[(data, 0.0)], allowed=allowed, **more)  # type: ignore[arg-type]


_PAGES = ("/", "/new", "/bench", "/catalog", "/api/runs", "/api/catalog", "/api/bench", "/api/templates")
_ASSETS = ("/api/openapi.json", "/static/ui.css", "/static/run.js", "/static/pictures.css")
_OF_RUN = (
    "/runs/{}", "/runs/{}/live", "/runs/{}/what-if", "/runs/{}/report", "/runs/{}/tables/speed", "/api/runs/{}",
    "/api/runs/{}/now", "/api/runs/{}/logs", "/api/runs/{}/logs/0", "/api/runs/{}/logs/1", "/api/runs/{}/logs/2",
    "/api/runs/{}/logs/0?offset=100000", "/api/runs/{}/what-if", "/api/runs/{}/why-not", "/runs/{}/tables/timeline",
    "/api/runs/{}/pictures/speed",
)  # fmt: skip
_TRAVERSALS = (
    "..", "../..", "..%2f..%2f..%2fetc%2fpasswd", "%2e%2e/%2e%2e/%2e%2e/etc/passwd", "....//....//etc/passwd", "%00",
    "x%00.css", "..%5c..%5cetc", "%c0%ae%c0%ae/", "%ff%fe", "/etc/passwd", "//etc/passwd", "file:///etc/passwd", "~",
    "%2e%2e%2fui-token", "..%2fui-token", "..%252fui-token", "%25", "%", "%zz", "a" * 300, "a" * 9_000, "%f0%9f%98%80",
    "%1b%5b31m", "%0d%0aX-Injected:1", "%e2%80%ae", "'", '"', "<svg%20onload=x>", "%3Cscript%3E", "{{7*7}}", "*", "-",
    ".lock", "..%2fmlcd.sqlite3", "con", "%5c%5chost%5cshare", "1e9", "-1", "0x10",
)  # fmt: skip


def _good(chance: random.Random, at: Target) -> Case:
    run = at.runs[0] if chance.random() < 0.5 else chance.choice(at.runs)
    paths = [*_PAGES, *_ASSETS, *(path.format(run) for path in _OF_RUN)]
    return _one("good", at.get(chance.choice(paths)), frozenset({200, 400, 404, 503}))


def _hosts(chance: random.Random, at: Target) -> Case:
    port = at.port
    hosts = (
        "", "evil.example", f"evil.example:{port}", f"127.0.0.1.evil.example:{port}", f"localhost.evil.example:{port}",
        f"127.0.0.1:{port + 1}", "127.0.0.1", f"127.0.0.1@evil.example:{port}", f"evil.example:{port}@127.0.0.1",
        f"[::ffff:8.8.8.8]:{port}", f"0x7f000001.evil:{port}", f"127.0.0.1:{port}.evil.example", f"a b:{port}",
        f"127.0.0.1:{port}, evil.example", f"\xff:{port}", "x" * 5_000, f"8.8.8.8:{port}", f"[:{port}", f"]:{port}",
    )  # fmt: skip
    wrong = at.get(chance.choice(("/", "/api/runs", "/static/ui.css")), host=chance.choice(hosts))
    return _one("host", wrong, frozenset({CLOSED, 400, 403, 431}))


def _twice(chance: random.Random, at: Target) -> Case:
    extra = chance.choice(("Host: evil.example", f"Host: {at.host}", "Origin: http://evil.example\r\nOrigin: null"))
    return _one("header twice", at.get("/api/runs", extra), frozenset({CLOSED, 400, 403}))


def _origins(chance: random.Random, at: Target) -> Case:
    headers = (
        "Origin: http://evil.example", "Origin: null", f"Origin: https://{at.host}", f"Origin: http://{at.host}/",
        f"Origin: http://{at.host}.evil.example", "Origin: ", "Origin: file://",
        f"Origin: http://localhost:{at.port + 1}",
        "Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site", "Sec-Fetch-Site: evil",
        "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: cors",
    )  # fmt: skip
    header = chance.choice(headers)
    if chance.random() < 0.5:
        return _one("origin", at.get("/api/runs", header), REFUSED)
    return _one("origin of a change", at.post("/api/check", b'{"job": "x"}', header), REFUSED)


def _tokens(chance: random.Random, at: Target) -> Case:
    path = chance.choice(
        ("/", "/api/runs", f"/api/runs/{at.runs[0]}", "/static/ui.js", "/nowhere", "/api/openapi.json")
    )
    wrong = chance.choice(
        ("0" * 48, at.token[:-1], at.token + "0", at.token.upper() + "x", "\xff" * 48, "x" * 8_000, "é")
    )
    ways: tuple[Callable[[], bytes], ...] = (
        lambda: at.get(path, token=""),
        lambda: at.get(path, token=wrong),
        lambda: at.get(f"{path}?token={quote(wrong)[:4_000]}", token=""),
        lambda: at.get(path, f"Cookie: mlcd-ui-{at.port}={wrong[:4_000]}", token=""),
        lambda: at.get(path, f"Cookie: mlcd-ui={at.token}", token=""),
        lambda: at.get(path, f"Cookie: mlcd-ui-{at.port + 1}={at.token}", token=""),
        lambda: at.get(path, "Cookie: " + ";" * 3_000 + "\x01=\x02", token=""),
        lambda: at.get(path, f"Authorization: Basic {at.token}", token=""),
        lambda: at.get(path, "Authorization: Bearer", token=""),
        lambda: at.get(f"{path}?{'&' * 60}token={at.token}", token=""),
        lambda: at.get(f"{path}#token={at.token}", token=""),
    )
    return _one("token", chance.choice(ways)(), frozenset({CLOSED, 400, 401, 431}))


def _redirects(chance: random.Random, at: Target) -> Case:
    paths = (
        "//evil.example/",
        "/\\evil.example",
        "/%2f%2fevil.example",
        "///evil.example",
        "/%0d%0aSet-Cookie:x=1",
        "/%5cevil",
    )
    ask = at.get(f"{chance.choice(paths)}?token={at.token}&x=%0d%0aX-Injected:1", token="")
    return _one("redirect", ask, frozenset({CLOSED, 303, 400, 404}))


def _changes(chance: random.Random, at: Target) -> Case:
    """Without the header of the page, or as what a form can send."""
    path = chance.choice(("/api/runs", "/api/check", f"/api/runs/{at.runs[0]}/stop", f"/api/runs/{at.runs[0]}/resume"))
    body = json.dumps({"job": json.dumps(JOB)}).encode()
    kind = chance.choice(("application/x-www-form-urlencoded", "text/plain", "multipart/form-data; boundary=x", ""))
    lines = (f"Content-Length: {len(body)}", f"Content-Type: {kind}")
    return _one("form", at.head(path, *lines, method="POST").encode() + body, REFUSED)


def _bodies(chance: random.Random, at: Target) -> Case:
    path = chance.choice(("/api/check", "/api/check", "/api/runs", "/api/dry-run"))
    bad = chance.choice(
        (
            b"", b"{", b"[]", b"null", b"7", b'"x"', b"{}", b'{"job": 1}', b'{"job": null}', b'{"job": ["x"]}',
            b'{"job": "x", "seed": -1}', b'{"job": "x", "seed": 1e99}', b'{"job": "x", "seed": true}',
            b'{"job": "x", "seed": NaN}', b'{"job": "x", "x": 1}', b'{"job": "\\ud800"}', b'{"job": "\xff"}',
            b'{"job": "' + b"a" * 262_200 + b'"}', b'{"job": "' + b"a: &a [*a]\\n" * 5_000 + b'"}', b"[" * 200_000,
            b'{"a":' * 100_000, b'{"job": "x", "seed": ' + b"9" * 5_000 + b"}", b"\xef\xbb\xbf{}", b"\0" * 1_000,
            b'{"job": "x"' + b" " * 500_000 + b"}", b'{"job": "a: 1", "job": "b: 2"}',
            b'{"job": "!!python/object:x {}"}',
            b'{"job": "a: ' + b"[" * 60_000 + b'"}', b'{"job": "' + b"x: 1\\n" * 40_000 + b'"}',
        )
    )  # fmt: skip
    # `check` answers 200 with what is wrong; the others refuse it. Nothing is started.
    return _one("bad body", at.post(path, bad), frozenset({200, 400, 413, 415} if path == "/api/check" else {400, 413}))


def _large(chance: random.Random, at: Target) -> Case:
    size = chance.choice((1_048_577, 3_000_000, 20_000_000))
    way = chance.choice(("declared", "sent", "chunked", "lied"))
    if way == "declared":
        return _one("large body", at.post("/api/check", b"x", length=str(size)), frozenset({413}))
    if way == "lied":
        lengths = ("-1", "1e9", "9" * 30, "9" * 5_000, "0x10", "+5", " ", "5, 6", "٣")
        data = at.post("/api/check", b'{"job": "x"}', length=chance.choice(lengths).encode().decode("latin-1"))
        return _one("odd length", data, WRONG)
    if way == "sent":
        return _one("large body", at.post("/api/check", b"x" * min(size, 3_000_000)), frozenset({CLOSED, 413}))
    own = ("X-Mlcd-Ui: 1", "Content-Type: application/json", "Transfer-Encoding: chunked")
    chunk = b"%x\r\n%s\r\n" % (65_536, b"x" * 65_536)
    head = at.head("/api/check", *own, method="POST").encode()
    return _one(
        "large chunks", head + chunk * (min(size, 3_000_000) // 65_536 + 1) + b"0\r\n\r\n", frozenset({CLOSED, 413})
    )


def _paths(chance: random.Random, at: Target) -> Case:
    """Traversals and odd texts in every place of a path."""
    odd = chance.choice(_TRAVERSALS)
    places = (
        "/static/{}", "/{}", "/runs/{}", "/runs/{}/live", "/runs/{}/report", "/runs/{}/what-if", "/runs/{}/tables/x",
        f"/runs/{at.runs[0]}/tables/{{}}", "/api/{}", "/api/runs/{}", "/api/runs/{}/now", "/api/runs/{}/logs",
        "/api/runs/{}/logs/0", f"/api/runs/{at.runs[0]}/logs/{{}}", "/api/runs/{}/what-if", "/api/runs/{}/events",
        f"/api/runs/{at.runs[0]}/pictures/{{}}", "/api/runs/{}/pictures/speed", "/compare?run={}&run=x",
    )  # fmt: skip
    path = chance.choice(places).format(odd)
    if chance.random() < 0.15:
        return _one("path of a change", at.post(f"/api/runs/{odd}/{chance.choice(('stop', 'resume'))}", b"{}"), WRONG)
    return _one("path", at.get(path), frozenset({CLOSED, 200, 303, *range(400, 500)}))


def _queries(chance: random.Random, at: Target) -> Case:
    run = chance.choice(at.runs)
    odd = chance.choice(
        (
            "-1", "0", "1e9", "1e999", "nan", "inf", "9" * 400, "0.1" * 50, "²", "%d9%a3", "%ff", "%00", "", " ",
            "+1", "0x1",
            "true", "%27%20OR%201=1--", "%25%25", "_", "%5c", "a" * 255, "a" * 256, "a" * 6_000, "<x>", "1;2",
            "999999999999",
        )
    )  # fmt: skip
    asks = (
        f"/?search={odd}", f"/?offset={odd}", f"/?kind={odd}&status={odd}", f"/api/runs?limit={odd}",
        f"/api/runs?offset={odd}", f"/api/runs?search={odd}", f"/api/runs?kind={odd}", f"/api/runs?status={odd}",
        f"/api/runs/{run}/what-if?budget_usd={odd}", f"/api/runs/{run}/what-if?deadline_seconds={odd}",
        f"/api/runs/{run}/what-if?time_weight={odd}", f"/api/runs/{run}/what-if?next_trial={odd}",
        f"/api/runs/{run}/logs/0?offset={odd}", f"/runs/{run}/live?parts={odd}", f"/runs/{run}/live?parts={odd}:wide",
        f"/runs/{run}/live?parts={'speed:wide,' * 500}", f"/compare?{'&'.join(['run=' + run] * 300)}",
        f"/compare?run={run}&run={odd}", f"/api/runs?{'&'.join(f'a{n}={n}' for n in range(1_500))}",
        f"/?{'search=x&' * 1_000}",
    )  # fmt: skip
    return _one("query", at.get(chance.choice(asks)), frozenset({CLOSED, *range(200, 500)}))


def _what_if(chance: random.Random, at: Target) -> Case:
    """Right questions, each another one: nothing of their answers may pile up."""
    budget, deadline = chance.uniform(0.01, 1e6), chance.uniform(1, 1e8)
    limits = f"budget_usd={budget:.4f}&deadline_seconds={deadline:.4f}&next_trial=no"
    ask = f"/api/runs/{chance.choice(at.runs)}/what-if?{limits}"
    return _one("what-if", at.get(ask), frozenset({200, 400, 404, 503}))


def _methods(chance: random.Random, at: Target) -> Case:
    methods = (
        "PUT",
        "DELETE",
        "PATCH",
        "TRACE",
        "OPTIONS",
        "HEAD",
        "CONNECT",
        "PROPFIND",
        "FOO",
        "get",
        "G\xc9T",
        "A" * 5_000,
    )
    method = chance.choice(methods)
    data = at.get(chance.choice(("/", "/api/runs", "*", "http://evil.example/")), "X-Mlcd-Ui: 1", method=method)
    return _one(
        "method", data, frozenset({CLOSED, 200, *range(400, 500), 501} - {501}), answers=0 if method == "HEAD" else 1
    )


def _not_http(chance: random.Random, _: Target) -> Case:
    texts = (
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 200, b"GET / HTTP/9.9\r\n\r\n", b"\r\n" * 500,
        b"\0" * 4_000,
        b"GET\r\n\r\n", b"GET / HTTP/1.1\r\nHost\r\n\r\n", b"GET / HTTP/1.1\r\n: x\r\n\r\n", chance.randbytes(2_000),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HTTP/1.1\r\nHost: " + b"a" * 40_000 + b"\r\n\r\n",
        b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 500 + b"\r\n",
    )  # fmt: skip
    # One that never ends is closed after the time for headers.
    return _one("not HTTP", chance.choice(texts), WRONG)


def _framing(chance: random.Random, at: Target) -> Case:
    body = b'{"job": "x"}'
    both = ("X-Mlcd-Ui: 1", "Content-Type: application/json", "Content-Length: 5", "Transfer-Encoding: chunked")
    ways: tuple[Callable[[], bytes], ...] = (
        lambda: at.head("/api/check", *both, method="POST").encode() + b"0\r\n\r\n",
        lambda: at.post("/api/check", body, "Content-Length: 3"),
        lambda: (
            at.head("/api/check", *both[:2], "Transfer-Encoding: chunked", method="POST").encode()
            + b"zz\r\nx\r\n0\r\n\r\n"
        ),
        lambda: at.head("/api/check", *both[:2], "Transfer-Encoding: x", method="POST").encode() + body,
        lambda: at.get(
            "/", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Key: x", "Sec-WebSocket-Version: 13"
        ),
        lambda: at.get("/", "Expect: 100-continue"),
        lambda: at.get("/", "X: a\r\n b"),
        lambda: at.get("/", "Range: bytes=0-99999999999"),
        lambda: at.get("/", "Accept-Encoding: " + "gzip," * 1_000),
    )
    return _one("framing", chance.choice(ways)(), ANY)


def _slow(chance: random.Random, at: Target) -> Case:
    way = chance.choice(("headers", "body", "half-open", "reset", "gone", "not read"))
    whole = at.post("/api/check", b'{"job": "x"}')
    if way == "headers":
        return Case(kind="slow headers", pieces=[(whole[n : n + 1], 0.3) for n in range(40)], allowed=WRONG)
    if way == "body":
        head = at.post("/api/check", b"", length="2000")
        return Case(kind="slow body", pieces=[(head, 0.0), *[(b"x", 0.5)] * 20], allowed=WRONG)
    if way == "half-open":
        return Case(kind="half-open", pieces=[(whole[: chance.randrange(len(whole))], 0.0)], allowed=WRONG, clients=8)
    if way == "not read":
        data = at.get("/catalog") * 8
        return Case(kind="not read", pieces=[(data, 0.0)], allowed=ANY, end=End.HOLD, clients=3)
    end = End.RESET if way == "reset" else End.CLOSE
    path = chance.choice(("/", "/catalog", f"/runs/{at.runs[0]}/report", f"/api/runs/{at.runs[0]}/what-if"))
    return Case(kind=way, pieces=[(at.get(path), 0.0)], allowed=ANY, end=end, clients=4)


def _streams(chance: random.Random, at: Target) -> Case:
    """Streams of events, that are left at once, reset, or never read."""
    data = at.get(f"/api/runs/{chance.choice(at.runs)}/events")
    end = chance.choice((End.CLOSE, End.RESET, End.CLOSE))
    return Case(kind="stream", pieces=[(data, 0.2)], allowed=ANY, end=end, clients=chance.choice((1, 5, 30)))


def _pipelined(chance: random.Random, at: Target) -> Case:
    count = chance.choice((3, 10, 15))
    data = at.get("/api/runs?limit=1") * count
    return _one("pipelined", data, frozenset({CLOSED, 200, 503}), answers=count)


def _mutated(chance: random.Random, at: Target) -> Case:
    path = chance.choice((*_PAGES, *(each.format(chance.choice(at.runs)) for each in _OF_RUN)))
    data = bytearray(
        at.get(path) if chance.random() < 0.6 else at.post("/api/check", json.dumps({"job": json.dumps(JOB)}).encode())
    )
    for _ in range(chance.choice((1, 2, 5, 20))):
        place = chance.randrange(len(data))
        if chance.random() < 0.5:
            data[place] = chance.randrange(256)
        elif chance.random() < 0.5:
            data.insert(place, chance.choice(b"\0\r\n\t :/%?&#\xff"))
        elif len(data) > 10:
            del data[place]
    return _one("mutated", bytes(data), ANY)


_MAKERS: tuple[tuple[Callable[[random.Random, Target], Case], int], ...] = (
    (_good, 14), (_hosts, 8), (_twice, 2), (_origins, 7), (_tokens, 9), (_redirects, 3), (_changes, 4), (_bodies, 7),
    (_large, 2), (_paths, 16), (_queries, 12), (_what_if, 4), (_methods, 3), (_not_http, 3), (_framing, 3), (_slow, 3),
    (_streams, 3), (_pipelined, 2), (_mutated, 14),
)  # fmt: skip


def case_of(seed: int, number: int, target: Target) -> Case:
    """The case of this number."""
    chance = random.Random(f"page|{seed}|{number}")
    make = chance.choices([make for make, _ in _MAKERS], [weight for _, weight in _MAKERS])[0]
    return make(chance, target)
