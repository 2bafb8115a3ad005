"""Real trainings on the minicloud whose spot nodes are really killed: spot as a choice against on demand only, paired.

    sudo .venv/bin/python benchmarks/minicloud_spot.py [--pairs 10] [--most-seconds 270]

The digits network with knobs (data-loading processes, precision of the exchange of gradients, micro-batch), 2 types x
1, 2 and 4 nodes x 8 settings, and `use_spot: any` or `false`. While a lease has spot nodes, a Poisson process of
--rate interruptions of each node an hour picks one of them and kills every process in its control group (SIGKILL); the
job believes half that rate. Every pair has one seed, and its arms run one after the other in a random order. Rows are
added to results/minicloud/spot.json after each run; a started pair is finished by the next call. Needs an otherwise
idle machine: run it in pieces with --most-seconds.
"""

import argparse
import json
import os
import random
import signal
import statistics
import tempfile
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pages
from minicloud_bed import BATCH, ROOT, SAMPLES
from scipy.stats import t as student

from mlcd.clouds.minicloud.cgroup import groups_of
from mlcd.clouds.minicloud.cloud import MiniCloud
from mlcd.clouds.minicloud.leased import MiniNodes
from mlcd.clouds.nodes import NodeOrder
from mlcd.jobs.prepared import begin
from mlcd.jobs.train import prepare
from mlcd.run.run import SearchRun
from mlcd.spec import TrainSpec, spec_from_mapping
from mlcd.store.store import Store
from mlcd.version import __version__

KEPT = ROOT / "benchmarks" / "results" / "minicloud" / "spot.json"
PAGE = ROOT / "docs" / "how-to" / "spot.md"
ARMS = ("any", "on-demand")
EPOCHS = 60
DEADLINE_SECONDS, BUDGET_USD = 240, 0.8
TRIAL = {"minutes": 0.08, "extra_minutes_per_3_nodes": 0, "extension": 0.5, "watchdog_minutes": 0.15}
LONGEST_RUN_SECONDS = 70.0
"""No run is started with less left of --most-seconds."""


class Interrupter:
    """Kills spot nodes of a minicloud by a Poisson process, while it is entered."""

    def __init__(self, per_node_hour: float, seed: str) -> None:
        self.rate, self.random = per_node_hour / 3600, random.Random(seed)
        self.killed: list[tuple[str, float]] = []
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._start = MiniCloud.start

    def __enter__(self) -> "Interrupter":
        start, watch = self._start, self._watch

        def started(engine: MiniCloud, order: NodeOrder) -> MiniNodes:
            nodes = start(engine, order)
            if order.spot:
                wait = self.random.expovariate(self.rate * order.count)
                thread = threading.Thread(target=watch, args=(order.lease_id, wait), daemon=True)
                self._threads.append(thread)
                thread.start()
            return nodes

        MiniCloud.start = started  # type: ignore[method-assign, assignment]
        return self

    def __exit__(self, *_: object) -> None:
        MiniCloud.start = self._start  # type: ignore[method-assign]
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _watch(self, lease_id: str, wait: float) -> None:
        until = time.monotonic() + wait
        while time.monotonic() < until:
            if self._over.wait(min(0.2, max(until - time.monotonic(), 0.0))) or not groups_of(lease_id):
                return
        groups = groups_of(lease_id)
        if not groups:
            return
        for pid in sorted(groups[self.random.randrange(len(groups))].pids()):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.killed.append((lease_id, wait))


def job(arm: str, rate: float) -> TrainSpec:
    """The digits network with knobs, on both markets or on demand."""
    spot: dict[str, Any] = {"spot": {"interruptions_per_hour": rate / 2, "save_seconds": 1}} if arm == "any" else {}
    return spec_from_mapping(
        {
            "name": f"digits-{arm}",
            "workdir": str(ROOT / "examples" / "digits-cnn"),
            "resources": {
                "infra": "minicloud",
                "instance_type": ["m.large", "n.large"],
                "warm_workers": True,
                "use_spot": "any" if arm == "any" else False,
            },
            "num_nodes": [1, 2, 4],
            "run": f"python knobs.py --epochs {EPOCHS} --batch {BATCH}",
            "platform": {"name": "pytorch", "topology": "ring"},
            "envs": {"MLCD_CHECKPOINT_SECONDS": "5"},
            "knobs": {"communication": ["fp32", "fp16"], "micro_batch": [48, 192], "workers": [0, 1]},
            "job": {"samples": SAMPLES, "epochs": EPOCHS, "batch": BATCH},
            "progress": {"steps": "mlcd.steps"},
            "checkpoints": True,
            "outputs": ["model.pt", "metrics.json"],
            "goal": {"minimize": "cost", "deadline": f"{DEADLINE_SECONDS}s", "budget": f"{BUDGET_USD} USD"},
            "search": {"strategy": "auto", "work": "kept", "max_trials": 6, "assurance": 0.9, "trial": TRIAL, **spot},
        }
    )


