"""A server with OpenAI's streaming API whose times are known: it computes nothing, and keeps to its timetable.

    with chat_server(ttft_seconds=0.2, tpot_seconds=0.02) as address: ...

A prompt of n words counts n + 5 tokens. The first token comes after `ttft_seconds`, each next one after
`tpot_seconds`; `slots` answers are written at the same time, and further requests wait for a slot.
"""

import argparse
import contextlib
import heapq
import json
import select
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

FRAME_TOKENS = 5
FAULTS = (
    "garbage", "status", "endless", "silent", "closes", "error-event", "no-stream", "no-usage", "huge-event", "boasts",
)  # fmt: skip


@contextlib.contextmanager
def chat_server(**options: float | str) -> Iterator[str]:
    """Its address; the server is a process of its own."""
    arguments = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    command = [sys.executable, str(Path(__file__)), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.kill()


@dataclass(eq=False)
class _Client:
    socket: socket.socket
    data: bytes = b""
    left: int = 0
    words: int = 0
    asked: int = 0
    out: bytes = b""


@dataclass
class _Server:
    ttft_seconds: float
    tpot_seconds: float
    slots: int
    fault: str
    agenda: list[tuple[float, int, _Client]] = field(default_factory=list)
    waiting: deque[_Client] = field(default_factory=deque)
    writing: int = 0
    count: int = 0

    def request(self, client: _Client) -> None:
        head, _, body = client.data.partition(b"\r\n\r\n")
        client.data = b""
        if head.startswith(b"GET"):
            client.socket.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            return
        document = json.loads(body)
        text = document["messages"][0]["content"] if b"chat" in head.split(b" ")[1] else document["prompt"]
        if isinstance(text, list):  # parts of a message
            text = " ".join(part["text"] for part in text)
        client.words = len(text.split())
        client.asked = document["max_tokens"] if "max_tokens" in document else document["max_completion_tokens"]
        client.left = client.asked
        if self.writing < self.slots:
            self.begin(client)
        else:
            self.waiting.append(client)

    def begin(self, client: _Client) -> None:
        self.writing += 1
        try:
            self.answer(client)
        except OSError:  # it went away meanwhile
            self.end(client)

    def answer(self, client: _Client) -> None:
        if self.fault == "status":
            client.socket.sendall(b"HTTP/1.1 503 Busy\r\nContent-Length: 9\r\n\r\nno \x1b[31mway")
            self.end(client)
            return
        if self.fault == "garbage":
            client.socket.sendall(b"220 smtp.example ESMTP\r\n\r\n")
            self.end(client)
            return
        if self.fault == "no-stream":
            body = json.dumps({"choices": [{"message": {"content": "all at once"}}]}).encode()
            client.socket.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            self.end(client)
            return
        client.socket.sendall(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        self.event(client, {"choices": [{"delta": {"role": "assistant", "content": ""}, "finish_reason": None}]})
        self.later(client, time.perf_counter() + self.ttft_seconds)

    def later(self, client: _Client, at: float) -> None:
        self.count += 1
        heapq.heappush(self.agenda, (at, self.count, client))

    def token(self, client: _Client, at: float) -> None:
        try:
            if self.fault == "silent":
                return
            if self.fault == "closes" and client.left < client.asked:
                client.socket.close()
                self.end(client)
                return
            if self.fault == "error-event":
                self.event(client, {"error": {"message": "out of memory"}})
                client.socket.sendall(b"0\r\n\r\n")
                self.end(client)
                return
            if self.fault == "huge-event":
                client.socket.sendall(b"100000\r\n" + b"x" * 0x100000 + b"\r\n")
            client.socket.sendall(TOKEN)
            client.left -= 1
            if client.left > 0 or self.fault == "endless":
                self.later(client, at + self.tpot_seconds)
                return
            self.event(client, {"choices": [{"delta": {"content": ""}, "finish_reason": "length"}]})
            if self.fault != "no-usage":
                written = client.asked * 1000 if self.fault == "boasts" else client.asked
                usage = {"prompt_tokens": client.words + FRAME_TOKENS, "completion_tokens": written}
                self.event(client, {"choices": [], "usage": usage})
            client.socket.sendall(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
        except OSError:
            pass
        self.end(client)

    def end(self, client: _Client) -> None:
        self.writing -= 1
        if self.waiting and self.writing < self.slots:
            self.begin(self.waiting.popleft())

    def event(self, client: _Client, value: object) -> None:
        client.socket.sendall(_chunk(b"data: " + json.dumps(value).encode() + b"\n\n"))


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


TOKEN = _chunk(b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"word "},"finish_reason":null}]}\n\n')


def serve(server: _Server, port: int, host: str = "127.0.0.1") -> None:
    """Answer until killed."""
    listener = socket.create_server((host, port), backlog=4096)
    print(f"http://{host}:{listener.getsockname()[1]}", flush=True)  # noqa: T201
    listener.setblocking(False)
    poll, clients = select.epoll(), {}
    poll.register(listener.fileno(), select.EPOLLIN)
    while True:
        now = time.perf_counter()
        while server.agenda and server.agenda[0][0] <= now:
            at, _, client = heapq.heappop(server.agenda)
            server.token(client, at)
        pause = server.agenda[0][0] - time.perf_counter() if server.agenda else 1.0
        for number, _event in poll.poll(max(pause, 0.0)):
            if number == listener.fileno():
                with contextlib.suppress(BlockingIOError):
                    while True:
                        opened, _ = listener.accept()
                        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                        clients[opened.fileno()] = _Client(opened)
                        poll.register(opened.fileno(), select.EPOLLIN)
                continue
            client = clients[number]
            data = _received(client.socket)
            if not data:
                clients.pop(number)
                client.socket.close()
                continue
            client.data += data
            head, found, body = client.data.partition(b"\r\n\r\n")
            length = head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]
            if found and len(body) >= int(length or b"0"):
                server.request(client)


def _received(opened: socket.socket) -> bytes:
    try:
        return opened.recv(2**20)
    except OSError:
        return b""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ttft-seconds", type=float, default=0.05)
    parser.add_argument("--tpot-seconds", type=float, default=0.005)
    parser.add_argument("--slots", type=int, default=100_000)
    parser.add_argument("--fault", choices=FAULTS, default="")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--host", default="127.0.0.1")
    given = vars(parser.parse_args())
    port, host = given.pop("port"), given.pop("host")
    serve(_Server(**given), port, host)


if __name__ == "__main__":
    main()
