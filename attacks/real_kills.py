"""Real runs on this machine whose mlcd, or mlcd and agents at once, are killed at random instants.

Most jobs leave a daemon behind: forked twice, in a session of its own, with an empty environment. Afterwards
`mlcd down` and `mlcd resume`, in either order, must leave no process, and the run's books must be whole. With control
groups the daemon must be ended; where they are forced off, it must at least be listed by `mlcd down`.
"""

import json
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from tests.toy_job import MAIN, SHARED_CPUS, Toy, check_account

from attacks.attack import Attack, Kind, Tally
from mlcd.clouds import processes
from mlcd.clouds.lease_records import LeaseRecords
from mlcd.clouds.minicloud import missing
from mlcd.clouds.nodes import PREFIX
from mlcd.trial.outcome import Status

chaos = import_module("chaos")  # a script, not a module that mypy knows

AT_ONCE = 2
"""Cases at the same time: their jobs sleep most of the time."""
TRIES = 3
"""How many times a case's run is made: another mlcd's nodes may leave no room for its trial, so that it ends early."""
NOTED_SECONDS = 2.0
"""After so long an agent has noted a daemon for certain (it looks twice a second)."""
BUDGET = "3 USD"
GROUPS = ("v1", "v2", "none", "found")
"""Which control groups `local` uses: those of one version, none, or what it finds by itself."""
_FORCED = """\
import mlcd.clouds.control_groups as groups
parents = {parents}
groups.tracking_parents = lambda: parents
"""
_PARENTS = {"v1": "groups._parents_v1()", "v2": "groups._parents_v2()", "none": "()"}
_DAEMON = """\
import subprocess
subprocess.run("cd {cwd} && (setsid env -i sleep 86400.{mark} > /dev/null 2>&1 < /dev/null &)", shell=True)
"""
_minicloud = threading.Lock()  # its nodes must find room on the machine


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is done in one case. `mark` are the digits by which the daemon is told from all other processes."""

    number: int
    cloud: str
    groups: str
    blow: str
    phase: str
    instant_seconds: float
    daemon_folder: str
    first: str
    mark: str
    warm: bool
    work: str

    def __str__(self) -> str:
        daemon = f", a daemon in {self.daemon_folder}" if self.daemon_folder else ""
        warm = " with warm workers" if self.warm else ""
        return (
            f"{self.cloud}{warm} (groups: {self.groups}, work: {self.work}), {self.blow} killed"
            f" {self.instant_seconds:.2f} s into the"
            f" {self.phase}{daemon}, then `mlcd {self.first}`"
        )


def draw(number: int, seed: int) -> Case:
    """The case of this number; on a machine without minicloud its cases are on local."""
    rng = random.Random(f"real|{seed}|{number}")
    cloud = "minicloud" if number % 6 == 5 and not missing() else "local"
    groups = GROUPS[number % len(GROUPS)] if cloud == "local" else "found"
    blow = rng.choice(("mlcd", "mlcd and agents", "mlcd and agents"))
    phase = rng.choice(("start", "trial", "training"))
    instant = rng.uniform(0.0, 3.0)
    # Without groups, a daemon that works elsewhere is only known once an agent has noted it.
    elsewhere = groups != "none" or (phase != "start" and instant >= NOTED_SECONDS)
    folder = rng.choice(("", "/", "/", ".")) if elsewhere else rng.choice(("", ".", "."))
    return Case(
        number=number,
        cloud=cloud,
        groups=groups,
        blow=blow,
        phase=phase,
        instant_seconds=instant,
        daemon_folder=folder,
        first=rng.choice(("down", "resume")),
        mark=f"{os.getpid()}{seed:03}{number:04}",
        warm=cloud == "minicloud" and rng.random() < 0.5,
        work="beside" if cloud == "local" and rng.random() < 0.5 else "kept",
    )


def attack(count: int, seed: int, folder: Path) -> Tally:
    """All cases, AT_ONCE at the same time."""
    tally = Tally()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for case, (outcome, findings) in pool.map(lambda case: (case, _run(case, folder)), _cases(count, seed)):
            tally.count(outcome)
            for kind, what in findings:
                tally.find(kind, case.number, f"{case}: {what}")
    return tally


def _cases(count: int, seed: int) -> list[Case]:
    return [draw(number, seed) for number in range(count)]


def _run(case: Case, folder: Path) -> tuple[str, list[tuple[Kind, str]]]:
    """(how it ended, what is wrong). A run that ended before it came to the case's instant is made again."""
    lock: AbstractContextManager[object] = _minicloud if case.cloud == "minicloud" else nullcontext()
    try:
        for attempt in range(TRIES):
            with lock:
                try:
                    return _strike(case, folder / f"{case.number}-{attempt}")
                except AssertionError as error:
                    said = str(error)
            if "waited in vain" in said:
                return "hang", [(Kind.HANG, "the run did not come to the case's instant, nor to its end")]
            if wrong := _bad_words(said):
                return "failed", wrong
        return "ended before the kill", []
    finally:
        for pid in _daemons(case):
            _kill(pid)


