"""Chaos: real runs that are disturbed at random instants, and checks of what remains.

    python benchmarks/chaos.py -o json            # writes benchmarks/results/chaos.json
    python benchmarks/chaos.py --only local:kill-mlcd --seed 3
    python benchmarks/chaos.py --only minicloud:kill-all:beside --runs 5

Each run searches and trains a job of a few seconds (tests/toy_job.py) and is hit once: in a trial or in the training,
at an instant drawn from the seed. Where mlcd itself died, the run is resumed. Afterwards no process or resource may
remain, every lease must be accounted for, the limits must hold, and mlcd must have reported in one line what happened.
"""

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pages

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.toy_job import MAIN, SHARED_CPUS, Started, Toy, check_account  # noqa: E402 - found only now

from mlcd.clouds import processes  # noqa: E402
from mlcd.clouds.minicloud import missing  # noqa: E402
from mlcd.clouds.minicloud.cgroup import groups_of  # noqa: E402
from mlcd.clouds.minicloud.network import links_of, namespaces_of, run_command  # noqa: E402
from mlcd.clouds.minicloud.record import link_tag, namespace_name, read_records  # noqa: E402
from mlcd.run.run import SearchRun  # noqa: E402
from mlcd.trial.outcome import Status  # noqa: E402
from mlcd.version import __version__  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "chaos.json"
PAGE = ROOT / "docs" / "chaos.md"
BUDGET_USD = 3.0
DEADLINE_SECONDS = 240.0
DISK_MIB = 24
BESIDE = "noise: 0.02, assurance: 0.99, strategy: exhaustive, work: beside, parallel: 2, restart_minutes: 0.05"
RESUME = ("kill-mlcd", "kill-all", "full-disk")
"""Blows after which mlcd may have died before the run is over."""

PLAN = (
    "local:kill-mlcd", "minicloud:network-down", "local:kill-worker", "minicloud:kill-mlcd", "local:hang",
    "minicloud:out-of-memory", "local:kill-agent", "minicloud:full-disk", "local:out-of-memory",
    "minicloud:network-deleted", "local:kill-all", "minicloud:kill-worker", "local:full-disk", "minicloud:hang",
    "local:kill-mlcd", "minicloud:kill-agent", "local:filled-disk", "minicloud:kill-mlcd", "local:kill-worker",
    "minicloud:kill-all", "local:kill-mlcd:beside", "minicloud:kill-mlcd:beside", "local:kill-all:beside",
    "minicloud:kill-all:beside", "local:kill-worker:beside", "minicloud:kill-agent:beside",
)  # fmt: skip
"""Every blow on every cloud where it is possible, the death of mlcd itself most often; the last ones while a trial and
a stretch of the training run beside each other."""

