"""A generator in its own process: how it gets its plan, gives its result, and ends with the one that started it."""

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from mlcd.errors import BadInput, MlcdError

FROM_STDIN = "--plan-from-stdin"
"""The argument of a generator that reads its plan as the first line of standard input, and ends when that closes."""
_PREFIX = "mlcd.loadgen: "


class Generator(Protocol):
    """Runs a generator on this machine (`run_generator`) or elsewhere (`mlcd.loadgen.remote`)."""

    def __call__(self, module: str, plan: str, *, most_seconds: float) -> str:
        """See run_generator."""
        ...


class _Plan(Protocol):
    @property
    def cpus(self) -> tuple[int, ...]: ...


class _Result(Protocol):
    def as_json(self) -> dict[str, Any]: ...


P = TypeVar("P", bound=_Plan)
R = TypeVar("R")


def run_generator(module: str, plan: str, *, most_seconds: float) -> str:
    """What the generator `module` prints for a plan, which it reads as the first line of its standard input.

    It ends when that closes. Raises BadInput, MlcdError with its last line.
    """
    command = [sys.executable, "-m", module, FROM_STDIN]
    with subprocess.Popen(  # noqa: S603
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            # communicate() would close standard input, and the generator ends when that closes.
            assert process.stdin is not None  # noqa: S101
            stdin, process.stdin = process.stdin, None
            with stdin:
                with contextlib.suppress(BrokenPipeError):  # it ended before; its message says why
                    stdin.write(plan + "\n")
                    stdin.flush()
                output, messages = process.communicate(timeout=most_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            raise MlcdError(f"the load test did not end within {most_seconds:g} s") from None
        except BaseException:
            process.kill()
            raise
    last = messages.strip().splitlines()[-1].removeprefix(_PREFIX) if messages.strip() else ""
    if process.returncode == BadInput.exit_code:
        raise BadInput(last)
    if process.returncode != 0:
        raise MlcdError(f"the load generator ended with code {process.returncode}: {last}")
    return output


def result_of(output: str, read: Callable[[dict[str, Any]], R]) -> R:
    """What a generator printed, as `read` reads it. Raises MlcdError where it is something else."""
    try:
        return read(json.loads(output))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise MlcdError("the load generator did not print a result") from error


def plan_from_stdin() -> dict[str, Any]:
    """The plan that the starting process wrote. From now on, this process ends when that one does."""
    line = b""
    while not line.endswith(b"\n"):
        data = os.read(0, 65536)
        if not data:
            raise BadInput("no plan was given")
        line += data
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    plan: dict[str, Any] = json.loads(line)
    return plan


def run_and_print(read: Callable[[], P], generate: Callable[[P], _Result]) -> int:
    """Run the plan that `read` returns and print its result as one JSON object; returns the exit code."""
    try:
        plan = read()
        if plan.cpus and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, plan.cpus)
        print(json.dumps(generate(plan).as_json(), allow_nan=False))  # noqa: T201
    except MlcdError as error:
        print(f"{_PREFIX}{error}", file=sys.stderr)  # noqa: T201
        return error.exit_code
    return 0


def _end_with_stdin() -> None:
    while os.read(0, 4096):
        pass
    os._exit(1)