def _strike(case: Case, folder: Path) -> tuple[str, list[tuple[Kind, str]]]:
    mini = case.cloud == "minicloud"
    toy = Toy(folder, on=case.cloud)
    forced = _FORCED.format(parents=_PARENTS[case.groups]) if case.groups in _PARENTS else ""
    toy.program = forced + (SHARED_CPUS if case.work == "beside" else "") + MAIN
    if case.daemon_folder:
        script = folder / "code" / "train.py"
        script.write_text(_DAEMON.format(cwd=case.daemon_folder, mark=case.mark) + script.read_text())
    job = toy.job_file(
        samples=6000,
        types=("m.large",) if mini else ("local.1",),
        budget=BUDGET,
        deadline="400s",
        trial="minutes: 0.05, watchdog_minutes: 0.2, precision: 0.5, retries: 2",
        search=f"noise: 0.02, assurance: 0.99, strategy: exhaustive, work: {case.work}, restart_minutes: 0.05",
    )
    if case.warm:
        job.write_text(job.read_text().replace("resources: {", "resources: {warm_workers: true, "))
    texts: list[str] = []
    with toy.mlcd("train", job) as run:
        warm_prefix = f"{PREFIX}warm-{run.process.pid}-"
        if case.phase == "start":
            toy.until(run, lambda: toy.count("trials_started") > 0)
        else:
            _ = toy.await_trial(run) if case.phase == "trial" else toy.await_training(run)
        time.sleep(case.instant_seconds)
        late = run.process.poll() is not None
        agents = [pid for lease in toy.leases() for pid in toy.agents(lease)] if "agents" in case.blow else []
        agents += [pid for lease, pids in _tagged(warm_prefix) for pid in pids] if agents else []
        groups = [Path(group) for record in LeaseRecords(toy.home).all()[0] for group in record.groups]
        for pid in (*agents, *(() if late else (run.process.pid,))):
            _kill(pid)
        run.wait()
        texts.append(run.said)
    wrong = _recover(case, toy, texts)
    wrong += [(Kind.LEFT_RUNNING, f"the warm worker {lease}") for lease, _ in _tagged(warm_prefix)]
    wrong += _books(toy)
    wrong += [(Kind.LEFT_RUNNING, f"the control group {group} is left") for group in groups if group.exists()]
    wrong += _bad_words("\n".join(texts))
    return ("ended before the kill" if late else f"{case.blow} killed"), wrong


def _bad_words(said: str) -> list[tuple[Kind, str]]:
    """What no output of mlcd may contain."""
    wrong = [(Kind.TRACEBACK, "a traceback")] if "Traceback (most recent call last)" in said else []
    return wrong + ([(Kind.BUG, "an error that nobody had thought of")] if "bug in mlcd" in said else [])


