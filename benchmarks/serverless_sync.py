"""Real trainings on functions of this machine: do they reach their target, and what do stragglers and failures change?

    python benchmarks/serverless_sync.py [--parts workloads,stragglers] [--seeds 2]

workloads   each model with 8 functions or more, their number changing between epochs; without failures, and with a
            tenth of all calls killed. Steps are counted: all steps of the samples are applied, whatever dies.
stragglers  functions pause for 0.25 s before one step in twenty-five, at random; hsp, bsp and asp to the same loss, in
            turns. And one function of eight that pauses for 0.15 s before every step of its first attempt.
calibration epochs of one workload over numbers of functions and memory sizes, and the simulator's law fitted to them.
"""

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pages

from mlcd.catalog.functions import function_prices
from mlcd.clouds.functions.lithops.call import Faults, Sync
from mlcd.clouds.functions.lithops.cloud import FunctionWorkload, LithopsCloud
from mlcd.clouds.functions.provider import EpochOrder
from mlcd.functions import FunctionProblem
from mlcd.goal import Goal, Objective
from mlcd.trial.epoch import Epoch, Fleet
from mlcd.units import Usd
from mlcd.workloads.data import shuffled
from mlcd.workloads.made import MADE
from mlcd.workloads.model import BUILT_IN

RESULT = pages.ROOT / "benchmarks" / "results" / "serverless-sync.json"
PAGE = pages.ROOT / "docs" / "serverless.md"
FLEETS = (8, 12, 10)
TASKS: dict[str, tuple[int, float]] = {"logistic": (256, 0.36), "lenet": (64, 0.05), "text-cnn": (64, 0.35)}
"""Batch and target loss of each; the targets are losses that one process reaches in 4 to 6 epochs."""
MOST_EPOCHS = 20


def problem(name: str, samples: int, batch: int, target: float) -> FunctionProblem:
    return FunctionProblem(
        name=name,
        functions=tuple(range(1, 17)),
        memory_mb=(512, 1024, 1769),
        samples=samples,
        batch=batch,
        model_bytes=4 * BUILT_IN[name].parameters,
        target_loss=target,
        max_epochs=MOST_EPOCHS,
        goal=Goal(minimize=Objective.TIME, budget=Usd.of(10)),
        prices=function_prices(),
        puts_per_function=20_000,
        gets_per_function=20_000,
        repeat_share=0.5,
    )


def train(
    name: str, *, fleets: Iterator[int], sync: Sync = Sync.HSP, faults: Faults | None = None, seed: int = 0
) -> dict[str, Any]:
    """To the target: seconds, dollars, epochs, and the applied steps divided by all steps."""
    batch, target = TASKS[name]
    samples = shuffled(*MADE[name]())
    asked = problem(name, samples.train_rows, batch, target)
    workload = FunctionWorkload(model=name, samples=samples, rate=BUILT_IN[name].rate, sync=sync, seed=seed)
    epochs: list[Epoch] = []
    with tempfile.TemporaryDirectory() as folder:
        cloud = LithopsCloud(backend="localhost", problem=asked, workload=workload, folder=Path(folder), faults=faults)
        try:
            begun = time.monotonic()
            while len(epochs) < MOST_EPOCHS and (not epochs or epochs[-1].loss > target):
                fleet = Fleet(next(fleets), 1769)
                epochs.append(
                    cloud.run_epoch(
                        EpochOrder(
                            number=len(epochs) + 1, fleet=fleet, seconds=300.0, usd=Usd.of(5), run_id=f"{name}-{seed}"
                        )
                    )
                )
            seconds = time.monotonic() - begun
        finally:
            cloud.close()
    return {
        "workload": name,
        "sync": str(sync),
        "seed": seed,
        "reached": epochs[-1].loss <= target,
        "target_loss": target,
        "epochs": len(epochs),
        "seconds": round(seconds, 2),
        "seconds_per_epoch": round(sum(epoch.seconds for epoch in epochs) / len(epochs), 2),
        "usd": sum(epoch.usd.dollars for epoch in epochs),
        "functions": [epoch.fleet.functions for epoch in epochs],
        "losses": [round(epoch.loss, 4) for epoch in epochs],
        "calls": sum(epoch.calls for epoch in epochs),
        "repeated": sum(epoch.failed for epoch in epochs),
    }


def workloads(seeds: Sequence[int]) -> Iterator[dict[str, Any]]:
    for seed in seeds:
        for name in TASKS:
            for share in (0.0, 0.1):
                faults = Faults(fail_share=share, seed=seed)
                yield {"fail_share": share, **train(name, fleets=cycle(FLEETS), faults=faults, seed=seed)}


def stragglers(seeds: Sequence[int], name: str = "lenet") -> Iterator[dict[str, Any]]:
    for seed in seeds:
        trouble = {
            "pauses by chance": Faults(pause_share=0.04, pause_seconds=0.25, seed=seed),
            "one slow function": Faults(slow_shards=(0,), pause_seconds=0.15, seed=seed),
        }
        for label, faults in trouble.items():
            for sync in Sync:
                yield {"trouble": label, **train(name, fleets=cycle((8,)), sync=sync, faults=faults, seed=seed)}


