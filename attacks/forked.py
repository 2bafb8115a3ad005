"""Commands in processes forked from one that has imported mlcd: tens of cases a second, each alone in its process.

What differs from a user's call: Python has started and imported mlcd already. Memory, time, files, standard streams and
exit code are the process's own.
"""

import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

from attacks.attack import HANG_SECONDS, MEMORY_MIB, Ended

WORKERS = 2
"""Cases at the same time."""
MOST_FILE_BYTES = 256 * 2**20
"""A command that writes a larger file fails with an error of the system."""
SHOWN_BYTES = 1_000_000
STOPS = (1, 2, 7, 130)
"""Exit codes after which no further call of a case makes sense; the others are those of a run that exists."""
_IMPORTED = (
    *(
        f"mlcd.cli.{name}"
        for name in ("init", "train", "serve", "serverless", "report", "show", "runs", "catalog", "check")
    ),
    *("mlcd.jobs.train", "mlcd.jobs.serve", "mlcd.jobs.serverless", "mlcd.kinds", "mlcd.report.html", "scipy.optimize"),
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One case. `calls` are run one after the other until one is refused; the first code that is not 0 is the case's.

    calls   arguments of `mlcd`, or a function that gives them (after an earlier call, say a run's name), or that does
            something else in the case's process and gives an exit code
    folder  where it runs; made and removed by the caller
    stdin   the file that is its standard input; None: nothing
    """

    number: int
    what: str
    calls: Sequence["Sequence[str] | Callable[[], Sequence[str] | int]"]
    folder: Path
    env: Mapping[str, str] = field(default_factory=dict)
    stdin: Path | None = None


def warm_up() -> None:
    """Import what the commands import, once, before forking."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    for name in _IMPORTED:
        import_module(name)


def quiet_env(folder: Path) -> dict[str, str]:
    """No cloud can be found with it: no commands of Slurm, no SkyPilot, no credentials."""
    nothing = folder / "nothing"
    nothing.mkdir(exist_ok=True)
    return {
        "PATH": str(nothing),
        "HOME": str(nothing),
        "MLCD_SKY_PYTHON": str(nothing / "python"),
        "NO_COLOR": "1",
        "MLCD_DEBUG": "",
        "MLCD_CATALOG": "",
    }


def ended(
    cases: Iterable[Case], *, seconds: float = HANG_SECONDS, mib: int = MEMORY_MIB
) -> Iterator[tuple[Case, Ended]]:
    """How every case ended, WORKERS at a time, in the order of their ends. Kills the whole session of one that hangs.

    mib  data of a process: more raises MemoryError in it
    """
    running: dict[int, tuple[Case, float]] = {}
    todo = iter(cases)
    more = True
    while running or more:
        while more and len(running) < WORKERS:
            case = next(todo, None)
            if case is None:
                more = False
            else:
                running[_started(case, mib)] = (case, time.monotonic())
        if not running:
            break
        for pid in list(running):
            case, began = running[pid]
            done, status, usage = os.wait4(pid, os.WNOHANG)
            code: int | None = None
            if done:
                code = os.waitstatus_to_exitcode(status)
            elif time.monotonic() - began > seconds:
                _kill(pid)
                _, status, usage = os.wait4(pid, 0)
            else:
                continue
            del running[pid]
            yield (
                case,
                Ended(
                    code=code,
                    stdout=_text(case.folder / "stdout"),
                    stderr=_text(case.folder / "stderr"),
                    seconds=time.monotonic() - began,
                    peak_mib=usage.ru_maxrss / 1024,
                ),
            )
        time.sleep(0.002)


def _kill(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        os.kill(pid, signal.SIGKILL)


def _text(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(SHOWN_BYTES).decode(errors="replace")


def _started(case: Case, mib: int) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        code = _run(case, mib)
    except BaseException:  # a child of fork must never return
        traceback.print_exc()
    finally:
        os._exit(code)


def started(call: Sequence[str], folder: Path, env: Mapping[str, str], name: str) -> int:
    """One command in `folder`, as a process that the caller waits for; it prints to `stdout-NAME` and `stderr-NAME`."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        enter(folder, env, f"-{name}")
        from mlcd.cli.main import run  # noqa: PLC0415 - imported by warm_up

        code = run(list(call))
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # a child of fork must never return
        traceback.print_exc()
    finally:
        os._exit(code)


def enter(folder: Path, env: Mapping[str, str], suffix: str = "", stdin: Path | None = None) -> None:
    """A session, a folder, variables and output files of its own for this process."""
    os.setsid()
    os.chdir(folder)
    for descriptor, name, flags in (
        (0, str(stdin or os.devnull), os.O_RDONLY),
        (1, f"stdout{suffix}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
        (2, f"stderr{suffix}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
    ):
        os.dup2(os.open(name, flags, 0o600), descriptor)
    os.environ.update(env)


def _run(case: Case, mib: int) -> int:
    enter(case.folder, case.env, stdin=case.stdin)
    resource.setrlimit(resource.RLIMIT_DATA, (mib * 2**20, mib * 2**20))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_FILE_BYTES, MOST_FILE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    from mlcd.cli.main import run  # noqa: PLC0415 - imported by warm_up

    first = 0
    for call in case.calls:
        made = call() if callable(call) else call
        code = made if isinstance(made, int) else run(list(made))
        sys.stdout.flush()
        sys.stderr.flush()
        first = first or code
        if code in STOPS:
            return code
    return first
