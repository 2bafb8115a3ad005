"""A quick real job for tests and benchmarks: it trains nothing, at a given speed, and fails on demand.

    toy = Toy(folder, speeds={1: 500, 2: 1250})
    with toy.mlcd("train", toy.job_file()) as run:
        toy.await_training(run)
        toy.tell("slow", 20)
        assert run.wait() == 0

The job reads what `tell` writes at every step, so that a test can slow it down, hang it, or fill its memory at a
chosen instant.
"""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from tests.unmeasured import MEASURED, UNMEASURED_CHILDREN

from mlcd.clouds import processes
from mlcd.problem import Problem
from mlcd.run.run import SearchRun
from mlcd.store.store import FILE, Store
from mlcd.trial.trial import Failure, Measurement

PATIENCE_SECONDS = 300.0
"""Timeout for events that must happen; no assertion depends on it."""

BATCH = 50
"""A step takes long enough for a busy machine to keep the pace."""
MAIN = "from mlcd.cli.main import main; main()"
"""The Python code that is mlcd."""
SHARED_CPUS = """\
import mlcd.clouds.local as local
local.Local._take_cpus = lambda self, order: (self.cpus * 99)[: order.count * self._cpus_of(order.instance)]
"""
"""Before it: several leases share the processors. The job sleeps most of the time, and a machine may have only two."""

TRIAL = "minutes: 0.03, extension: 10, watchdog_minutes: 0.5, precision: 0.5, retries: 2"
"""Two seconds on a quick machine. A slow one has twenty for the first sample and then thirty to save."""

SCRIPT = """
import json, os, signal, sys, time
from pathlib import Path

import mlcd

control, nodes = Path(os.environ["TOY_CONTROL"]), os.environ["MLCD_NUM_NODES"]
speed = json.loads(os.environ["TOY_SPEEDS"])[nodes]
state, hoard = {"steps": 0}, []


def told(what):
    try:
        return float((control / what).read_text())
    except FileNotFoundError:
        return 0.0


def save(folder):
    (folder / "state.json").write_text(json.dumps(state))


def load(folder):
    state.update(json.loads((folder / "state.json").read_text()))


if told("stubborn"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    del os.environ["MLCD_STOP_FILE"]
done = mlcd.checkpoint(save=save, load=load)
print(f"goes on from {done} on {nodes} nodes", flush=True)
while told("wait-" + nodes):
    time.sleep(0.02)
pace = time.monotonic()
for _ in mlcd.steps(range(10**9), total=int(float(os.environ["MLCD_SAMPLES"]))):
    # By the clock, so that a busy machine does not slow the job down.
    pace += int(os.environ["MLCD_BATCH"]) / speed * (told("slow-" + nodes) or 1.0)
    time.sleep(max(pace - time.monotonic(), 0.0))
    state["steps"] += 1
    while told("hang"):
        time.sleep(0.1)
    if told("out-of-memory"):
        raise MemoryError("made: no room for the next batch")
    if told("full-memory"):
        hoard.append(b"x" * (32 << 20))
    if told("fill-disk"):
        try:
            with open("filler", "wb") as file:
                while True:
                    file.write(bytes(1 << 20))
        except OSError as error:
            sys.exit(f"the job cannot write: {error}")
if os.environ["MLCD_RANK"] == "0":
    Path("model.json").write_text(json.dumps(state))
"""


