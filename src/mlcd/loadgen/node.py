"""`python -m mlcd.loadgen.node`: the generators on a node of their own. It answers mlcd, which sends a plan at a time.

    GET /ready   200
    POST /run    {"module", "plan", "most_seconds"} with the header TOKEN_HEADER -> {"output"} or {"error", "bad_input"}

Whoever knows the token can make this node load any address; the servers beside it do not get it.
"""

import argparse
import hmac
import json
import os
import sys
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from mlcd.errors import BadInput, MlcdError
from mlcd.loadgen.process import run_generator
from mlcd.untrusted import Fields, Malformed, parse_json

MODULES = ("mlcd.loadgen", "mlcd.loadgen.chat")
"""What may be run."""
READY, RUN = "/ready", "/run"
TOKEN_HEADER, TOKEN_VARIABLE = "X-MLCD-Token", "MLCD_LOAD_TOKEN"
MOST_REQUEST_BYTES = 64 * 2**20
"""A plan has up to a million requests."""
MOST_SECONDS = 7 * 86_400.0
SILENT_SECONDS = 30.0
"""How long a client may keep its request back."""


class _Handler(BaseHTTPRequestHandler):
    """One connection. Loads run one after another."""

    timeout = SILENT_SECONDS
    token = ""
    one_at_a_time = threading.Lock()

    def do_GET(self) -> None:
        """Whether the generators can run."""
        self._answer(HTTPStatus.OK if self.path == READY else HTTPStatus.NOT_FOUND, {})

    def do_POST(self) -> None:
        """Run one plan."""
        length = self.headers.get("Content-Length", "")
        if self.path != RUN:
            self._answer(HTTPStatus.NOT_FOUND, {})
        elif not hmac.compare_digest(self.headers.get(TOKEN_HEADER, "").encode(), self.token.encode()):
            self._answer(HTTPStatus.FORBIDDEN, {})
        elif not (length.isascii() and length.isdigit() and len(length) < 12 and int(length) <= MOST_REQUEST_BYTES):
            self._answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, {})
        else:
            self._answer(HTTPStatus.OK, self._ran(self.rfile.read(int(length))))

    def _ran(self, body: bytes) -> dict[str, object]:
        try:
            asked = Fields(parse_json(body))
            module, plan = asked.text("module"), asked.text("plan", most_characters=MOST_REQUEST_BYTES)
            most_seconds = asked.number("most_seconds", least=0, most=MOST_SECONDS)
        except Malformed as error:
            return {"error": str(error), "bad_input": True}
        if module not in MODULES:
            return {"error": f"{module} is no load generator", "bad_input": True}
        with self.one_at_a_time:
            try:
                return {"output": run_generator(module, plan, most_seconds=most_seconds)}
            except MlcdError as error:
                return {"error": str(error), "bad_input": isinstance(error, BadInput)}

    def _answer(self, status: HTTPStatus, value: dict[str, object]) -> None:
        text = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the base class
        """Nothing: the last line of the node's log is what went wrong."""


def serve(host: str, port: int, token: str) -> ThreadingHTTPServer:
    """A server that is bound to its port and not running yet. Raises OSError."""
    handler = type("_TokenHandler", (_Handler,), {"token": token})
    return ThreadingHTTPServer((host, port), handler)


def main() -> int:
    """Serve until the process is ended; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m mlcd.loadgen.node", description=__doc__)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    arguments = parser.parse_args()
    token = os.environ.pop(TOKEN_VARIABLE, "")
    if not token:
        print(f"{TOKEN_VARIABLE} is not set", file=sys.stderr)  # noqa: T201
        return BadInput.exit_code
    serve(arguments.host, arguments.port, token).serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
