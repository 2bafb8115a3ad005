"""The cost-time figures of Scavenger's paper, simulated: one for each network and price policy.

    .venv/bin/python benchmarks/papers/scavenger.py [--figures resnet18,transformer] [--pictures DIR] [-o json]

The paper prints no numbers with its curves, so only their shape can be compared. docs/scavenger.md discusses them.
"""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mlcd.errors import BadInput
from papers.scavenger_pictures import PAPER_JOBS, SimulatedPoint, figure, simulate
from papers.scavenger_pricing import PricePolicy
from papers.script import parser, print_json, run, table

Figures = dict[tuple[str, PricePolicy], list[SimulatedPoint]]


def main(words: Sequence[str]) -> None:
    options = parser(__doc__)
    options.add_argument("--figures", default="all", metavar="A,B", help=f"{', '.join(PAPER_JOBS)}; all without")
    options.add_argument("--pictures", type=Path, metavar="DIR", help="where the pictures go")
    asked = options.parse_args(words)
    found = figures(tuple(PAPER_JOBS) if asked.figures == "all" else asked.figures.split(","))
    if asked.pictures is not None:
        draw(found, asked.pictures)
    if asked.output == "json":
        print_json({"figures": as_json(found)})
        return
    for (name, policy), points in found.items():
        rows = [["workers", "batch", "seconds", "predicted", "USD/hour"]]
        for p in points:
            times = (f"{p.seconds:,.0f}", f"{p.predicted_seconds:,.0f}")
            rows.append([str(p.workers), str(p.batch), *times, f"{p.usd_per_hour:.2f}"])
        print(f"{PAPER_JOBS[name].title}, {policy}, SIMULATED\n{table(rows, '>>>>>')}\n")


def figures(names: Sequence[str]) -> Figures:
    """Every point of these networks under both price policies. Raises BadInput for an unknown network."""
    for name in names:
        if name not in PAPER_JOBS:
            raise BadInput(f"--figures: there is no figure {name!r} here; allowed: all, {', '.join(PAPER_JOBS)}")
    return {(name, policy): simulate(PAPER_JOBS[name], policy) for name in names for policy in PricePolicy}


def as_json(found: Figures) -> list[dict[str, object]]:
    return [
        {"job": name, "pricing": str(policy), "simulated": True, "points": [asdict(p) for p in points]}
        for (name, policy), points in found.items()
    ]


def draw(found: Figures, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for (name, policy), points in found.items():
            picture = folder / f"scavenger-{name}-{policy}.svg"
            picture.write_text(figure(name, policy, points) + "\n", encoding="utf-8")
    except OSError as error:
        raise BadInput(f"--pictures: {folder}: {error.strerror}") from error


if __name__ == "__main__":
    run(main)