@dataclass
class Toy:
    """One job file, its home, and the processes started for it.

    speeds   samples/s of the whole job, by its number of nodes
    on       the infra
    env      variables of mlcd itself, in addition to this process's
    program  the Python code that is mlcd
    """

    folder: Path
    speeds: Mapping[int, float] = field(default_factory=lambda: {1: 500.0, 2: 1250.0})
    on: str = "local"
    env: Mapping[str, str] = field(default_factory=dict)
    program: str = MAIN

    def __post_init__(self) -> None:
        for name in ("code", "control"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "code" / "train.py").write_text(SCRIPT)

    @property
    def home(self) -> Path:
        """$MLCD_HOME of everything started here."""
        return self.folder / "home"

    def job_file(
        self,
        *,
        samples: int = 8000,
        nodes: str = "[1, 2]",
        types: Sequence[str] = ("local.1",),
        usd_per_second: str = "0.01",
        budget: str = "20 USD",
        deadline: str = "",
        checkpoints: bool = True,
        trial: str = TRIAL,
        search: str = "noise: 0.02, assurance: 0.99, strategy: heterbo",
    ) -> Path:
        """A job that trains `samples`; every node costs `usd_per_second`. A limit of "" is none."""
        hourly = f"{float(usd_per_second) * 3600:g} USD"
        prices = ", ".join(f"{name}: {hourly}" for name in types)
        limits = "".join(f", {name}: {at}" for name, at in (("budget", budget), ("deadline", deadline)) if at)
        speeds = json.dumps(json.dumps({str(n): speed for n, speed in self.speeds.items()}))
        lines = [
            "name: toy",
            "workdir: code",
            f"resources: {{infra: {self.on}, instance_type: [{', '.join(types)}], prices: {{{prices}}}}}",
            f"num_nodes: {nodes}",
            "run: python train.py",
            "envs:",
            f"  TOY_CONTROL: {self.folder / 'control'}",
            f"  TOY_SPEEDS: {speeds}",
            '  MLCD_CHECKPOINT_SECONDS: "1"',
            f"job: {{samples: {samples}, batch: {BATCH}}}",
            f"checkpoints: {str(checkpoints).lower()}",
            "outputs: [model.json]",
            f"goal: {{minimize: time{limits}}}",
            f"search: {{{search}, trial: {{{trial}}}}}",
        ]
        file = self.folder / "job.yaml"
        file.write_text("\n".join(lines) + "\n")
        return file

    def tell(self, what: str, value: float = 1.0) -> None:
        """Inject a fault from the job's next step on: slow-N, hang, out-of-memory, full-memory, fill-disk.

        wait-N, before the job starts: on N nodes, it makes no step.
        """
        part = self.folder / "control" / f"{what}.part"
        part.write_text(str(value))
        part.replace(self.folder / "control" / what)

    def hurry(self) -> None:
        """From the next step on, 5,000 samples/s: for the rest of a job that is long enough for a slow machine."""
        for nodes, speed in self.speeds.items():
            self.tell(f"slow-{nodes}", speed / 5000)

    def untell(self, what: str) -> None:
        """Remove the fault."""
        (self.folder / "control" / what).unlink(missing_ok=True)

    # ---- mlcd

    @contextmanager
    def mlcd(self, *arguments: str | Path) -> Iterator["Started"]:
        """A running command; killed at the end of the block if it still runs."""
        # Nodes run copies of mlcd, which are deleted with them: measuring those only slows them down.
        command = [sys.executable, "-c", UNMEASURED_CHILDREN + self.program, *map(str, arguments)]
        env = {**os.environ, **MEASURED, **self.env, "MLCD_HOME": str(self.home)}
        with (self.folder / "out.txt").open("w+") as out, (self.folder / "err.txt").open("w+") as err:
            process = subprocess.Popen(
                command,
                stdout=out,
                stderr=err,
                env=env,
                cwd=self.folder,
                preexec_fn=_heeds_ctrl_c,  # noqa: PLW1509 - one call, no locks
            )
            try:
                yield Started(process, self.folder)
            finally:
                if process.poll() is None:
                    process.kill()
                process.wait()

    def run(self, *arguments: str | Path) -> "Started":
        """Run a command to its end."""
        with self.mlcd(*arguments) as started:
            started.wait()
        return started

    # ---- what the store says, asked from outside while mlcd works

    @property
    def run_id(self) -> str:
        """The name of the only run; "" before there is one."""
        found = self._ask("SELECT run_id FROM runs")
        return str(found[0][0]) if found else ""

    def count(self, table: str) -> int:
        """Number of steps so far, by role and state: trials_started, trials_ended, finals_started, finals_ended."""
        role, _, what = table.partition("_")
        trial = "=" if role == "trials" else "<>"
        ended = " JOIN steps_ended e USING (run_id, number)" if what == "ended" else ""
        found = self._ask(f"SELECT count(*) FROM steps_started s{ended} WHERE s.role {trial} 'trial'")
        return int(found[0][0]) if found else 0

    def record(self) -> SearchRun:
        """The whole run."""
        with Store(self.home) as store:
            run = store.load(self.run_id)
        assert isinstance(run.problem, Problem)
        return cast(SearchRun, run)

    def _ask(self, query: str) -> list[tuple[Any, ...]]:
        try:
            with closing(sqlite3.connect(f"file:{self.home / FILE}?mode=ro", uri=True, timeout=10)) as db:
                return db.execute(query).fetchall()
        except sqlite3.OperationalError:  # not created yet
            return []

    # ---- the leases

    def leases(self) -> list[Path]:
        """Every lease's folder, in order of creation."""
        files = [file for file in self.home.glob("work/*/leases/*/job.json") if file.stat().st_size]  # written

        def created(file: Path) -> int:  # job.json is written again when the values of its variables are removed
            started = file.parent / "node-0" / "agent.pid"
            return (started if started.exists() else file).stat().st_mtime_ns

        return [file.parent for file in sorted(files, key=created)]

    def newest(self) -> Path:
        """The newest lease's folder."""
        return self.leases()[-1]

    def workers(self, lease: Path | None = None) -> list[int]:
        """Processes that run the script, of one lease or of all."""
        ids = [lease.name] if lease else [folder.name for folder in self.leases()]
        return [pid for name in ids for pid in processes.tagged(name) if "train.py" in _command(pid)]

    def agents(self, lease: Path) -> list[int]:
        """The lease's agents."""
        return [pid for pid in processes.tagged(lease.name) if "mlcd.platforms.agent" in _command(pid)]

    def samples(self, lease: Path) -> float:
        """The progress that the lease's job has reported, of the whole training."""
        return max((line["samples"] for line in lines_of(lease / "progress.jsonl") if "samples" in line), default=0.0)

    def processed(self) -> float:
        """Samples processed in all leases together."""
        total = 0.0
        for lease in self.leases():
            base = json.loads((lease / "job.json").read_text())["base_samples"]
            total += max(self.samples(lease) - base, 0.0)
        return total

    # ---- instants

    def await_trial(self, started: "Started", number: int = 1) -> Path:
        """Wait until trial `number` makes progress; returns its lease."""
        self.until(started, lambda: self.count("trials_started") >= number)
        return self._progressing(started, number)

    def await_training(self, started: "Started", attempt: int = 1) -> Path:
        """Wait until the training makes progress; returns its lease."""
        self.until(started, lambda: self.count("finals_started") >= attempt)
        return self._progressing(started, self.count("trials_started") + attempt)

    def _progressing(self, started: "Started", leases: int) -> Path:
        self.until(started, lambda: len(self.leases()) >= leases)
        lease = self.leases()[leases - 1]
        self.until(started, lambda: self.has_progressed(lease))
        return lease

    def has_progressed(self, lease: Path) -> bool:
        """Whether the lease's job has reported progress of its own."""
        return self.samples(lease) > float(json.loads((lease / "job.json").read_text())["base_samples"])

    def until(self, started: "Started | None", condition: Callable[[], bool]) -> None:
        """Wait until the condition holds. Raises AssertionError when mlcd ends before, or on timeout."""
        give_up = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            ended = started is not None and started.process.poll() is not None
            assert not ended, f"mlcd ended: {started.said if started else ''}"
            assert time.monotonic() < give_up, "waited in vain"
            time.sleep(0.02)

    def until_nothing_runs(self) -> None:
        """Wait until no process of any lease remains: the dead-man's switches."""
        self.until(None, lambda: not self.left_running())

    def left_running(self) -> list[int]:
        """Processes of any lease."""
        return [pid for folder in self.leases() for pid in processes.tagged(folder.name)]


