"""How steady the reports within a trial are: real trainings on this machine, in windows of 15 s.

    sudo .venv/bin/python benchmarks/trial_reports.py [--seconds 240]
    .venv/bin/python benchmarks/trial_reports.py --report

Each is the stream of progress that a trial sees, of PyTorch training the digits network on isolated nodes and on this
machine. Adds a row for each to benchmarks/results/trial-reports.json, with the load; `--report` writes the table of
docs/bench.md: what `mlcd bench train --report-noise` may be. Other work on the machine makes them less steady.
"""

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pages
from minicloud_bed import BATCH, SAMPLES, job

from mlcd.bench.protocol import REPORT_SECONDS
from mlcd.clouds.provider import JobProgress, Order, Purpose
from mlcd.jobs.real import on_nodes
from mlcd.space import Config

RESULT = pages.ROOT / "benchmarks" / "results" / "trial-reports.json"
PAGE = pages.ROOT / "docs" / "bench.md"
CONFIGS = (
    ("minicloud", "m.small", 1),
    ("minicloud", "m.large", 1),
    ("minicloud", "n.large", 1),
    ("minicloud", "n.large", 3),
    ("local", "local.1", 1),
    ("local", "local.1", 2),
)
WARM_UP_SECONDS = 60.0
"""As mlcd.problem.LEAST_MEASURED_SECONDS: no trial ends before it."""
EPOCHS = 100_000
"""More than a trial of any length does."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=240.0, help="of each training, start included")
    parser.add_argument("--report", action="store_true")
    given = parser.parse_args()
    for cloud, instance, nodes in () if given.report else CONFIGS:
        keep(watched(cloud, Config.deployment(instance, nodes), given.seconds))
    pages.write(parts())


def watched(cloud: str, config: Config, seconds: float) -> dict[str, Any]:
    """One training of so many seconds: its start, and the samples of each window after it."""
    load = os.getloadavg()[0]
    spec = job(
        resources={"infra": cloud, "instance_type": [config.instance]},
        num_nodes=config.nodes,
        run=f"python train.py --width 16 --hidden 512 --epochs {EPOCHS} --batch {BATCH}",
        job={"samples": SAMPLES, "epochs": EPOCHS, "batch": BATCH},
    )
    points: list[JobProgress] = []
    with tempfile.TemporaryDirectory() as home:
        setting = on_nodes(spec, cloud, "", Path(home))
        order = Order(config=config, attempt=0, purpose=Purpose.TRIAL, seconds=seconds, run_id="trial-reports")
        with setting.cloud.lease(order) as lease:
            for point in lease.progress():
                points.append(point)
                if point.seconds >= seconds:
                    break
    working = [point for point in points if point.samples > 0]
    at = np.arange(working[0].seconds, working[-1].seconds, REPORT_SECONDS)
    samples = np.interp(at, [p.seconds for p in working], [p.samples for p in working])
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "cloud": cloud,
        "config": str(config),
        "load": round(load, 2),
        "start_seconds": round(working[0].seconds, 2),
        "window_seconds": REPORT_SECONDS,
        "window_samples": [round(float(each), 1) for each in np.diff(samples)],
    }


def keep(found: dict[str, Any]) -> None:
    rows = json.loads(RESULT.read_text(encoding="utf-8"))["rows"] if RESULT.exists() else []
    content = {"command": "benchmarks/trial_reports.py", "rows": [*rows, found]}
    RESULT.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found), flush=True)


def deviation(row: Mapping[str, Any]) -> float:
    """Of ln samples of a window, after the warm-up."""
    skipped = int(WARM_UP_SECONDS / row["window_seconds"])
    return float(np.std(np.log(row["window_samples"][skipped:]), ddof=1))


def parts() -> dict[Path, dict[str, str]]:
    """The table of the page, by its name there."""
    rows = json.loads(RESULT.read_text(encoding="utf-8"))["rows"]
    return {PAGE: {"trial-reports": table(rows)}}


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A line for each training, and the median."""
    lines = ["| training | windows | load of the machine | deviation between windows |", "|---|---:|---:|---:|"]
    for row in rows:
        count = len(row["window_samples"]) - int(WARM_UP_SECONDS / row["window_seconds"])
        lines.append(f"| {row['cloud']}, {row['config']} | {count} | {row['load']} | {deviation(row):.1%} |")
    median = statistics.median(deviation(row) for row in rows)
    return "\n".join([*lines, f"| median of {len(rows)} | | | {median:.1%} |"])


if __name__ == "__main__":
    main()
