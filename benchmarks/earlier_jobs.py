"""What earlier runs of other jobs bring to `auto`: paired with a cold start, on measured tables.

    .venv/bin/python benchmarks/earlier_jobs.py TABLES    # writes its record, and the table of its page

The history of a workload is what a store would hold: the trials of one earlier search by `auto` itself of each seen
workload of the same table, with other seeds, goals and lengths drawn at random. The workload itself is never in it, and
neither is its kin (the same program on other data, the same network with another batch, the same data). The history is
used as `mlcd train` uses it with `auto:other-jobs=on`: the newest MOST_SIMILAR jobs that measured enough.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # small matrices

import argparse
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pages

from mlcd.bench.case import GoalKind, is_unseen, row, search_with
from mlcd.bench.protocol import TrainProtocol, Work
from mlcd.bench.train import bootstrap_interval
from mlcd.bench.workloads import Source, case_of, other_jobs, table_workloads
from mlcd.jobs.earlier_runs import MOST_SIMILAR
from mlcd.models.similar import FEWEST_MEASUREMENTS, similar_speeds
from mlcd.problem import Problem
from mlcd.search.registry import strategy
from mlcd.trial.trial import History
from mlcd.version import __version__

RESULT = pages.ROOT / "benchmarks" / "results" / "earlier-jobs.json"
PAGE = pages.ROOT / "docs" / "auto-results.md"
BEDS = ("scout", "multicloud", "trimtuner")
HOURS = (2.0, 6.0, 24.0)
NOISE = 0.03
EARLIER_SEED = 5000
"""Seeds of earlier runs begin here: none is a seed of a run that is reported."""
CASES = (
    (Work.THROWN, GoalKind.FASTEST, 1),
    (Work.THROWN, GoalKind.CHEAPEST, 1),
    (Work.THROWN, GoalKind.BUDGET, 1),
    (Work.BESIDE, GoalKind.BUDGET, 8),
)

Known = tuple[Problem, History]


@lru_cache(maxsize=8)
def sources(folder: Path) -> tuple[Source, ...]:
    """The workloads of a table."""
    return tuple(table_workloads(folder).values())


@lru_cache(maxsize=4096)
def earlier_search(folder: Path, name: str, seed: int) -> Known:
    """The problem and trials that an earlier search of a workload by `auto` left; goal and length by name and seed."""
    source = next(each for each in sources(folder) if each.name == name)
    drawn = random.Random(f"{name}/{seed}")
    protocol = TrainProtocol(hours=drawn.choice(HOURS), noise=NOISE)
    truth, cloud = case_of(source, protocol, seed=EARLIER_SEED + seed)
    problem = truth.with_goal(drawn.choice([GoalKind.FASTEST, GoalKind.CHEAPEST, GoalKind.BUDGET]), protocol)
    found = search_with(strategy("auto", seed=EARLIER_SEED + seed), problem, cloud, name="auto", seed=seed)
    return found.problem, found.history


def history_of(folder: Path, source: Source, problem: Problem, seed: int) -> list[Known]:
    """Earlier searches of the seen workloads that are not kin, in an order drawn by the seed, the newest first."""
    kept = {job.name for job in other_jobs(source, sources(folder), problem)}
    names = sorted(each.name for each in sources(folder) if each.name in kept and not is_unseen(each.name))
    random.Random(f"{source.name}/{seed}").shuffle(names)
    return [earlier_search(folder, name, seed) for name in names]


def as_in_the_product(problem: Problem, history: Sequence[Known]) -> Problem:
    """What `mlcd train` makes of earlier runs of other jobs (mlcd.jobs.earlier_runs)."""
    enough = [known for known in history if len({t.config for t in known[1].measured}) >= FEWEST_MEASUREMENTS]
    return replace(problem, similar=similar_speeds(problem, enough[:MOST_SIMILAR]))


def pair(folder: Path, source: Source, case: tuple[Work, GoalKind, int], hours: float, seed: int) -> list[Any] | None:
    """The ratio and status of a cold start, and of the same run with earlier ones; None where nothing fits."""
    work, goal, parallel = case
    protocol = TrainProtocol(hours=hours, noise=NOISE, work=work, restart_seconds=work.default_restart_seconds)
    truth, cloud = case_of(source, protocol, seed=seed)
    cold = truth.with_goal(goal, protocol)
    optimum = truth.optimum(cold.goal)
    if optimum is None:
        return None
    found: list[Any] = []
    for problem in (cold, as_in_the_product(cold, history_of(folder, source, cold, seed))):
        run = search_with(strategy("auto", seed=seed), problem, cloud, name="auto", seed=seed, parallel=parallel)
        made = row(truth, run, kind=goal, protocol=protocol, optimum=optimum)
        found.append((made.counted_ratio, made.status, made.trials))
    return found


def measure(tables: Path, *, held_out: bool, seeds: int) -> list[dict[str, Any]]:
    """A line for each case: both means, and the mean change with a 95% interval over workloads."""
    lines = []
    for case in CASES:
        changes: dict[str, list[float]] = {}
        runs = []
        for folder in (tables / bed for bed in BEDS):
            for source in sources(folder):
                if is_unseen(source.name) is not held_out:
                    continue
                for hours in HOURS:
                    for seed in range(seeds):
                        both = pair(folder, source, case, hours, seed)
                        if both is not None:
                            runs.append(both)
                            changes.setdefault(source.name, []).append(both[1][0] - both[0][0])
        cold, warm = ([run[side] for run in runs] for side in (0, 1))
        lines.append(
            {
                "work": case[0].value,
                "goal": case[1].value,
                "parallel": case[2],
                "held_out": held_out,
                "seeds": seeds,
                "runs": len(runs),
                "cold": float(np.mean([each[0] for each in cold])),
                "earlier": float(np.mean([each[0] for each in warm])),
                "change": float(np.mean([value for values in changes.values() for value in values])),
                "interval": bootstrap_interval(list(changes.values())),
                "cold_unfinished": sum(each[1] == "unfinished" for each in cold),
                "unfinished": sum(each[1] == "unfinished" for each in warm),
                "violated": sum(each[1] == "violated" for each in (*cold, *warm)),
                "cold_trials": float(np.mean([each[2] for each in cold])),
                "trials": float(np.mean([each[2] for each in warm])),
            }
        )
        print(lines[-1], flush=True)
    return lines


def parts() -> dict[Path, dict[str, str]]:
    """What the page says of the record."""
    found = json.loads(RESULT.read_text(encoding="utf-8"))
    rows = [
        (
            "| work | goal | workloads | runs | cold start | with earlier runs of other jobs"
            " | change (95%) | broken | unfinished | trials |"
        ),
        "|---" * 10 + "|",
    ]
    for line in found["lines"]:
        goal = line["goal"] + (f", {line['parallel']} at once" if line["parallel"] > 1 else "")
        low, high = line["interval"]
        change = f"{line['change']:+.3f} ({low:+.2f} to {high:+.2f})"
        rows.append(
            f"| {line['work']} | {goal} | {'held out' if line['held_out'] else 'seen'} | {line['runs']}"
            f" | {line['cold']:.2f} | {line['earlier']:.2f} | {change} | {line['violated']}"
            f" | {line['cold_unfinished']}, {line['unfinished']} | {line['cold_trials']:.1f}, {line['trials']:.1f} |"
        )
    command = f"benchmarks/earlier_jobs.py TABLES --seeds {found['seeds']}"
    made = f"*mlcd {found['version']} ({found['code']}), {found['date']}: `{command}`.*"
    return {PAGE: {"earlier-jobs": "\n".join([*rows, "", made])}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--show", action="store_true", help="only the seen workloads; keep no record")
    arguments = parser.parse_args()
    code = pages.sources()
    lines = measure(arguments.tables, held_out=False, seeds=arguments.seeds)
    if arguments.show:
        return
    lines = [*measure(arguments.tables, held_out=True, seeds=arguments.seeds), *lines]
    kept = {
        "date": datetime.now(UTC).date().isoformat(),
        "version": __version__,
        "code": code,
        "seeds": arguments.seeds,
        "lines": lines,
    }
    RESULT.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    pages.write(parts())


if __name__ == "__main__":
    main()