def _kill(pid: int) -> None:
    """SIGKILL, unless it has just ended."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _recover(case: Case, toy: Toy, texts: list[str]) -> list[tuple[Kind, str]]:
    """`mlcd down` and `mlcd resume`, in the case's order, and down once more; what they left undone."""
    wrong: list[tuple[Kind, str]] = []
    listed: set[int] = set()
    unsettled = toy.record().status is Status.RUNNING
    order = ["down", "resume", "down"] if case.first == "down" else ["resume", "down"]
    # minicloud's nodes belong to the whole machine: those of other homes are not the attack's to end.
    which = [toy.run_id] if case.cloud == "minicloud" else []
    for command in order:
        if command == "down":
            kills = _out_of_memory_kills()
            done = toy.run("down", *which, "--on", case.cloud, "-y", "-o", "json")
            try:
                data = json.loads((toy.folder / "out.txt").read_text())
            except ValueError:
                said = done.said[-300:] or _why_silent(toy.folder, _out_of_memory_kills() - kills)
                wrong.append((Kind.WRONG, f"`mlcd down` ended with {done.process.returncode}: {said}"))
                continue
            listed |= {row["pid"] for row in data["unproved"]}
            expected = {1} if data["unproved"] else {0}
            if _daemons(case) and not set(_daemons(case)) & listed:
                wrong.append((Kind.LEFT_RUNNING, "`mlcd down` neither ended nor listed the daemon"))
        elif unsettled:
            done = toy.run("resume", toy.run_id)
            expected = {0, 5}
        else:
            continue
        texts.append(done.said)
        if done.process.returncode not in expected:
            wrong.append((Kind.WRONG, f"`mlcd {command}` ended with {done.process.returncode}: {done.said[-300:]}"))
    left = _daemons(case)
    if left and case.groups == "none":
        # `mlcd down` has listed them, and leaves them to the user, who ends them.
        for pid in left:
            _kill(pid)
        done = toy.run("down", *which, "--on", case.cloud, "-y")
        if done.process.returncode != 0:
            wrong.append((Kind.WRONG, f"what was listed is ended, and `mlcd down` says: {done.said[-300:]}"))
    elif left:
        wrong.append((Kind.LEFT_RUNNING, f"the daemon (pid {left[0]})"))
    wrong += [(Kind.LEFT_RUNNING, what) for lease in toy.leases() for what in chaos.remains(lease.name)]
    return wrong


def _out_of_memory_kills() -> int:
    """Processes that the system has killed for lack of memory since it started."""
    lines = Path("/proc/vmstat").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def _why_silent(folder: Path, kills: int) -> str:
    """What the machine can tell of a command that said nothing: mlcd does so where it is killed, or cannot write."""
    free = os.statvfs(folder)
    mib = free.f_bavail * free.f_frsize / 2**20
    return f"nothing on either stream; {kills} processes killed for lack of memory, {mib:,.0f} MiB free on disk"


def _books(toy: Toy) -> list[tuple[Kind, str]]:
    """What is wrong with the run in the store: every step ended once, charged once, inside the limits."""
    wrong: list[tuple[Kind, str]] = []
    record = toy.record()
    if not record.status.is_final:
        wrong.append((Kind.WRONG, f"the run is {record.status}"))
    for role in ("trials", "finals"):
        started, ended = toy.count(f"{role}_started"), toy.count(f"{role}_ended")
        if started != ended:
            wrong.append((Kind.WRONG, f"{started} {role} were started, {ended} are in the books"))
    paid = Counter((row.trial.config, row.trial.attempt) for row in record.trials)
    if set(paid.values()) - {1}:
        wrong.append((Kind.OVERSPEND, "a trial is paid twice"))
    try:
        check_account(record)
    except AssertionError as error:
        wrong.append((Kind.OVERSPEND, f"the account: {error}"))
    return wrong


def _tagged(prefix: str) -> list[tuple[str, list[int]]]:
    return [(lease, pids) for lease, pids in processes.all_tagged().items() if lease.startswith(prefix)]


def _daemons(case: Case) -> list[int]:
    """Every process whose command line has the case's mark, however it hides."""
    return [pid for pid in processes.all_pids() if processes.command_of(pid) == f"sleep 86400.{case.mark}"]


ATTACKS = (
    (
        Attack(
            name="real-kills",
            what="kills of real runs on this machine, of mlcd or of mlcd and agents at once",
            count=30,
            run=attack,
        ),
    )
    if sys.platform == "linux"
    else ()
)