SAYS = {
    "kill-mlcd": r"mlcd ended before the (trial|training) did",
    "kill-all": r"mlcd ended before the (trial|training) did",
    "kill-worker": r"the worker of node \d+ ended with signal SIGKILL",
    "kill-agent": r"the agent of node \d+ (was ended from outside|ended)",
    "network-down": r"node \d+'s network is gone",
    "network-deleted": r"node \d+'s network is gone",
    "hang": r"no progress for \d+ s",
    "out-of-memory": r"no room for the next batch|ran out of its .* GiB of memory",
    "filled-disk": r"No space left on device",
    "full-disk": r"No space left on device|could not be saved|disk is full",
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One run.

    instant_seconds  after the first progress of the step that was hit; at the start, after its order
    said             the line that reports what happened
    wrong            failed checks; empty where all held
    """

    number: int
    seed: int
    cloud: str
    blow: str
    phase: str
    instant_seconds: float
    exit_codes: list[int]
    status: str
    trials: int
    attempts: int
    said: str
    usd: float
    budget_usd: float
    seconds: float
    wrong: list[str]


def strike(number: int, cloud: str, blow: str, seed: int, folder: Path, *, beside: bool = False) -> Row:
    """Make one run that is hit once, to its end.

    beside  whether the training runs beside the trials: those of the first round are two, and then one beside it
    """
    rng = random.Random(f"chaos|{seed}|{number}|{cloud}|{blow}{'|beside' if beside else ''}")
    phases = ("start", "trial", "training") if blow == "kill-mlcd" else ("trial", "training")
    phase, instant = rng.choice(phases), round(rng.uniform(0.0, 1.5), 2)
    mini = cloud == "minicloud"
    toy = Toy(folder, on=cloud, speeds={1: 800.0, 2: 1000.0, 3: 1100.0})
    if beside and not mini:
        toy.program = SHARED_CPUS + MAIN
    job = toy.job_file(
        search=BESIDE if beside else "noise: 0.02, assurance: 0.99, strategy: heterbo",
        nodes="[1, 2, 3]" if beside else "[1, 2]",
        samples=26_000 if mini else 16_000,
        types=("m.large",) if mini else ("local.1",),
        usd_per_second="0.01",
        budget=f"{BUDGET_USD} USD",
        deadline=f"{DEADLINE_SECONDS:.0f}s",
        trial=f"minutes: {0.15 if mini else 0.1}, watchdog_minutes: 0.06, precision: 0.5, retries: 2",
    )
    codes: list[int] = []
    texts: list[str] = []
    with _disk(toy.home, small="disk" in blow):
        with toy.mlcd("train", job) as run:
            number_hit = rng.choice((1, 2))
            if phase == "start":  # while the first nodes start, or just after
                instant = round(instant / 3, 2)
                toy.until(run, lambda: toy.count("trials_started") > 0)
                lease = toy.home
            else:
                lease = toy.await_trial(run, number_hit) if phase == "trial" else toy.await_training(run)
            time.sleep(instant)
            BLOWS[blow](Hit(toy, run, lease, rng))
            codes.append(run.wait())
            texts.append(run.said)
        if toy.record().status is Status.RUNNING and blow in RESUME:
            toy.until_nothing_runs()
            for command in (("down", "--on", cloud, "-y"), ("resume", toy.run_id)):
                again = toy.run(*command)
                codes.append(again.wait())
                texts.append(again.said)
        shown = toy.run("show", toy.run_id)
        record, said = toy.record(), "\n".join([*texts, shown.said]).replace(str(folder), "FOLDER")
        wrong = verdict(toy, record, said, blow)
    found = says(blow, said)
    return Row(
        number=number,
        seed=seed,
        cloud=cloud,
        blow=f"{blow}, beside" if beside else blow,
        phase=f"trial {number_hit}" if phase == "trial" else phase,
        instant_seconds=instant,
        exit_codes=codes,
        status=str(record.status),
        trials=len(record.trials),
        attempts=len(record.earlier) + (record.final is not None),
        said=_line(said, found.start()) if found else "" if wrong else "nothing: the run was not disturbed",
        usd=round(record.total_usd.dollars, 4),
        budget_usd=BUDGET_USD,
        seconds=round(record.total_seconds, 1),
        wrong=wrong,
    )


def verdict(toy: Toy, record: SearchRun, said: str, blow: str) -> list[str]:
    """The checks that a run failed after it was hit."""
    wrong = []
    if not record.status.is_final:
        wrong.append(f"the run is {record.status}")
    for started, ended in (("trials_started", "trials_ended"), ("finals_started", "finals_ended")):
        if toy.count(started) != toy.count(ended):
            wrong.append(f"{toy.count(started)} {started}, {toy.count(ended)} {ended}")
    try:
        check_account(record)
    except AssertionError as error:
        wrong.append(f"the account: {error}")
    if record.total_seconds > DEADLINE_SECONDS:
        wrong.append("the deadline did not hold")
    if record.status is Status.DONE and not (Path(record.outputs) / "model.json").exists():
        wrong.append("the model is not home")
    wrong += [f"left: {what}" for lease in toy.leases() for what in remains(lease.name)]
    if "Traceback" in said or "this is a bug" in said:
        wrong.append("a traceback, or an error that nobody had thought of: " + _line(said, said.find("this is a bug")))
    undisturbed = record.status is Status.DONE and not record.history.failures and not record.earlier
    if not says(blow, said) and not (blow == "full-disk" and undisturbed):
        wrong.append("nothing says what happened")
    return wrong


def says(blow: str, said: str) -> re.Match[str] | None:
    """Where a text reports a blow, however its lines are wrapped."""
    return re.search(SAYS[blow].replace(" ", r"\s+"), said)


def remains(lease_id: str) -> list[str]:
    """What remains of a lease, on any cloud."""
    remaining = [f"process {pid}" for pid in processes.tagged(lease_id)]
    if missing():
        return remaining
    remaining += [f"namespace {name}" for name in namespaces_of(lease_id)]
    remaining += [f"link {name}" for name in links_of(lease_id)]
    remaining += [f"control group {group}" for group in groups_of(lease_id)]
    return remaining + [f"record {name}" for name in read_records() if name == lease_id]


# ---- blows


@dataclass(frozen=True)
class Hit:
    """The target of a blow: the job, the command that runs it, and the current lease."""

    toy: Toy
    run: Started
    lease: Path
    rng: random.Random


def _kill_mlcd(hit: Hit) -> None:
    hit.run.kill()


def _kill_all(hit: Hit) -> None:
    """Kill mlcd and its agents at once: only the system and the next mlcd can then end the job."""
    agents = hit.toy.agents(hit.lease)
    hit.run.kill()
    _kill(agents)


def _kill_worker(hit: Hit) -> None:
    hit.toy.until(hit.run, lambda: bool(hit.toy.workers(hit.lease)))
    _kill([hit.rng.choice(hit.toy.workers(hit.lease))])


def _kill_agent(hit: Hit) -> None:
    hit.toy.until(hit.run, lambda: bool(hit.toy.agents(hit.lease)))
    _kill([hit.rng.choice(hit.toy.agents(hit.lease))])


def _network_down(hit: Hit) -> None:
    run_command("ip", "link", "set", f"{link_tag(hit.lease.name)}-{_some_node(hit)}", "down")


def _network_deleted(hit: Hit) -> None:
    run_command("ip", "netns", "delete", namespace_name(hit.lease.name, _some_node(hit)))


def _once(what: str) -> Callable[[Hit], None]:
    """A fault of this job that the next one does not have."""

    def blow(hit: Hit) -> None:
        before = _ends(hit.toy)
        hit.toy.tell(what)
        hit.toy.until(None, lambda: _ends(hit.toy) > before or hit.run.process.poll() is not None)
        hit.toy.untell(what)

    return blow


def _out_of_memory(hit: Hit) -> None:
    # Memory may really be filled only on a node that has its own limit.
    _once("full-memory" if hit.toy.on == "minicloud" else "out-of-memory")(hit)


def _full_disk(hit: Hit) -> None:
    """Fill the disk from outside the job, and free it some seconds later."""
    filler = hit.toy.home / "filler"
    try:
        with filler.open("wb") as file:
            while True:
                file.write(bytes(4096))
                file.flush()
    except OSError:
        until = time.monotonic() + 6.0
        while time.monotonic() < until and hit.run.process.poll() is None:
            time.sleep(0.1)
    finally:
        filler.unlink()


BLOWS: dict[str, Callable[[Hit], None]] = {
    "kill-mlcd": _kill_mlcd,
    "kill-all": _kill_all,
    "kill-worker": _kill_worker,
    "kill-agent": _kill_agent,
    "network-down": _network_down,
    "network-deleted": _network_deleted,
    "hang": _once("hang"),
    "out-of-memory": _out_of_memory,
    "filled-disk": _once("fill-disk"),
    "full-disk": _full_disk,
}


def _some_node(hit: Hit) -> int:
    return hit.rng.randrange(len(list(hit.lease.glob("node-*"))))


def _kill(pids: list[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _ends(toy: Toy) -> int:
    return toy.count("trials_ended") + toy.count("finals_ended")


@contextmanager
def _disk(folder: Path, *, small: bool) -> Iterator[None]:
    """Mount a small separate disk on a folder."""
    if not small:
        yield
        return
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _line(text: str, at: int) -> str:
    """The line of a text at a position, at most 200 characters."""
    line = text[text.rfind("\n", 0, at) + 1 :].split("\n", 1)[0]
    return " ".join(line.split())[:200]


def table(rows: list[dict[str, Any]]) -> str:
    """Stored rows in Markdown."""
    lines = ["| # | cloud | blow | hit | exit codes | ended | trials, trainings | spent | said |", "|" + "---|" * 9]
    for row in rows:
        hit = f"{row['phase']} + {row['instant_seconds']} s"
        codes = ", ".join(map(str, row["exit_codes"]))
        ended = row["status"] if not row["wrong"] else f"WRONG: {'; '.join(row['wrong'])}"
        said = row["said"].strip(' !",').replace("|", "/")
        lines.append(
            f"| {row['number']} | {row['cloud']} | {row['blow']} | {hit} | {codes} | {ended} |"
            f" {row['trials']}, {row['attempts']} | ${row['usd']:.2f} of ${row['budget_usd']:.2f} | {said} |"
        )
    return "\n".join(lines)


def parts() -> pages.Parts:
    """What the page says of the stored results, by its name there."""
    record = json.loads(RESULTS.read_text(encoding="utf-8"))
    rows = record["rows"]
    wrong = sum(bool(row["wrong"]) for row in rows)
    held = "All of the above held in all of them." if not wrong else f"In {wrong} of them something did not hold."
    made = f"{len(rows)} runs, made on {record['date']} with the code of {record['code']}, seed {record['seed']}."
    return {PAGE: {"chaos": f"{made} {held}\n\n{table(rows)}"}}


def possible(cloud: str, blow: str) -> str:
    """Why a run is not possible here; "" where it is."""
    if cloud == "minicloud" and missing():
        return "; ".join(missing())
    if "disk" in blow and os.geteuid() != 0:
        return "a small disk can be mounted by root only"
    return ""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, help="all of them, or one of --only, unless given")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="CLOUD:BLOW or CLOUD:BLOW:beside")
    parser.add_argument("-o", dest="output", choices=("text", "json"), default="text")
    given = parser.parse_args(arguments)
    runs = given.runs or (1 if given.only else len(PLAN))
    wanted = [given.only or PLAN[i % len(PLAN)] for i in range(runs)]
    rows, skipped = [], []
    for number, what in enumerate(wanted, start=1):
        cloud, blow, *work = what.split(":")
        if reason := possible(cloud, blow):
            skipped.append(f"{what}: {reason}")
            print(f"{number:2} {what}: not possible here: {reason}")
            continue
        with tempfile.TemporaryDirectory(prefix="mlcd-chaos-", ignore_cleanup_errors=True) as folder:
            row = strike(number, cloud, blow, given.seed, Path(folder), beside="beside" in work)
        rows.append(row)
        state = "ok" if not row.wrong else "WRONG: " + "; ".join(row.wrong)
        print(
            f"{number:2} {what:26} {row.phase:9} +{row.instant_seconds:.2f} s  exit {row.exit_codes} {row.status:10}"
            f" ${row.usd:.3f}  {state}\n     {row.said}",
            flush=True,
        )
    if given.output == "json" and not given.only:
        made = {"date": f"{datetime.now(UTC):%Y-%m-%d}", "version": __version__, "code": pages.sources()}
        data = {**made, "seed": given.seed, "skipped": skipped, "rows": [asdict(row) for row in rows]}
        RESULTS.write_text(json.dumps(data, indent=1) + "\n")
    return 1 if any(row.wrong for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
