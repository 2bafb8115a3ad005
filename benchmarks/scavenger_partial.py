"""Real runs of scavenger-partial on the minicloud, judged by every (K, B) trained to the target (scavenger_bed.py).

    sudo .venv/bin/python benchmarks/scavenger_partial.py [--repeats 3] [--strategy scavenger-partial]

Each repeat makes the strategy's brief runs of the real job, each from the initial weights, and predicts the training
at every (K, B). Of the training's length, only the bed's mean samples to the target at the smallest batch is known; the
rest follows from the brief runs and the learning-rate rule. Writes benchmarks/results/scavenger/NAME.json, with
predicted and measured times and the choice's distance from the measured best, and docs/images/scavenger-digits.svg.
"""

import argparse
import csv
import json
import math
import statistics
import tempfile
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scavenger_bed import RESULTS, ROOT, held

from mlcd.clouds.job import JobCloud
from mlcd.findings.batches import batch_tradeoff
from mlcd.goal import Goal, Objective
from mlcd.jobs.real import on_nodes
from mlcd.problem import Problem, TrialPolicy
from mlcd.profiler.measure import measure
from mlcd.report.batch_picture import batch_picture
from mlcd.run.findings import BatchCurve, BatchPoint
from mlcd.search.registry import strategy
from mlcd.search.scavenger.grid import GridStrategy
from mlcd.space import Config
from mlcd.spec import read_train
from mlcd.trial.plan import Plan, Remaining
from mlcd.trial.trial import History

