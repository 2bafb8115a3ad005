"""Every (K, B) really trained to the target, several times, interleaved: the truth for Scavenger's models.

    sudo .venv/bin/python benchmarks/scavenger_bed.py [--repeats 3] [--job examples/digits-target.yaml]

Writes one row per training to benchmarks/results/scavenger/bed.csv: seconds from the first step to the target, steps,
the speed, the noise scale that the hook measured, the accuracy. Each repeat has its own seed for weights and shuffling.
"""

import argparse
import csv
import fcntl
import os
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from mlcd.clouds.job import JobCloud, JobLease
from mlcd.clouds.provider import LeaseFailed, Order, Purpose
from mlcd.jobs.real import on_nodes
from mlcd.profiler.noise import noise_scale
from mlcd.space import Config
from mlcd.spec import read_train

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "scavenger"
FIELDS = (
    "repeat", "at", "instance", "nodes", "batch", "seconds", "steps", "samples_per_second", "noise_scale", "accuracy",
    "startup_seconds", "load", "status",
)  # fmt: skip
MOST_SECONDS = 400.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--first", type=int, default=1, help="more than 1 adds rounds to those that are there")
    parser.add_argument("--job", type=Path, default=ROOT / "examples" / "digits-target.yaml")
    parser.add_argument("--lock", type=Path, help="held during each round, where other measurements share the machine")
    parser.add_argument("--out", type=Path, default=RESULTS / "bed.csv")
    given = parser.parse_args()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    spec = read_train(given.job)
    with tempfile.TemporaryDirectory() as home:
        setting = on_nodes(spec, spec.resources.infra, "", Path(home))
        if not isinstance(setting.cloud, JobCloud):
            raise TypeError("not a real cloud")
        try:
            rounds = range(given.first, given.repeats + 1)
            measured(setting.cloud, setting.problem.space.configs, rounds, given.out, given.lock)
        finally:
            setting.cloud.close()


def measured(cloud: JobCloud, configs: Sequence[Config], rounds: range, path: Path, lock: Path | None) -> None:
    """Each configuration once in every round, in a random order; each row is written as soon as it is measured."""
    whole = cloud.job
    order = random.Random(rounds.start)
    with path.open("a" if rounds.start > 1 else "w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        if rounds.start == 1:
            writer.writeheader()
        for repeat in rounds:
            cloud.job = replace(whole, run=f"{whole.run} --seed {repeat}")
            mixed = order.sample(list(configs), len(configs))
            with held(lock):
                for config in mixed:
                    row = trained(cloud, config, repeat)
                    writer.writerow(row)
                    file.flush()
                    told = [row.get(name) for name in ("seconds", "steps", "noise_scale", "status")]
                    print(repeat, config, *told, flush=True)


@contextmanager
def held(lock: Path | None) -> Iterator[None]:
    """Hold the lock, waiting for its turn."""
    if lock is None:
        yield
        return
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def trained(cloud: JobCloud, config: Config, repeat: int) -> dict[str, str]:
    """One training from its initial weights to the target."""
    row = {
        "repeat": str(repeat),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "instance": config.instance,
        "nodes": str(config.nodes),
        "batch": str(config["batch"]),
        "load": f"{os.getloadavg()[0]:.2f}",
    }
    run_id = f"bed-{config.nodes}-{config['batch']}-{repeat}-{time.time_ns() % 10**9}"
    order = Order(config=config, purpose=Purpose.RUN, seconds=MOST_SECONDS, run_id=run_id)
    points = []
    try:
        with cloud.lease(order) as lease:
            if not isinstance(lease, JobLease):
                raise TypeError("not a real lease")
            points = [point for point in lease.progress() if point.samples > 0 or point.seconds > 0]
            heard = list(lease.heard)
    except LeaseFailed as failed:
        return row | {"status": f"{failed.kind.value}: {failed.message}"}
    moving = [p for p in points if p.samples > 0]
    begun = max((p.seconds for p in points if p.samples <= 0), default=moving[0].seconds)
    reached = next((r for r in heard if (a := r.metrics.get("accuracy")) is not None and a >= 0.97), None)
    noise = noise_scale(heard)
    samples = moving[-1].samples
    ended = min(p.seconds for p in moving if p.samples >= samples)
    batch = int(config["batch"])
    return row | {
        "seconds": f"{ended - begun:.3f}",
        "steps": f"{samples / batch:.0f}",
        "samples_per_second": f"{samples / (ended - begun):.1f}",
        "noise_scale": "" if noise is None else f"{noise:.1f}",
        "accuracy": "" if reached is None else f"{reached.metrics['accuracy']:.4f}",
        "startup_seconds": f"{begun:.2f}",
        "status": "ok" if reached is not None else "not reached",
    }


if __name__ == "__main__":
    main()
