"""`mlcd serve` with servers on leased nodes or on this machine, killed at random instants; then `down` and `resume`.

Afterwards nothing may be left of a lease (no server, namespace, link, control group or record, and nobody listening on
its ports), and the books must be whole: every step ended once and paid once, the whole within its budget.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from tests.tiny_onnx import write_mlp
from tests.toy_job import check_account

from attacks.attack import Attack, Kind, Tally
from mlcd.clouds.lease_records import LeaseRecords
from mlcd.clouds.minicloud import missing
from mlcd.run.run import SearchRun
from mlcd.run.step import Role
from mlcd.store.store import Store

chaos = import_module("chaos")  # a script, not a module that mypy knows

AT_ONCE = 2
"""Cases at the same time, each with two or three nodes: that is what a machine of two processors has room for."""
PHASES = ("start", "lease", "trial", "trial", "verification")
"""What a kill is counted from: mlcd's start, the first lease's folder, its agents, the start of a verification."""
LAST_SECONDS = 12.0
"""The latest instant of a kill in its phase: a load test takes about so long."""
WAIT_SECONDS = 600.0
BUDGET_USD = 0.6
JOB: dict[str, Any] = {
    "name": "tiny",
    "model": "tiny.onnx",
    "resources": {"infra": "minicloud", "instance_type": ["m.small"], "replicas": [2, 3]},
    "knobs": {"batch": [1, 4], "precision": "fp32"},
    "goal": {"minimize": "cost", "rate": "20/s", "slo": {"p99": "5s"}, "budget": f"{BUDGET_USD} USD"},
    "load": {"verify": "2s"},
    "search": {"max_trials": 3, "strategy": "random", "trial": {"seconds": "8s", "watchdog": "60s"}},
}
FROM_NODE: dict[str, Any] = {
    **JOB,
    "resources": {**JOB["resources"], "replicas": [2]},
    "load": {**JOB["load"], "from": "node"},
}
"""Three nodes: two servers, and one that sends the load."""
JOBS: dict[str, dict[str, Any]] = {
    "minicloud": JOB,
    "local": {
        **JOB,
        "resources": {"infra": "local"},
        "knobs": {"batch": [1, 4, 8], "threads": 1, "replicas": 1, "precision": "fp32"},
    },
}
MLCD = (sys.executable, "-c", "from mlcd.cli.main import main; main()")
_FINAL_CODES = {0, 3, 4, 5, 6}
"""A resumed run ends with an answer (docs/exit-codes.md): other users of the machine may leave it no room for nodes."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is done in one case."""

    number: int
    infra: str
    phase: str
    instant_seconds: float
    blow: str
    order: tuple[str, ...]
    from_node: bool = False

    @property
    def job(self) -> dict[str, Any]:
        """What is served."""
        return FROM_NODE if self.from_node else JOBS[self.infra]

    def __str__(self) -> str:
        then = " and ".join(f"`mlcd {command}`" for command in self.order)
        load = ", loaded from a node," if self.from_node else ""
        return f"{self.blow}{load} killed {self.instant_seconds:.2f} s after the {self.phase}, then {then}"


def draw(number: int, seed: int, infra: str = "minicloud") -> Case:
    """The case of this number."""
    rng = random.Random(f"serving kills|{seed}|{number}")
    return Case(
        number=number,
        infra=infra,
        phase=PHASES[number % len(PHASES)],
        instant_seconds=rng.uniform(0.0, LAST_SECONDS),
        blow=rng.choice(("mlcd", "mlcd and agents")),
        order=rng.choice((("down",), ("down", "resume", "down"), ("resume", "down"))),
        from_node=infra != "local" and number % 3 == 2,
    )


def on_nodes(count: int, seed: int, folder: Path) -> Tally:
    """Servers on the minicloud's nodes."""
    if lack := missing():
        print(f"  skipped: {'; '.join(lack)}", file=sys.stderr)
        return Tally()
    return attack([draw(number, seed) for number in range(count)], folder)


def on_this_machine(count: int, seed: int, folder: Path) -> Tally:
    """Servers on this machine."""
    return attack([draw(number, seed, "local") for number in range(count)], folder)


