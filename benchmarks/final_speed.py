"""How far the final run differs from its trials: one trial and the whole training of one configuration, many times.

    sudo .venv/bin/python benchmarks/final_speed.py [--clouds minicloud,local] [--repeats 2]
    .venv/bin/python benchmarks/final_speed.py --report

Each pair is a real run of the product over a space of one configuration, so that no choice among noisy trials adds to
the difference. Adds a row for each pair to benchmarks/results/final-speed.json; `--report` prints the ratios of these
rows and of the earlier searches in results/minicloud/search.json, and writes them into docs/reliability.md. About a
minute a pair; the load is recorded.
"""

import argparse
import json
import math
import os
import random
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pages
from minicloud_bed import RESULTS, ROOT, job

from mlcd.jobs.prepared import begin
from mlcd.jobs.train import prepare
from mlcd.run.run import SearchRun
from mlcd.store.store import Store
from mlcd.version import __version__

KEPT = ROOT / "benchmarks" / "results" / "final-speed.json"
PAGE = ROOT / "docs" / "reliability.md"
CONFIGS = {
    "minicloud": [(name, nodes) for name in ("m.small", "m.large", "n.small", "n.large") for nodes in (1, 3)],
    "local": [("local.1", 1), ("local.1", 2), ("local.2", 1)],
}
TRIAL = {"extra_minutes_per_3_nodes": 0, "extension": 0.25, "watchdog_minutes": 0.5}
TRIAL_MINUTES = {"minicloud": 0.12, "local": 0.3}
"""Start-up included: minicloud's warm workers have imported PyTorch already."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clouds", default="minicloud,local")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", action="store_true")
    given = parser.parse_args()
    if not given.report:
        pairs = [(cloud, *config, repeat) for cloud in given.clouds.split(",") for config in CONFIGS[cloud]
                 for repeat in range(given.repeats)]  # fmt: skip
        for cloud, instance, nodes, repeat in random.Random(given.seed).sample(pairs, len(pairs)):
            keep(measured(cloud, instance, nodes, repeat))
    for group in groups():
        print(group.line)
    pages.write(parts())


def measured(cloud: str, instance: str, nodes: int, repeat: int) -> dict[str, object]:
    """A trial and the training of one configuration."""
    load = os.getloadavg()[0]
    resources = {"infra": cloud, "instance_type": [instance]} | ({"warm_workers": True} if cloud == "minicloud" else {})
    search = {"strategy": "exhaustive", "max_trials": 1, "trial": TRIAL | {"minutes": TRIAL_MINUTES[cloud]}}
    spec = job(resources=resources, num_nodes=nodes, search=search)
    with tempfile.TemporaryDirectory() as home, Store(Path(home)) as store:
        run = begin(prepare(spec, seed=repeat, folder=Path(home)), store=store)
    return row(run, load) | {"cloud": cloud, "config": f"{nodes} x {instance}"}


def row(run: SearchRun, load: float) -> dict[str, object]:
    trial = next(iter(run.history.measured), None)
    final, choice = run.final, run.choice
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "mlcd": __version__,
        "load": round(load, 2),
        "status": run.status.value,
        "trial_samples_per_second": trial and round(trial.samples_per_second, 1),
        "trial_relative_error": trial and round(trial.relative_error, 4),
        "final_samples_per_second": final and final.samples_per_second and round(final.samples_per_second, 1),
        "predicted_seconds": choice and round(choice.seconds, 2),
        "worst_seconds": choice and round(choice.worst_seconds, 2),
        "train_seconds": final and round(final.seconds, 2),
    }


def keep(found: dict[str, object]) -> None:
    rows = json.loads(KEPT.read_text())["rows"] if KEPT.exists() else []
    data = {"command": "benchmarks/final_speed.py", "rows": [*rows, found]}
    KEPT.write_text(json.dumps(data, indent=1) + "\n")
    print(json.dumps(found), flush=True)


@dataclass(frozen=True, kw_only=True)
class Group:
    """Trainings of one source.

    ratios      training time over predicted time, of those that ended with a training
    untrained   runs that ended without one
    """

    name: str
    ratios: tuple[float, ...]
    untrained: int

    @classmethod
    def of(cls, name: str, rows: Sequence[dict[str, Any]]) -> "Group":
        ratios = tuple(row["train_seconds"] / row["predicted_seconds"] for row in rows if row["train_seconds"])
        return cls(name=name, ratios=ratios, untrained=len(rows) - len(ratios))

    @property
    def over(self) -> int:
        """Trainings more than 10% slower than predicted."""
        return sum(ratio > 1.1 for ratio in self.ratios)

    @property
    def cells(self) -> list[str]:
        """Of the table."""
        extremes = f"{min(self.ratios):.2f} to {max(self.ratios):.2f}"
        return [str(len(self.ratios)), f"{statistics.median(self.ratios):.3f}", extremes, f"{self.over}"]

    @property
    def line(self) -> str:
        """As printed."""
        runs, median, extremes, over = self.cells
        spread = statistics.stdev(map(math.log, self.ratios))
        found = f"{runs:>3} runs  median {median}  spread {spread:.1%}  from {extremes}  more than 10% slower: {over}"
        return f"{self.name:40} {found}  without a training: {self.untrained}"


def groups() -> list[Group]:
    """Each source, and all of them together."""
    rows = json.loads(KEPT.read_text(encoding="utf-8"))["rows"] if KEPT.exists() else []
    earlier = json.loads((RESULTS / "search.json").read_text(encoding="utf-8"))["rows"]
    sources = {
        "minicloud, one configuration": [r for r in rows if r["cloud"] == "minicloud"],
        "local, one configuration": [r for r in rows if r["cloud"] == "local"],
        "minicloud searches, trials thrown away": [r for r in earlier if not r["done_by_trials"]],
        "minicloud searches, productive trials": [r for r in earlier if r["done_by_trials"]],
    }
    found = [Group.of(name, some) for name, some in sources.items()]
    return [*found, Group.of("all", [*rows, *earlier])]


def parts() -> dict[Path, dict[str, str]]:
    """The table of the page, by its name there."""
    lines = ["| trainings | runs | median of training over predicted time | from, to | over 10% slower | no training |"]
    lines.append("|---|---:|---:|---|---:|---:|")
    lines += [f"| {' | '.join([group.name, *group.cells, str(group.untrained)])} |" for group in groups()]
    return {PAGE: {"final-speed": "\n".join(lines)}}


if __name__ == "__main__":
    main()
