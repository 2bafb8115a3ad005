"""A server with plain HTTP: it answers a request with JSON after some milliseconds.

    python plain_server.py MILLISECONDS [FAULT]; $HOST and $PORT say where

refuses   answers 503
unsized   does not say how long its answers are
slow      sends a byte from time to time
"""

import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._say(200, b"ready")

    def do_POST(self) -> None:
        given = self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(float(sys.argv[1]) / 1000)
        if self.path != "/predict" or json.loads(given) != {"text": "hello"}:
            self._say(404, b"no such thing")
        elif "refuses" in sys.argv:
            self._say(503, b"not today")
        elif "unsized" in sys.argv:
            self.close_connection = True
            self.wfile.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nword")
        elif "slow" in sys.argv:
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
            while True:
                self.wfile.write(b"1")
                time.sleep(0.1)
        else:
            self._say(200, b'{"label": 1}')

    def _say(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Quiet."""


if __name__ == "__main__":
    ThreadingHTTPServer((os.environ["HOST"], int(os.environ["PORT"])), _Answers).serve_forever()
