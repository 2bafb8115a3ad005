"""A server over several nodes: every further node joins the first, which asks all of them for each answer.

    python split_server.py; $HOST, $PORT, $NODES, $NODE_RANK, $HEAD, $HEAD_PORT and $LAYERS say where and what

Only the first node answers, `{"layers": [...]}` with the layers of each node in order.
"""

import json
import os
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def number(name: str) -> int:
    """A variable of this node."""
    return int(os.environ[name])


def join() -> socket.socket:
    """The connection to the first node, once it listens."""
    while True:
        try:
            return socket.create_connection((os.environ["HEAD"], number("HEAD_PORT")), timeout=5)
        except OSError:
            time.sleep(0.05)


def work() -> None:
    """Answer the first node for as long as it asks."""
    with join() as head:
        head.settimeout(None)
        head.sendall(bytes([number("NODE_RANK")]))
        while head.recv(1):
            head.sendall(number("LAYERS").to_bytes(2))


def lead() -> None:
    """Wait for the others, then serve."""
    others: dict[int, socket.socket] = {}
    with socket.create_server((os.environ["HEAD"], number("HEAD_PORT"))) as meeting:
        while len(others) < number("NODES") - 1:
            client = meeting.accept()[0]
            others[client.recv(1)[0]] = client

    asking = threading.Lock()

    class Answers(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._say([])

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            layers = [number("LAYERS")]
            with asking:
                for rank in sorted(others):
                    others[rank].sendall(b"?")
                    layers.append(int.from_bytes(others[rank].recv(2)))
            self._say(layers)

        def _say(self, layers: list[int]) -> None:
            text = json.dumps({"layers": layers}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None: ...

    ThreadingHTTPServer((os.environ["HOST"], number("PORT")), Answers).serve_forever()


if __name__ == "__main__":
    if number("NODE_RANK"):
        work()
    else:
        lead()
