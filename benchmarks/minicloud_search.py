"""Real searches of heterbo, convbo, cherrypick and random on the minicloud; heterbo with and without productive trials.

    sudo .venv/bin/python benchmarks/minicloud_search.py [--seeds 3]

Needs results/minicloud/bed.csv (benchmarks/minicloud_bed.py) for the limits and the noise. All arms run in turns, in a
new random order for each (goal, seed). Adds every run to benchmarks/results/minicloud/search.json and writes the tables
of docs/clouds/minicloud-results.md. `--report` only writes the tables again. Takes most of an hour.
"""

import argparse
import csv
import json
import random
import statistics
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pages
from minicloud_bed import EPOCHS, RESULTS, ROOT, SAMPLES, job, speeds, spread
from scipy.stats import t as student

from mlcd.jobs.prepared import begin
from mlcd.jobs.train import prepare
from mlcd.run.run import SearchRun
from mlcd.spec import TrainSpec
from mlcd.store.store import Store
from mlcd.version import __version__

PRODUCTIVE = ", productive"
ARMS = ("heterbo", "convbo", "cherrypick", "random", f"heterbo{PRODUCTIVE}", f"random{PRODUCTIVE}")
TRIAL = {"minutes": 0.08, "extra_minutes_per_3_nodes": 0, "extension": 0.25, "watchdog_minutes": 0.1}
BUDGET, DEADLINE = 5.0, 5.0
"""Times the cheapest configuration's training, and the fastest one's. A trial takes a fifth of a training here, so the
limits have to be wider than for trainings of hours."""
PAGE = ROOT / "docs" / "clouds" / "minicloud-results.md"
KEPT = RESULTS / "search.json"


@dataclass(frozen=True)
class Bed:
    """The results of the exhaustive measurement."""

    budget_usd: float
    deadline_seconds: float
    noise: float
    fastest: str
    cheapest: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--arms", default=";".join(ARMS))
    parser.add_argument("--report", action="store_true")
    given = parser.parse_args()
    bed = read_bed()
    if not given.report:
        searched(bed, given.arms.split(";"), given.seeds, KEPT)
    pages.write(parts())


def read_bed() -> Bed:
    with (RESULTS / "bed.csv").open() as file:
        rows = list(csv.DictReader(file))
    with (RESULTS / "table" / "instances.csv").open() as file:
        prices = {row["instance"]: float(row["usd_per_hour"]) for row in csv.DictReader(file)}
    seconds = {config: SAMPLES * EPOCHS / statistics.mean(some) for config, some in speeds(rows).items()}
    usd = {(t, n): s * n * prices[t] / 3600 for (t, n), s in seconds.items()}
    fastest, cheapest = min(seconds, key=lambda c: seconds[c]), min(usd, key=lambda c: usd[c])
    return Bed(
        budget_usd=round(BUDGET * usd[cheapest], 4),
        deadline_seconds=round(DEADLINE * seconds[fastest]),
        noise=round(max(spread(rows), 0.02), 3),
        fastest=f"{fastest[1]} x {fastest[0]}: {seconds[fastest]:.0f} s, ${usd[fastest]:.4f}",
        cheapest=f"{cheapest[1]} x {cheapest[0]}: {seconds[cheapest]:.0f} s, ${usd[cheapest]:.4f}",
    )


def searched(bed: Bed, arms: list[str], seeds: int, path: Path) -> None:
    """Run every arm for every goal and seed; results are written after each run."""
    goals = {
        "budget": {"minimize": "time", "budget": f"{bed.budget_usd} USD"},
        "deadline": {"minimize": "cost", "deadline": f"{bed.deadline_seconds:.0f}s"},
    }
    rows: list[dict[str, object]] = json.loads(path.read_text())["rows"] if path.exists() else []
    rows = [row for row in rows if row["arm"] not in arms]
    for seed in range(1, seeds + 1):
        for goal, wanted in goals.items():
            order = random.Random(f"{seed} {goal}").sample(arms, len(arms))
            for arm in order:
                began = time.time()
                with tempfile.TemporaryDirectory() as home, Store(Path(home)) as store:
                    run = begin(prepare(_spec(arm, wanted, bed), seed=seed, folder=Path(home)), store=store)
                    rows.append(_row(run, goal=goal, arm=arm, seed=seed, wall=time.time() - began))
                print(json.dumps(rows[-1]), flush=True)
                data = {"mlcd": __version__, "date": datetime.now(UTC).isoformat(), "bed": vars(bed), "rows": rows}
                path.write_text(json.dumps(data, indent=1) + "\n")


