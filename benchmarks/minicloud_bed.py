"""Every (type, n) of the minicloud measured for real, several times, interleaved.

    sudo .venv/bin/python benchmarks/minicloud_bed.py [--repeats 3] [--seconds 7]

Writes the raw rows to benchmarks/results/minicloud/bed.csv, a replay table to results/minicloud/table/, the curves
with their spread to docs/images/minicloud-bed.svg, and prints the noise. Needs what minicloud needs, and an otherwise
idle machine. About ten minutes.
"""

import argparse
import csv
import math
import os
import random
import statistics
import tempfile
import time
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path

from mlcd.clouds.job import JobCloud
from mlcd.jobs.real import on_nodes
from mlcd.problem import TrialPolicy
from mlcd.profiler.measure import measure
from mlcd.report.frame import axes, left_margin, legend
from mlcd.report.labels import Box
from mlcd.report.svg import Drawing
from mlcd.report.ticks import Scale
from mlcd.space import Config
from mlcd.spec import TrainSpec, spec_from_mapping
from mlcd.trial.trial import Measurement

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "minicloud"
TYPES = ("m.small", "m.large", "n.small", "n.large")
COUNTS = tuple(range(1, 7))
SAMPLES, EPOCHS, BATCH = 1500, 72, 192
NAME = "digits-cnn-fc"


def job(**others: object) -> TrainSpec:
    """The digits network with half a million parameters, so that the network matters."""
    fields: dict[str, object] = {
        "name": NAME,
        "workdir": str(ROOT / "examples" / "digits-cnn"),
        "resources": {"infra": "minicloud", "instance_type": list(TYPES), "warm_workers": True},
        "num_nodes": "1..6",
        "run": f"python train.py --width 16 --hidden 512 --epochs {EPOCHS} --batch {BATCH}",
        "platform": {"name": "pytorch", "topology": "ring"},
        "job": {"samples": SAMPLES, "epochs": EPOCHS, "batch": BATCH},
        "progress": {"steps": "mlcd.steps"},
        "outputs": ["model.pt", "metrics.json"],
        "goal": {"minimize": "time"},
    }
    return spec_from_mapping(fields | others)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=7.0, help="of one measurement, start included")
    parser.add_argument("--types", default=",".join(TYPES))
    parser.add_argument("--counts", default=",".join(map(str, COUNTS)))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=1, help="more than 1 adds rounds to those that are there")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    configs = [Config.deployment(t, int(n)) for t in given.types.split(",") for n in given.counts.split(",")]
    policy = TrialPolicy(
        seconds=given.seconds, extra_seconds_per_3_nodes=0.0, extension=0.0, watchdog_seconds=20.0, precision=0.5
    )
    with tempfile.TemporaryDirectory() as home:
        setting = on_nodes(job(), "minicloud", "", Path(home))
        if not isinstance(setting.cloud, JobCloud):
            raise TypeError("not a real cloud")
        rounds = range(given.first, given.repeats + 1)
        rows = measured(setting.cloud, configs, policy, rounds, given.seed, given.out / "bed.csv")
        prices = {i.name: i for i in setting.cloud.engine.offer()}
    table(given.out / "table", rows, {name: (i.usd_per_hour.dollars, i.vcpus) for name, i in prices.items()})
    picture(rows, ROOT / "docs" / "images" / "minicloud-bed.svg" if given.out == RESULTS else given.out / "bed.svg")
    print(f"between repeats of one configuration: {spread(rows):.1%} (pooled standard deviation of ln speed)")