def calibration(repeats: int) -> dict[str, Any]:
    """seconds = invocation x n + work / (n x share(m)) + update, fitted to the measurements by least squares."""
    name = "lenet"
    batch, target = TASKS[name]
    samples = shuffled(*MADE[name]())
    asked = problem(name, samples.train_rows, batch, target)
    workload = FunctionWorkload(model=name, samples=samples, rate=BUILT_IN[name].rate)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        cloud = LithopsCloud(backend="localhost", problem=asked, workload=workload, folder=Path(folder))
        try:
            for repeat in range(repeats):
                for memory in asked.memory_mb:
                    for functions in (1, 2, 4, 8, 12):
                        run = f"{memory}-{functions}-{repeat}"
                        epoch = cloud.run_epoch(
                            EpochOrder(number=1, fleet=Fleet(functions, memory), seconds=300, usd=Usd.of(5), run_id=run)
                        )
                        rows.append(
                            {
                                "functions": functions,
                                "memory_mb": memory,
                                "seconds": epoch.seconds,
                                "fetch": epoch.fetch.mean_seconds,
                                "compute": epoch.compute.mean_seconds,
                                "update": epoch.update.mean_seconds,
                            }
                        )
                        print(json.dumps(rows[-1]), flush=True)
        finally:
            cloud.close()
    share = np.array([min(1.0, row["memory_mb"] / 1769) for row in rows])
    n = np.array([float(row["functions"]) for row in rows])
    seconds = np.array([row["seconds"] for row in rows])
    design = np.stack([n, 1 / (n * share), np.ones_like(n)], axis=1)
    found, *_ = np.linalg.lstsq(design, seconds, rcond=None)
    error = np.abs(design @ found - seconds) / seconds
    return {
        "workload": name,
        "law": "seconds = invocation x n + work / (n x min(1, m/1769)) + update",
        "invocation_seconds": round(float(found[0]), 4),
        "work_seconds": round(float(found[1]), 3),
        "update_seconds": round(float(found[2]), 3),
        "mean_relative_error": round(float(error.mean()), 3),
        "rows": rows,
    }


def _line(row: dict[str, Any]) -> str:
    label = row.get("trouble") or f"{row['fail_share']:.0%} of calls die"
    return (
        f"{row['workload']:<10} {row['sync']} {label:<20} seed {row['seed']}: reached {row['reached']} in"
        f" {row['epochs']} epochs, {row['seconds']} s; {row['repeated']} of {row['calls']} calls repeated"
    )


def parts() -> pages.Parts:
    """What the page says of the record, by its name there."""
    record = json.loads(RESULT.read_text(encoding="utf-8"))
    return {PAGE: {"workloads": _workloads_text(record), "stragglers": _stragglers_text(record["stragglers"])}}


def _workloads_text(record: dict[str, Any]) -> str:
    rows = record["workloads"]
    lines = [
        f"Measured on {record['date']} with the code of {record['code']} ({record['machine']}).",
        "",
        "| model | target loss | epochs, no call dies | epochs, a tenth dies |",
        "|---|---|---|---|",
    ]
    for name in dict.fromkeys(row["workload"] for row in rows):
        of = [row for row in rows if row["workload"] == name]
        cells = (
            ", ".join(f"{r['epochs']}" if r["reached"] else "not reached" for r in of if r["fail_share"] == share)
            for share in (0.0, 0.1)
        )
        lines.append(f"| `{name}` | {of[0]['target_loss']:g} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _stragglers_text(rows: list[dict[str, Any]]) -> str:
    modes = list(dict.fromkeys(row["sync"] for row in rows))
    lines = [f"| trouble |{''.join(f' `{mode}` |' for mode in modes)}", "|---|" + "---|" * len(modes)]
    for trouble in dict.fromkeys(row["trouble"] for row in rows):
        cells = (
            ", ".join(f"{r['seconds']:.1f}" for r in rows if (r["trouble"], r["sync"]) == (trouble, mode))
            for mode in modes
        )
        lines.append(f"| {trouble} | {' | '.join(cells)} |")
    return "\n".join(lines)


def summary(result: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for row in result.get("stragglers", ()):
        found.setdefault(row["trouble"], {}).setdefault(row["sync"], []).append(row["seconds"])
    by_share: dict[str, Any] = {}
    for row in result.get("workloads", ()):
        key = f"{row['workload']}, {row['fail_share']:.0%} die"
        by_share.setdefault(key, {"epochs": [], "losses": [], "reached": []})
        by_share[key]["epochs"].append(row["epochs"])
        by_share[key]["losses"].append(row["losses"][-1])
        by_share[key]["reached"].append(row["reached"])
    medians = {
        trouble: {sync: round(float(np.median(seconds)), 2) for sync, seconds in modes.items()}
        for trouble, modes in found.items()
    }
    return {"seconds_to_target_median": medians, "workloads": by_share}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--parts", default="workloads,stragglers,calibration")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--model", default="lenet", choices=sorted(TASKS), help="of the part about stragglers")
    parser.add_argument("--repeats", type=int, default=1)
    given = parser.parse_args()
    seeds = range(given.seeds)
    result: dict[str, Any] = json.loads(given.out.read_text()) if given.out.exists() else {}
    result["machine"] = f"{platform.machine()}, {os.cpu_count()} processors, Lithops localhost"
    result |= {"date": f"{datetime.now(UTC):%Y-%m-%d}", "code": pages.sources()}
    parts = given.parts.split(",")
    if "calibration" in parts or "calibration" not in result:  # short, and recorded in the same file
        result["calibration"] = calibration(given.repeats)
        given.out.write_text(json.dumps(result, indent=1) + "\n")
    for part in parts:
        if part == "calibration":
            continue
        result[part] = []
        for row in stragglers(seeds, given.model) if part == "stragglers" else workloads(seeds):
            result[part].append(row)
            result["summary"] = summary(result)
            given.out.write_text(json.dumps(result, indent=1) + "\n")
            print(_line(row), flush=True)
    print(json.dumps(result.get("summary"), indent=1))


if __name__ == "__main__":
    main()