def attack(cases: list[Case], folder: Path) -> Tally:
    """All cases, AT_ONCE at the same time."""
    tally = Tally()
    printed = threading.Lock()

    def run(case: Case) -> tuple[str, list[tuple[Kind, str]]]:
        found = _strike(case, folder / str(case.number))
        with printed:
            print(f"  case {case.number}: {case}: {found[0]}", file=sys.stderr, flush=True)
        return found

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for case, (outcome, findings) in zip(cases, pool.map(run, cases), strict=True):
            tally.count(outcome)
            for kind, what in findings:
                tally.find(kind, case.number, f"{case}: {what}")
    return tally


def _strike(case: Case, folder: Path) -> tuple[str, list[tuple[Kind, str]]]:
    folder.mkdir(parents=True)
    home = folder / "home"
    write_mlp(folder / "tiny.onnx")
    (folder / "job.yaml").write_text(json.dumps(case.job))
    env = {**os.environ, "MLCD_HOME": str(home)}
    wrong: list[tuple[Kind, str]] = []
    said = folder / "said.txt"
    with said.open("wb") as log:
        began = time.monotonic()
        run = subprocess.Popen(
            [*MLCD, "serve", "job.yaml", "--seed", str(case.number)], cwd=folder, env=env, stdout=log, stderr=log
        )
        _until(lambda: run.poll() is not None or _has_come_to(case.phase, home))
        with contextlib.suppress(subprocess.TimeoutExpired):
            run.wait(case.instant_seconds)
        late = run.poll() is not None
        agents = _agents(home) if "agents" in case.blow else []
        for pid in (run.pid, *agents):
            _kill(pid)
        run.wait()
    where = "ended before the kill" if late else f"killed {_phase(home)}"
    # The agents notice that mlcd is gone, and end the servers; killed agents take them along.
    if not _until(lambda: not _running(home)):
        wrong.append((Kind.LEFT_RUNNING, f"a server {time.monotonic() - began:.0f} s after the start"))
    runs = [path.name for path in home.glob("work/*")] if home.exists() else []
    for command in case.order if runs else ():
        words = [command, runs[0]] if command == "resume" else [command, runs[0], "--on", case.infra, "-y"]
        if command == "resume" and _is_final(home, runs[0]):
            continue
        try:
            done = subprocess.run(
                [*MLCD, *words], cwd=folder, env=env, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            wrong.append((Kind.HANG, f"`mlcd {command}` did not end within {WAIT_SECONDS:.0f} s"))
            continue
        expected = _FINAL_CODES if command == "resume" else {0}
        text = done.stdout + done.stderr
        if done.returncode not in expected:
            wrong.append((Kind.WRONG, f"`mlcd {command}` ended with {done.returncode}: {text[-300:]}"))
        wrong += _bad_words(text)
        if command == "resume":
            where += ", resumed"
            if not _is_final(home, runs[0]):
                wrong.append((Kind.WRONG, "the resumed run has not ended"))
    wrong += _bad_words(said.read_text(errors="replace"))
    wrong += [(Kind.LEFT_RUNNING, what) for lease in _leases(home) for what in chaos.remains(lease.name)]
    if runs:
        wrong += [(Kind.LEFT_RUNNING, f"record {lease.lease_id}") for lease in LeaseRecords(home).all()[0]]
    wrong += [(Kind.LEFT_RUNNING, f"somebody listens on port {port}") for port in _ports(home) & _listening()]
    for run_id in runs:
        wrong += _books(home, run_id)
    return where, wrong


def _has_come_to(phase: str, home: Path) -> bool:
    match phase:
        case "start":
            return True
        case "lease":
            return bool(_leases(home))
        case "trial":
            return bool(list(home.glob("work/*/leases/*/node-*/agent.pid")) or _keepers(home))
        case _:
            runs = [path.name for path in home.glob("work/*")]
            record = _record(home, runs[0]) if runs else None
            return record is not None and any(step.role is Role.VERIFICATION for step in record.steps)


def _leases(home: Path) -> list[Path]:
    return sorted(home.glob("work/*/leases/*"))


def _running(home: Path) -> bool:
    """Whether a process of a lease of this home runs."""
    return any(what.startswith("process") for lease in _leases(home) for what in chaos.remains(lease.name))


def _agents(home: Path) -> list[int]:
    found = []
    for file in home.glob("work/*/leases/*/node-*/agent.pid"):
        try:
            found.append(int(file.read_text()))
        except (OSError, ValueError):  # it is being written
            continue
    found += _keepers(home)
    mine = {lease.name for lease in _leases(home)}
    return [pid for pid in found if any(pid in chaos.processes.tagged(lease) for lease in mine)]


def _keepers(home: Path) -> list[int]:
    """What keeps the servers on this machine."""
    records = LeaseRecords(home).all()[0] if _leases(home) else []
    return [agent.pid for record in records for agent in record.agents]


def _ports(home: Path) -> set[int]:
    """The ports of all servers of this home."""
    found = set()
    for lease in _leases(home):
        try:
            port = int(json.loads((lease / "job.json").read_text())["port"])
        except (OSError, ValueError, KeyError):  # killed before it was written
            continue
        found |= {port + rank for rank in range(len(list(lease.glob("node-*"))))}
    return found


def _listening() -> set[int]:
    """The ports of this machine that somebody listens on."""
    found = set()
    for file in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(file).read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A":  # LISTEN
                found.add(int(words[1].rpartition(":")[2], 16))
    return found


def _phase(home: Path) -> str:
    """Where the run was, for the table."""
    runs = [path.name for path in home.glob("work/*")] if home.exists() else []
    if not runs:
        return "before the first lease"
    record = _record(home, runs[0])
    if record is None or not record.steps:
        return "before the first lease"
    last = record.steps[-1]
    return f"in a {last.role}" if last.outcome is None else "between two steps"


def _record(home: Path, run_id: str) -> SearchRun | None:
    with Store(home, reading=True) as store:
        if run_id not in [row.run_id for row in store.runs()]:
            return None
        found = store.load(run_id)
    return cast(SearchRun, found)


def _is_final(home: Path, run_id: str) -> bool:
    record = _record(home, run_id)
    return record is None or record.status.is_final


def _books(home: Path, run_id: str) -> list[tuple[Kind, str]]:
    """What is wrong with the run in the store."""
    record = _record(home, run_id)
    if record is None:
        return []
    wrong: list[tuple[Kind, str]] = []
    if record.total_usd.dollars > BUDGET_USD:
        wrong.append((Kind.OVERSPEND, f"{record.total_usd} of {BUDGET_USD} USD"))
    paid = Counter(
        (step.role, step.config, step.authorisation.attempt) for step in record.steps if step.role is Role.TRIAL
    )
    if set(paid.values()) - {1}:
        wrong.append((Kind.OVERSPEND, "a load test is paid twice"))
    if record.status.is_final:
        if any(step.outcome is None for step in record.steps):
            wrong.append((Kind.WRONG, "a step of an ended run has no outcome"))
        try:
            check_account(record)
        except AssertionError as error:
            wrong.append((Kind.OVERSPEND, f"the account: {error}"))
    return wrong


def _bad_words(said: str) -> list[tuple[Kind, str]]:
    wrong = [(Kind.TRACEBACK, "a traceback")] if "Traceback (most recent call last)" in said else []
    return wrong + ([(Kind.BUG, "an error that nobody had thought of")] if "bug in mlcd" in said else [])


def _until(is_so: Callable[[], bool]) -> bool:
    give_up = time.monotonic() + WAIT_SECONDS
    while not is_so():
        if time.monotonic() > give_up:
            return False
        time.sleep(0.2)
    return True


def _kill(pid: int) -> None:
    """SIGKILL, unless it has just ended."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


ATTACKS = (
    (
        Attack(
            name="serving-kills",
            what="kills of `mlcd serve` with two or three nodes leased, then `mlcd down` and `mlcd resume`",
            count=50,
            run=on_nodes,
        ),
        Attack(
            name="serving-kills-here",
            what="kills of `mlcd serve` with a server on this machine, then `mlcd down` and `mlcd resume`",
            count=50,
            run=on_this_machine,
        ),
    )
    if sys.platform == "linux"
    else ()
)
