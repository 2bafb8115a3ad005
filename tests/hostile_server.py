"""A server with OpenAI's API that is ready, and then does what no server should.

    python hostile_server.py FAULT; $HOST and $PORT say where

garbage  answers something else
die      ends with code 9 at the first request
leak     takes ever more memory
silent   never answers
endless  streams for ever
"""

import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FAULTS = ("garbage", "die", "leak", "silent", "endless")
STEP_BYTES = 2**26
_TOKEN = b'data: {"choices":[{"index":0,"delta":{"content":"word "},"finish_reason":null}]}\n\n'
_kept: list[bytearray] = []
_once = threading.Lock()


class _Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def do_POST(self) -> None:
        fault = sys.argv[1]
        if fault == "die":
            os._exit(9)
        if fault == "leak":
            with _once:  # one thread is enough
                while True:
                    _kept.append(bytearray(b"x") * STEP_BYTES)
                    time.sleep(0.02)
        if fault == "silent":
            time.sleep(600)
        if fault == "endless":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
            while True:
                self.wfile.write(_TOKEN)
                time.sleep(0.01)
        self.wfile.write(b"!" * 1000)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Quiet."""


if __name__ == "__main__":
    ThreadingHTTPServer((os.environ["HOST"], int(os.environ["PORT"])), _Answers).serve_forever()