def one(arm: str, pair: int, rate: float) -> dict[str, Any]:
    """One run, to its end."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as home, Store(Path(home), url="") as store:
        prepared = prepare(job(arm, rate), seed=pair, folder=Path(home))
        with Interrupter(rate, f"{pair}|{arm}") as interrupter:
            run: SearchRun = begin(prepared, store=store)
        outputs = sorted(file.name for file in Path(home).glob("work/*/outputs/*"))
    goal = run.problem.goal
    return {
        "pair": pair,
        "arm": arm,
        "status": run.status.value,
        "choice": str(run.choice.config) if run.choice else None,
        "trials": len(run.trials),
        "attempts": [[str(a.config), a.ending.value, round(a.seconds, 1), a.usd.dollars] for a in run.attempts],
        "killed": len(interrupter.killed),
        "interruptions": len(run.interrupted_steps),
        "in_flight": len(run.in_flight),
        "outputs": outputs,
        "done_samples": round(run.history.reached_samples),
        "total_usd": run.total_usd.dollars,
        "total_seconds": round(run.total_seconds, 1),
        "steps_usd": sum(s.outcome.usd.micros for s in run.steps if s.outcome is not None) / 1e6,
        "overspent": goal.budget is not None and run.total_usd > goal.budget,
        "late": goal.deadline_seconds is not None and run.total_seconds > goal.deadline_seconds,
        "wall_seconds": round(time.monotonic() - began, 1),
    }


def parts() -> dict[Path, dict[str, str]]:
    """What the page says of the record."""
    found = json.loads(KEPT.read_text(encoding="utf-8"))
    rows = found["rows"]
    lines = [
        "| | runs | finished | over budget | late | nodes killed | interruptions noticed | mean total | mean money |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for arm in ARMS:
        some = [row for row in rows if row["arm"] == arm]
        ends = f"{sum(r['status'] == 'done' for r in some)} | {sum(r['overspent'] for r in some)}"
        kills = f"{sum(r['killed'] for r in some)} | {sum(r['interruptions'] for r in some)}"
        means = [statistics.mean(r[name] for r in some) for name in ("total_seconds", "total_usd")]
        lines.append(
            f"| `{arm}` | {len(some)} | {ends} | {sum(r['late'] for r in some)} | {kills} | {means[0]:.0f} s"
            f" | ${means[1]:.4f} |"
        )
    pairs = _pairs(rows)
    if len(pairs) > 1:
        mean, half = statistics.mean(pairs), statistics.stdev(pairs) / len(pairs) ** 0.5
        half *= float(student.ppf(0.975, len(pairs) - 1))
        interval = f"{mean:+.0%} ({mean - half:+.0%} .. {mean + half:+.0%})"
        lines += ["", f"Money of `any` against `on-demand`, {len(pairs)} pairs that both finished: {interval}."]
    lines += ["", f"`{found['command']}`, {found['date']}, commit {found['code']}."]
    return {PAGE: {"minicloud-spot": "\n".join(lines)}}


def _pairs(rows: list[dict[str, Any]]) -> list[float]:
    by_arm = {arm: {row["pair"]: row for row in rows if row["arm"] == arm} for arm in ARMS}
    both = [(by_arm["any"][n], by_arm["on-demand"][n]) for n in by_arm["any"] if n in by_arm["on-demand"]]
    return [a["total_usd"] / b["total_usd"] - 1 for a, b in both if a["status"] == b["status"] == "done"]


def main() -> None:
    """Run the pairs that are missing, within the time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--rate", type=float, default=120.0, help="interruptions of one spot node an hour")
    parser.add_argument("--most-seconds", type=float, default=270.0)
    parser.add_argument("--out", type=Path, default=KEPT)
    parser.add_argument("--report", action="store_true")
    given = parser.parse_args()
    began = time.monotonic()
    rows: list[dict[str, Any]] = json.loads(given.out.read_text())["rows"] if given.out.exists() else []
    made = {(row["pair"], row["arm"]) for row in rows}
    for pair in () if given.report else range(1, given.pairs + 1):
        for arm in random.Random(f"spot {pair}").sample(ARMS, len(ARMS)):
            if (pair, arm) in made or given.most_seconds - (time.monotonic() - began) < LONGEST_RUN_SECONDS:
                continue
            rows.append(one(arm, pair, given.rate))
            print(json.dumps(rows[-1]), flush=True)
            about = {
                "command": f"benchmarks/minicloud_spot.py --rate {given.rate:g}",
                "date": f"{datetime.now(UTC):%Y-%m-%d}",
                "version": __version__,
                "code": pages.sources(),
            }
            given.out.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    if given.out == KEPT:
        pages.write(parts())


if __name__ == "__main__":
    main()