def _spec(arm: str, goal: dict[str, str], bed: Bed) -> TrainSpec:
    strategy = arm.partition(",")[0]
    search = {"strategy": strategy, "noise": bed.noise, "assurance": 0.999, "trial": TRIAL}
    return job(goal=goal, search=search, checkpoints=arm.endswith(PRODUCTIVE))


def _row(run: SearchRun, *, goal: str, arm: str, seed: int, wall: float) -> dict[str, object]:
    limits = run.problem.goal
    usd, seconds = run.total_usd.dollars, run.total_seconds
    over = (limits.budget is not None and usd > limits.budget.dollars) or (
        limits.deadline_seconds is not None and seconds > limits.deadline_seconds
    )
    return {
        "goal": goal,
        "arm": arm,
        "seed": seed,
        "status": run.status.value,
        "choice": str(run.choice.config) if run.choice else None,
        "trials": len(run.trials),
        "failed": len(run.history.failures),
        "search_seconds": round(run.search_seconds, 1),
        "search_usd": run.search_usd.dollars,
        "total_seconds": round(seconds, 1),
        "total_usd": usd,
        "predicted_seconds": run.choice.seconds if run.choice else None,
        "train_seconds": run.final.seconds if run.final else None,
        "done_by_trials": run.history.reached_samples / run.problem.work_samples,
        "limit_broken": over,
        "wall_seconds": round(wall, 1),
        "tried": [str(step.config) for step in run.trials],
    }


def parts() -> dict[Path, dict[str, str]]:
    """The tables of the page, by their names there."""
    rows = json.loads(KEPT.read_text(encoding="utf-8"))["rows"]
    lines = ["| goal | arm | mean total | paired difference to heterbo (95%) | limits broken | unfinished | trials |"]
    lines.append("|---|---|---|---|---|---|---|")
    pairs = [
        "| goal | strategy | thrown away | productive | paired difference (95%) | of the training done by trials |"
    ]
    pairs.append("|---|---|---|---|---|---|")
    for goal, unit in (("budget", "total_seconds"), ("deadline", "total_usd")):
        totals = {arm: {r["seed"]: r for r in rows if r["goal"] == goal and r["arm"] == arm} for arm in ARMS}
        for arm, runs in totals.items():
            if not runs:
                continue
            values = [float(str(r[unit])) for r in runs.values()]
            broken = sum(bool(r["limit_broken"]) for r in runs.values())
            unfinished = sum(r["status"] not in ("done", "overran") for r in runs.values())
            trials = statistics.mean(float(str(r["trials"])) for r in runs.values())
            if not arm.endswith(PRODUCTIVE):
                difference = "" if arm == "heterbo" else _interval(_paired(totals["heterbo"], runs, unit))
                counted = f"{broken} of {len(runs)} | {unfinished} | {trials:.1f}"
                lines.append(f"| {goal} | {arm} | {_mean(values, unit)} | {difference} | {counted} |")
                continue
            plain = totals[arm.removesuffix(PRODUCTIVE)]
            before = _mean([float(str(r[unit])) for r in plain.values()], unit)
            done = statistics.mean(float(str(r["done_by_trials"])) for r in runs.values())
            change = _interval(_paired(plain, runs, unit))
            cells = (goal, arm.removesuffix(PRODUCTIVE), before, _mean(values, unit), change, f"{done:.0%}")
            pairs.append(f"| {' | '.join(cells)} |")
    return {PAGE: {"searches": "\n".join(lines), "productive": "\n".join(pairs)}}


Runs = dict[object, dict[str, object]]


def _paired(base: Runs, runs: Runs, unit: str) -> list[float]:
    """Relative differences of the totals, seed by seed."""
    return [float(str(r[unit])) / float(str(base[seed][unit])) - 1 for seed, r in runs.items() if seed in base]


def _mean(values: list[float], unit: str) -> str:
    return f"{statistics.mean(values):.0f} s" if unit == "total_seconds" else f"${statistics.mean(values):.4f}"


def _interval(pairs: list[float]) -> str:
    mean = statistics.mean(pairs)
    if len(pairs) < 2:
        return f"{mean:+.0%}"
    half = float(student.ppf(0.975, len(pairs) - 1)) * statistics.stdev(pairs) / len(pairs) ** 0.5
    return f"{mean:+.0%} ({mean - half:+.0%} .. {mean + half:+.0%})"


if __name__ == "__main__":
    main()