def measured(
    cloud: JobCloud, configs: list[Config], policy: TrialPolicy, rounds: range, seed: int, path: Path
) -> list[dict[str, str]]:
    """Each configuration once in every round, in a random order; each row is written as soon as it is measured."""
    order = random.Random(seed * rounds.start)
    rows = []
    if rounds.start > 1:
        with path.open() as file:
            rows = list(csv.DictReader(file))
    fields = (
        "repeat", "at", "instance", "nodes", "samples_per_second", "relative_error", "iterations", "startup_seconds",
        "seconds", "utilisation", "load", "status",
    )  # fmt: skip
    with path.open("a" if rows else "w", newline="") as file:
        writer = csv.DictWriter(file, fields)
        if not rows:
            writer.writeheader()
        for repeat in rounds:
            for config in order.sample(configs, len(configs)):
                load = os.getloadavg()[0]
                price = next(i.usd_per_hour for i in cloud.engine.offer() if i.name == config.instance)
                trial = measure(
                    cloud, config, attempt=repeat, policy=policy, usd_per_hour=price * config.nodes, run_id="bed"
                )
                row = {
                    "repeat": str(repeat),
                    "at": datetime.now(UTC).isoformat(timespec="seconds"),
                    "instance": config.instance,
                    "nodes": str(config.nodes),
                    "seconds": f"{trial.seconds:.2f}",
                    "load": f"{load:.2f}",
                }
                if isinstance(trial, Measurement):
                    row |= {
                        "samples_per_second": f"{trial.samples_per_second:.1f}",
                        "relative_error": f"{trial.relative_error:.4f}",
                        "iterations": str(trial.iterations),
                        "startup_seconds": f"{trial.startup_seconds:.2f}",
                        "utilisation": "" if trial.utilisation is None else f"{trial.utilisation:.3f}",
                        "status": "ok",
                    }
                else:
                    row |= {"status": trial.kind.value}
                    print(config, trial.message)
                writer.writerow(row)
                file.flush()
                rows.append(row)
                print(repeat, config, row.get("samples_per_second", row["status"]), time.strftime("%H:%M:%S"))
    return rows


def speeds(rows: list[dict[str, str]]) -> dict[tuple[str, int], list[float]]:
    found: dict[tuple[str, int], list[float]] = defaultdict(list)
    for row in rows:
        if row["status"] == "ok":
            found[row["instance"], int(row["nodes"])].append(float(row["samples_per_second"]))
    return found


def spread(rows: list[dict[str, str]]) -> float:
    """Pooled standard deviation of ln speed between repeats."""
    groups = [[math.log(s) for s in some] for some in speeds(rows).values() if len(some) > 1]
    squares = sum((x - statistics.mean(group)) ** 2 for group in groups for x in group)
    return math.sqrt(squares / max(sum(len(group) - 1 for group in groups), 1))


def table(folder: Path, rows: list[dict[str, str]], types: dict[str, tuple[float, float]]) -> None:
    """The bed as a replay table: the whole job's seconds, start included."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "instances.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("instance", "usd_per_hour", "vcpus"))
        writer.writerows((name, usd, cpus) for name, (usd, cpus) in types.items())
    with (folder / f"{NAME}.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("instance", "nodes", "seconds", "status"))
        for row in rows:
            work = SAMPLES * EPOCHS
            ok = row["status"] == "ok"
            seconds = float(row["startup_seconds"]) + work / float(row["samples_per_second"]) if ok else 1.0
            writer.writerow((row["instance"], row["nodes"], f"{seconds:.3f}", row["status"]))


def picture(rows: list[dict[str, str]], path: Path) -> None:
    """Speed over nodes for each type: every repeat a mark, the mean a line."""
    found = speeds(rows)
    width, height = 720.0, 420.0
    top = max(max(some) for some in found.values())
    drawing = Drawing(
        width=width,
        height=height,
        title="Measured training speed on the minicloud, over nodes",
        description="; ".join(f"{n} x {t}: {statistics.mean(s):.0f}" for (t, n), s in sorted(found.items())),
    )
    types = sorted({instance for instance, _ in found})
    items: list[tuple[str, str, int | str]] = [(t, f"mark f-s{at}", at) for at, t in enumerate(types)]
    below = legend(drawing, items, width) + 24
    step = 10 ** math.floor(math.log10(top)) / 2
    up = Scale(low=0.0, high=top * 1.05, start=height - 48, end=below)
    ticks = [(value * step, f"{value * step:,.0f}") for value in range(int(top * 1.05 / step) + 1)]
    plot = Box(left_margin(ticks), below, width - 16, height - 48)
    most = max(n for _, n in found)
    across = Scale(low=0.6, high=most + 0.4, start=plot.left, end=plot.right)
    axes(
        drawing,
        plot,
        across=(across, [(float(n), str(n)) for n in range(1, most + 1)], "nodes"),
        up=(up, ticks, "samples/s"),
    )
    for at, instance in enumerate(types):
        means = [(n, statistics.mean(s)) for (t, n), s in sorted(found.items()) if t == instance]
        drawing.line([(across(float(n)), up(mean)) for n, mean in means], f"l-s{at}")
        for (t, n), some in sorted(found.items()):
            if t == instance:
                for speed in some:
                    drawing.mark(
                        at, across(n + (at - 1.5) * 0.05), up(speed), f"mark f-s{at}", f"{n} x {t}: {speed:.0f}"
                    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(drawing.render() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
