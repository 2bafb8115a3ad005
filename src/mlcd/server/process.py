"""A server as a separate process, which ends with the process that started it."""

import contextlib
import json
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

from mlcd.errors import BadInput, MlcdError
from mlcd.server.options import ServerOptions
from mlcd.server.tensors import TensorSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningServer:
    """A server that answers requests.

    startup_seconds  from the call of start_server until the server could answer requests
    """

    options: ServerOptions
    address: str
    model: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    startup_seconds: float
    process: "subprocess.Popen[bytes]"

    @property
    def is_alive(self) -> bool:
        """Whether the process still runs."""
        return self.process.poll() is None

    def stats(self) -> dict[str, Any]:
        """The server's own statistics (`mlcd.server.stats`). Raises OSError when it does not answer."""
        with urllib.request.urlopen(f"{self.address}/v2/models/{self.model}/stats", timeout=10) as answer:  # noqa: S310
            found: dict[str, Any] = json.load(answer)
        return found

    def stop(self, *, grace_seconds: float = 6.0) -> None:
        """End it: close its standard input, then SIGTERM, finally SIGKILL. Returns when the process has ended."""
        end(self.process, grace_seconds=grace_seconds)


@contextlib.contextmanager
def start_server(options: ServerOptions, *, timeout_seconds: float = 120.0) -> Iterator[RunningServer]:
    """Run a server for the duration of the `with` block.

    Raises BadInput with the server's message where it rejects its options, MlcdError where it crashes. The server
    also ends when this process ends, however that happens, because this process holds its standard input.
    """
    command = [sys.executable, "-m", "mlcd.server", *options.arguments(), "--until-stdin-closes"]
    begun = time.monotonic()
    with tempfile.TemporaryFile() as messages:
        process = subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=messages
        )
        try:
            line = _first_line(process, timeout_seconds)
            if line is None:
                raise MlcdError(f"the server of {options.model} was not ready within {timeout_seconds:g} s")
            if not line:
                raise _refusal(process, messages, options)
            ready = json.loads(line)
            yield RunningServer(
                options=options,
                address=ready["address"],
                model=ready["model"],
                inputs=tuple(TensorSpec.from_json(value) for value in ready["inputs"]),
                outputs=tuple(TensorSpec.from_json(value) for value in ready["outputs"]),
                startup_seconds=time.monotonic() - begun,
                process=process,
            )
        finally:
            end(process)


def end(process: "subprocess.Popen[bytes]", *, grace_seconds: float = 6.0) -> None:
    """See RunningServer.stop."""
    if process.stdin is not None and not process.stdin.closed:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
    for give_up in (process.terminate, process.kill):
        try:
            process.wait(timeout=grace_seconds)
            break
        except subprocess.TimeoutExpired:
            give_up()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _first_line(process: "subprocess.Popen[bytes]", timeout_seconds: float) -> bytes | None:
    """The ready line; empty when the process ended before it, None after the timeout."""
    found: list[bytes] = []
    assert process.stdout is not None  # noqa: S101
    reader = threading.Thread(target=lambda out: found.append(out.readline()), args=(process.stdout,), daemon=True)
    reader.start()
    reader.join(timeout_seconds)
    return found[0] if found else None


def _refusal(process: "subprocess.Popen[bytes]", messages: IO[bytes], options: ServerOptions) -> MlcdError:
    code = process.wait()
    messages.seek(0)
    text = messages.read().decode(errors="replace").strip()
    last = text.splitlines()[-1].removeprefix("mlcd.server: ") if text else ""
    if code == BadInput.exit_code:
        return BadInput(last)
    if code < 0:
        return MlcdError(f"the server of {options.model} was killed by signal {-code} before it was ready")
    return MlcdError(f"the server of {options.model} ended with code {code} before it was ready: {last}")