POLICY = TrialPolicy(
    seconds=7.0, extra_seconds_per_3_nodes=0.0, extension=0.5, watchdog_seconds=15.0, precision=0.1, retries=0
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--strategy", default="scavenger-partial")
    parser.add_argument("--job", type=Path, default=ROOT / "examples" / "digits-target.yaml")
    parser.add_argument("--bed", type=Path, default=RESULTS / "bed.csv")
    parser.add_argument("--lock", type=Path)
    parser.add_argument("--again", action="store_true", help="judge the recorded runs anew, by a bed that has grown")
    given = parser.parse_args()
    bed = trainings(given.bed)
    spec = read_train(given.job)
    record_file = RESULTS / f"{given.strategy}.json"
    runs = []
    with tempfile.TemporaryDirectory() as home:
        setting = on_nodes(spec, spec.resources.infra, "", Path(home))
        if not isinstance(setting.cloud, JobCloud):
            raise TypeError("not a real cloud")
        problem = replace(
            setting.problem, goal=Goal(minimize=Objective.TIME), work_samples=reference_work(given.bed, setting.problem)
        )
        try:
            if given.again:
                runs = [by_bed(run, bed) for run in json.loads(record_file.read_text())["runs"]]
            for repeat in range(1, 1 if given.again else given.repeats + 1):
                with held(given.lock):
                    history = brief_runs(setting.cloud, problem, given.strategy, repeat)
                runs.append(judged(problem, history, given.strategy, bed))
                print(json.dumps({k: v for k, v in runs[-1].items() if k != "predicted"}), flush=True)
        finally:
            setting.cloud.close()
    measured = {key: statistics.mean(times) for key, times in bed.items()}
    record = {
        "strategy": given.strategy,
        "measured_seconds": {f"{k}x{b}": round(s, 2) for (k, b), s in sorted(measured.items())},
        "spread": round(spread(bed), 3),
        "runs": runs,
    }
    record_file.write_text(json.dumps(record, indent=2) + "\n")
    picture(problem, measured, runs)


def trainings(path: Path) -> dict[tuple[int, int], list[float]]:
    """Seconds to the target of every (K, B)."""
    found: dict[tuple[int, int], list[float]] = defaultdict(list)
    with path.open() as file:
        for row in csv.DictReader(file):
            if row["status"] == "ok":
                found[int(row["nodes"]), int(row["batch"])].append(float(row["seconds"]))
    return found


def reference_work(bed: Path, problem: Problem) -> float:
    """Mean samples to the target at the smallest batch."""
    least = min(int(c["batch"]) for c in problem.space)
    with bed.open() as file:
        rows = [r for r in csv.DictReader(file) if r["status"] == "ok" and int(r["batch"]) == least]
    return statistics.mean(float(r["steps"]) * least for r in rows)


def brief_runs(cloud: JobCloud, problem: Problem, name: str, repeat: int) -> History:
    """The strategy's trials, until it suggests no more."""
    searcher, history = strategy(name), History()
    remaining = Remaining(usd=None, seconds=None, allowed=np.ones(len(problem.space), dtype=bool))
    while wanted := searcher.suggest(problem, history, remaining, 1):
        config = wanted[0].config
        trial = measure(
            cloud, config, attempt=1, policy=POLICY, usd_per_hour=problem.price(config),
            run_id=f"brief-{repeat}-{len(history)}", metric="accuracy",
        )  # fmt: skip
        history = history.with_trials(trial)
        print(
            repeat, config, getattr(trial, "samples_per_second", trial), getattr(trial, "noise_scale", None), flush=True
        )
    return history


def judged(problem: Problem, history: History, name: str, bed: dict[tuple[int, int], list[float]]) -> dict[str, Any]:
    searcher = strategy(name)
    if not isinstance(searcher, GridStrategy):
        raise TypeError("not a scavenger strategy")
    remaining = Remaining(usd=None, seconds=None, allowed=np.ones(len(problem.space), dtype=bool))
    choice = searcher.recommend(problem, history, remaining)
    if choice is None:
        raise RuntimeError("nothing was chosen")
    tried = {_key(t.config) for t in history}
    plans = {_key(p.config): _training_seconds(p, history) for p in searcher.prospects(problem, history)}
    run = {
        "trials": len(history),
        "tried": sorted("{}x{}".format(*key) for key in tried),
        "trial_seconds": round(sum(t.seconds for t in history), 1),
        "noise_scale": history.noise_scale,
        "chosen": "{}x{}".format(*_key(choice.config)),
        "predicted": {f"{k}x{b}": round(s, 2) for (k, b), s in sorted(plans.items())},
    }
    return by_bed(run, bed)


def by_bed(run: dict[str, Any], bed: dict[tuple[int, int], list[float]]) -> dict[str, Any]:
    """The run with the distance of its choice from the measured best, and of its predictions from the measurements."""
    measured = {f"{k}x{b}": statistics.mean(times) for (k, b), times in bed.items()}
    best = min(measured, key=lambda key: measured[key])
    unseen = [abs(run["predicted"][k] / s - 1) for k, s in measured.items() if k not in run["tried"]]
    return run | {
        "chosen_seconds": round(measured[run["chosen"]], 2),
        "best": best,
        "best_seconds": round(measured[best], 2),
        "regret": round(measured[run["chosen"]] / measured[best] - 1, 4),
        "median_error_untried": round(statistics.median(unseen), 4) if unseen else None,
    }


def _training_seconds(plan: Plan, history: History) -> float:
    """Seconds without the start, which the bed does not count either."""
    own = [t.startup_seconds for t in history.measured if t.config == plan.config]
    others = [t.startup_seconds for t in history.measured]
    return plan.seconds - (own[-1] if own else statistics.mean(others))


def _key(config: Config) -> tuple[int, int]:
    return config.nodes, int(config["batch"])


def spread(bed: dict[tuple[int, int], list[float]]) -> float:
    """Pooled standard deviation of ln seconds between repeats: seeds and machine together."""
    groups = [[math.log(s) for s in some] for some in bed.values() if len(some) > 1]
    squares = sum((x - statistics.mean(group)) ** 2 for group in groups for x in group)
    return math.sqrt(squares / max(sum(len(group) - 1 for group in groups), 1))


def picture(problem: Problem, measured: dict[tuple[int, int], float], runs: list[dict[str, Any]]) -> None:
    """Measured and predicted (the mean of the repeats), one curve per batch."""
    usd = {_key(c): problem.price(c).dollars / 3600 for c in problem.space}
    curves = []
    for batch in sorted({b for _, b in measured}):
        keys = [key for key in sorted(measured) if key[1] == batch]
        predicted = {k: statistics.mean(run["predicted"][f"{k[0]}x{k[1]}"] for run in runs) for k in keys}
        curves.append(
            BatchCurve(
                batch=batch,
                measured=tuple(BatchPoint(workers=k[0], seconds=measured[k], usd=measured[k] * usd[k]) for k in keys),
                predicted=tuple(
                    BatchPoint(workers=k[0], seconds=predicted[k], usd=predicted[k] * usd[k]) for k in keys
                ),
            )
        )
    title = "Digits to 97% on the minicloud: every (K, B) measured, and predicted by brief runs"
    path = ROOT / "docs" / "images" / "scavenger-digits.svg"
    path.write_text(batch_picture(batch_tradeoff(curves), title=title) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
