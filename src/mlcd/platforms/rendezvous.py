"""Where Horovod's workers exchange their addresses: a store of keys and values over HTTP, on node 0.

    python -I rendezvous.py serve ADDRESS PORT
    python -I rendezvous.py await ADDRESS PORT COMMAND...

`serve` answers until it is ended. `await` becomes COMMAND once `serve` accepts connections: Horovod itself gives up
after a second and a half, and nodes are not ready at the same time. The protocol is that of its Gloo controller:

    PUT /SCOPE/KEY      keeps the body
    GET /SCOPE/KEY      the body, or status 404 until there is one
    DELETE /SCOPE/KEY   forgets it: all workers are connected, and may meet again later under the same keys

Uses the standard library only, and no module of mlcd: it runs as a file, whatever the job's Python path is.
"""

import os
import signal
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MOST_BODY_BYTES = 64 * 1024
"""An address of Gloo has some hundred bytes for each worker."""
MOST_KEYS = 100_000
MOST_KEY_CHARACTERS = 1_000
REQUEST_SECONDS = 10.0
RETRY_SECONDS = 0.1


class Rendezvous(ThreadingHTTPServer):
    """The server and the values put so far."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__(address, _Handler)
        self.values: dict[str, bytes] = {}
        self.lock = threading.Lock()


class _Handler(BaseHTTPRequestHandler):
    timeout = REQUEST_SECONDS
    server: Rendezvous

    def do_GET(self) -> None:
        """The value of a key."""
        with self.server.lock:
            value = self.server.values.get(self.path)
        self._answer(404 if value is None else 200, value or b"")

    def do_PUT(self) -> None:
        """Set a key's value; refused where it is larger than any that Horovod sends."""
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or len(length) > 9 or int(length) > MOST_BODY_BYTES:
            self.close_connection = True
            return self._answer(413)
        value = self.rfile.read(int(length))
        with self.server.lock:
            is_full = self.path not in self.server.values and len(self.server.values) >= MOST_KEYS
            is_refused = is_full or len(self.path) > MOST_KEY_CHARACTERS or len(value) < int(length)
            if not is_refused:
                self.server.values[self.path] = value
        return self._answer(400 if is_refused else 200)

    def do_DELETE(self) -> None:
        """Forget a key."""
        with self.server.lock:
            self.server.values.pop(self.path, None)
        self._answer(200)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the overridden method
        """Requests are not logged."""

    def _answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def await_server(address: str, port: int) -> None:
    """Return once the server accepts connections; the agent ends this process when the node's time is over."""
    while True:
        try:
            socket.create_connection((address, port), timeout=REQUEST_SECONDS).close()
        except OSError:
            time.sleep(RETRY_SECONDS)
        else:
            return


def main(words: list[str]) -> None:
    """Run one of the two commands above."""
    action, address, port, *command = words
    if action == "serve":
        Rendezvous((address, int(port))).serve_forever()
    await_server(address, int(port))
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python; the command would inherit it
        signal.signal(ignored, signal.SIG_DFL)
    os.execvp(command[0], command)  # noqa: S606 - the user's own command, on the user's own node


if __name__ == "__main__":
    main(sys.argv[1:])
