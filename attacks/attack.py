"""What an attack is, what it can find, and how it runs the product: as a user would, in a process of its own."""

import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

EXIT_CODES = frozenset({0, 1, 2, 3, 4, 5, 6, 7, 8, 130})
"""docs/exit-codes.md. 1 is an error with a message of its own; a traceback or a "bug in mlcd" is told from the text."""
HANG_SECONDS = 120.0
"""A command that runs longer is a hang: the attacks' own jobs end in seconds, on a busy machine in tens of them."""
MEMORY_MIB = 1024
"""Address space is no measure (threads reserve it), so the peak of resident memory of every command is compared."""
_TRACEBACK = re.compile(r"Traceback \(most recent call last\)|Fatal Python error|Segmentation fault")
_BUG = "bug in mlcd"


class Kind(StrEnum):
    """What an attack can find. Every one of them is a defect."""

    TRACEBACK = "traceback"
    BUG = "bug in mlcd"
    HANG = "hang"
    OVERSPEND = "overspend"
    LEFT_RUNNING = "left running"
    SERVER_ERROR = "5xx"
    MEMORY = "memory"
    WRONG = "wrong answer"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A defect, with what repeats it: the case's number under the attack's seed, and what was seen."""

    kind: Kind
    case: int
    what: str


@dataclass(kw_only=True)
class Tally:
    """What came of an attack. `outcomes` counts how the cases ended, in the attack's words ("exit 2", "resumed")."""

    tried: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    peak_mib: float = 0.0

    def count(self, outcome: str) -> None:
        """One more case that ended like this."""
        self.tried += 1
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1

    def find(self, kind: Kind, case: int, what: str) -> None:
        """One more defect."""
        self.findings.append(Finding(kind=kind, case=case, what=what))


@dataclass(frozen=True, kw_only=True)
class Attack:
    """One row of the table.

    name     as in `scripts/attack NAME`
    what     what is done to the product, for the table
    count    cases of a full attack
    run      (count, seed, empty folder) -> Tally; case i depends on (seed, i) alone
    """

    name: str
    what: str
    count: int
    run: Callable[[int, int, Path], Tally]


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a command ended; `code` is None where it had to be killed after HANG_SECONDS."""

    code: int | None
    stdout: str
    stderr: str
    seconds: float
    peak_mib: float


def mlcd(
    arguments: Sequence[str],
    *,
    home: Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    seconds: float = HANG_SECONDS,
) -> Ended:
    """Run `mlcd ARGUMENTS` with its own home; what it prints is read up to 1 MB. Kills its whole session on a hang."""
    environment = {**os.environ, "MLCD_HOME": str(home), "NO_COLOR": "1", **(env or {})}
    began = time.monotonic()
    out, errors = home.with_name(home.name + ".out"), home.with_name(home.name + ".err")
    with out.open("wb") as stdout, errors.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-c", "from mlcd.cli.main import main; main()", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            cwd=cwd,
            env=environment,
            start_new_session=True,
        )
        code = _wait(process, began + seconds)
    with out.open(errors="replace") as stdout_text, errors.open(errors="replace") as stderr_text:
        printed = (stdout_text.read(1_000_000), stderr_text.read(1_000_000))
    return Ended(
        code=code,
        stdout=printed[0],
        stderr=printed[1],
        seconds=time.monotonic() - began,
        peak_mib=_peak.pop(process.pid),
    )


_peak: dict[int, float] = {}
"""By process: its peak of resident memory, in MiB, while it has ended and was not asked for yet."""


def _wait(process: "subprocess.Popen[bytes]", until: float) -> int | None:
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            _peak[pid] = usage.ru_maxrss / 1024
            process.returncode = os.waitstatus_to_exitcode(status)
            return process.returncode
        if time.monotonic() > until:
            os.killpg(process.pid, signal.SIGKILL)
            _, _, usage = os.wait4(process.pid, 0)
            _peak[process.pid] = usage.ru_maxrss / 1024
            process.returncode = -signal.SIGKILL
            return None
        time.sleep(0.01)


def judge(ended: Ended, tally: Tally, case: int, what: str, *, most_mib: float = MEMORY_MIB) -> None:
    """Count the case and add what is wrong with how its command ended; `what` describes the case."""
    text = ended.stderr + ended.stdout
    last = (ended.stderr.strip().splitlines() or [""])[-1][:300]
    tally.peak_mib = max(tally.peak_mib, ended.peak_mib)
    tally.count("hang" if ended.code is None else f"exit {ended.code}")
    if ended.code is None:
        tally.find(Kind.HANG, case, f"{what}: still running after {ended.seconds:.0f} s")
    elif _TRACEBACK.search(text):
        tally.find(Kind.TRACEBACK, case, f"{what}: {last}")
    elif _BUG in text:
        tally.find(Kind.BUG, case, f"{what}: {last}")
    elif ended.code not in EXIT_CODES:
        tally.find(Kind.WRONG, case, f"{what}: exit code {ended.code}: {last}")
    if ended.peak_mib > most_mib:
        tally.find(Kind.MEMORY, case, f"{what}: {ended.peak_mib:,.0f} MiB, over {most_mib:,.0f}")


def limited_memory(mib: int) -> Callable[[], None]:
    """For a child before exec: its data may not grow beyond `mib`."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (mib * 2**20, mib * 2**20))

    return limit