@dataclass
class Started:
    """A started command of mlcd."""

    process: "subprocess.Popen[bytes]"
    folder: Path

    def wait(self) -> int:
        """Its exit code."""
        return self.process.wait(PATIENCE_SECONDS)

    def kill(self) -> None:
        """SIGKILL."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    @property
    def said(self) -> str:
        """Standard output and standard error, one after the other."""
        return (self.folder / "out.txt").read_text() + (self.folder / "err.txt").read_text()


def check_account(record: SearchRun) -> None:
    """Check the account: each lease's price for its time is in the totals, and within its authorisation."""
    for row in record.trials:
        assert isinstance(row.trial, Measurement | Failure)
        assert row.trial.usd <= row.authorised_usd, row
    parts = [row.trial.usd for row in record.trials] + [run.usd for run in record.earlier]
    parts += [record.final.usd] if record.final else []
    assert sum(usd.micros for usd in parts) == record.total_usd.micros
    budget = record.problem.goal.budget
    assert budget is None or record.total_usd <= budget


def lines_of(file: Path) -> list[dict[str, float]]:
    """The complete JSON lines of a file; empty while it does not exist."""
    try:
        text = file.read_text()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def _heeds_ctrl_c() -> None:
    # A shell starts what it runs in the background deaf to it, and that is inherited.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""
