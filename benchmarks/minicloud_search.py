"""Real searches on the minicloud: auto beside its training and with trials thrown away, heterbo, convbo, cherrypick.

    sudo .venv/bin/python benchmarks/minicloud_search.py [--seeds 5] [--goals budget]

Needs results/minicloud/bed.csv (benchmarks/minicloud_bed.py) for the limits and the noise. All arms run in turns, in a
new random order for each (goal, seed). Adds every run to benchmarks/results/minicloud/search.json, and continues from
there where it was ended; runs of arms that are not there any more are dropped. Writes the table of
docs/clouds/minicloud-results.md; `--report` does only that. Five seeds of one goal take half an hour on a quiet
machine.
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
from mlcd.run.step import Role
from mlcd.spec import TrainSpec
from mlcd.store.store import Store
from mlcd.version import __version__

ARMS = ("auto, beside", "auto, thrown", "heterbo, thrown", "convbo, thrown", "cherrypick, thrown")
"""Strategy and `search.work`; the first is what the others are compared with."""
GOALS = ("budget", "deadline")
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
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--goals", default=GOALS[0], help="budget, deadline or both, with a comma")
    parser.add_argument("--report", action="store_true")
    given = parser.parse_args()
    if not given.report:
        searched(read_bed(), given.goals.split(","), given.seeds, KEPT)
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


def searched(bed: Bed, wanted_goals: list[str], seeds: int, path: Path) -> None:
    """Run every arm for every goal and seed that is not there yet; results are written after each run."""
    goals = {
        "budget": {"minimize": "time", "budget": f"{bed.budget_usd} USD"},
        "deadline": {"minimize": "cost", "deadline": f"{bed.deadline_seconds:.0f}s"},
    }
    rows: list[dict[str, object]] = json.loads(path.read_text())["rows"] if path.exists() else []
    rows = [row for row in rows if row["arm"] in ARMS]
    made = {(row["goal"], row["seed"], row["arm"]) for row in rows}
    for seed in range(1, seeds + 1):
        for goal in wanted_goals:
            wanted = goals[goal]
            for arm in random.Random(f"{seed} {goal}").sample(ARMS, len(ARMS)):
                if (goal, seed, arm) in made:
                    continue
                began = time.time()
                with tempfile.TemporaryDirectory() as home, Store(Path(home)) as store:
                    run = begin(prepare(_spec(arm, wanted, bed), seed=seed, folder=Path(home)), store=store)
                    rows.append(_row(run, goal=goal, arm=arm, seed=seed, wall=time.time() - began))
                print(json.dumps(rows[-1]), flush=True)
                about = {"mlcd": __version__, "code": pages.sources(), "date": datetime.now(UTC).isoformat()}
                data = {**about, "bed": vars(bed), "rows": rows}
                path.write_text(json.dumps(data, indent=1) + "\n")


def _spec(arm: str, goal: dict[str, str], bed: Bed) -> TrainSpec:
    strategy, work = arm.split(", ")
    search = {"strategy": strategy, "noise": bed.noise, "assurance": 0.999, "trial": TRIAL, "work": work}
    return job(goal=goal, search=search, checkpoints=work != "thrown")


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
        "train_seconds": _trained_seconds(run),
        "done_by_trials": run.history.reached_samples / run.problem.work_samples,
        "limit_broken": over,
        "wall_seconds": round(wall, 1),
        "tried": [str(step.config) for step in run.trials],
    }


def _trained_seconds(run: SearchRun) -> float | None:
    """What the training took after the search, which is what was predicted; None if it did not end."""
    stretches = [step.final.seconds for step in run.ended if step.role is Role.TRAINING]
    return stretches[-1] if run.final is not None and stretches else None


def parts() -> dict[Path, dict[str, str]]:
    """The tables of the page, by their names there."""
    rows = json.loads(KEPT.read_text(encoding="utf-8"))["rows"]
    heads = ("goal", "strategy, work", "seeds", "mean total", f"{ARMS[0]} against it (95%)", "limits broken",
             "unfinished", "trials", "of the training done by trials")  # fmt: skip
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for goal, unit in zip(GOALS, ("total_seconds", "total_usd"), strict=True):
        totals = {arm: {r["seed"]: r for r in rows if r["goal"] == goal and r["arm"] == arm} for arm in ARMS}
        for arm, runs in totals.items():
            if not runs:
                continue
            values = [float(str(r[unit])) for r in runs.values()]
            broken = sum(bool(r["limit_broken"]) for r in runs.values())
            unfinished = sum(r["status"] not in ("done", "overran") for r in runs.values())
            trials = statistics.mean(float(str(r["trials"])) for r in runs.values())
            done = statistics.mean(float(str(r["done_by_trials"])) for r in runs.values())
            change = "" if arm == ARMS[0] else _interval(_paired(runs, totals[ARMS[0]], unit))
            cells = (goal, arm, str(len(runs)), _mean(values, unit), change, f"{broken} of {len(runs)}",
                     str(unfinished), f"{trials:.1f}", f"{done:.0%}")  # fmt: skip
            lines.append(f"| {' | '.join(cells)} |")
    return {PAGE: {"searches": "\n".join(lines)}}


Runs = dict[object, dict[str, object]]


def _paired(base: Runs, runs: Runs, unit: str) -> list[float]:
    """Relative differences of the totals, seed by seed."""
    return [float(str(r[unit])) / float(str(base[seed][unit])) - 1 for seed, r in runs.items() if seed in base]


def _mean(values: list[float], unit: str) -> str:
    return f"{statistics.mean(values):.0f} s" if unit == "total_seconds" else f"${statistics.mean(values):.4f}"


def _interval(pairs: list[float]) -> str:
    if not pairs:
        return ""
    mean = statistics.mean(pairs)
    if len(pairs) < 2:
        return f"{mean:+.0%}"
    half = float(student.ppf(0.975, len(pairs) - 1)) * statistics.stdev(pairs) / len(pairs) ** 0.5
    return f"{mean:+.0%} ({mean - half:+.0%} .. {mean + half:+.0%})"


if __name__ == "__main__":
    main()
