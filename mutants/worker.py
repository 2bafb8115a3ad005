"""Runs pytest again and again in forks of a process that has the libraries imported, which saves seconds each time.

Run by `mutants.runner` in a copy of the tree: each line of standard input is a JSON list of the limit in seconds, the
file for what pytest prints, and pytest's arguments; the answer is a line with the exit code, or null where the limit
was reached.
"""

import importlib
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

LIBRARIES = (
    "pytest", "_pytest.assertion", "hypothesis", "xdist", "numpy", "scipy.linalg", "scipy.optimize", "scipy.special",
    "scipy.stats", "threadpoolctl", "cattrs", "click", "filelock", "jinja2", "rich.console", "yaml", "onnx",
    "starlette",
)  # fmt: skip
"""What most tests import; never mlcd, whose modules differ between mutants."""


def main() -> None:
    """Answer until standard input is closed."""
    for name in LIBRARIES if Path("src", "mlcd").is_dir() else LIBRARIES[:1]:
        with suppress(ImportError):
            importlib.import_module(name)
    sys.path[0] = str(Path.cwd())
    for line in sys.stdin:
        limit_seconds, output, *arguments = json.loads(line)
        code = _forked(arguments, Path(output), limit_seconds)
        sys.stdout.write(f"{json.dumps(code)}\n")
        sys.stdout.flush()


def _forked(arguments: Sequence[str], output: Path, limit_seconds: float) -> int | None:
    child = os.fork()
    if child == 0:
        _run(arguments, output)
    until = time.monotonic() + limit_seconds
    pause = 0.01
    try:
        while time.monotonic() < until:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
            time.sleep(pause)
            pause = min(2 * pause, 0.2)
        return None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # what the tests have started, too
        with suppress(ChildProcessError):
            os.waitpid(child, 0)


def _run(arguments: Sequence[str], output: Path) -> None:
    """Does not return."""
    code = 3
    try:
        os.setsid()
        file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for target, source in ((0, nothing), (1, file), (2, file)):
            os.dup2(source, target)
        code = int(importlib.import_module("pytest").main(list(arguments)))
    finally:
        with suppress(Exception):
            sys.stdout.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
