"""What each part of a method contributes: the ablation table of heterbo, mpc, siren, falcon and scavenger.

    .venv/bin/python benchmarks/ablations.py [heterbo|mpc|siren|falcon|scavenger ...] [--seeds N] [-o json] [--record]
    .venv/bin/python benchmarks/ablations.py --page      # only docs/ablations.md, from the record

One setting is changed at a time and the product's own benchmark is run again with the same workloads and seeds. A part
earns its place when the loss without it is higher with 95% confidence, on workloads that may be tuned on; the held-out
ones (mlcd.bench.case.is_unseen, unseen-N) are reported separately and decide nothing. Everything is simulated or
replayed from tables. `--record` writes benchmarks/results/ablations.json and docs/ablations.md: under 20 minutes on one
core with OMP_NUM_THREADS=1 (the matrices are small; threads only wait for each other).
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pages
from ablated import falcon, heterbo, scavenger, schedulers
from ablated.compare import Change, Line, Outcome, lines

from mlcd.version import __version__

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "benchmarks" / "results" / "ablations.json"
PAGE = ROOT / "docs" / "ablations.md"


@dataclass(frozen=True, kw_only=True)
class Method:
    """A method whose parts are ablated.

    run   maps (text of the strategy, change, folder of tables, seeds) to outcomes on the beds that the change concerns
    loss  definition of the loss, for the page
    beds  description of the test beds, for the page
    """

    defaults: tuple[str, ...]
    changes: tuple[Change, ...]
    run: Callable[[str, Change, Path, int], list[Outcome]]
    seeds: int
    loss: str
    beds: str


METHODS = {
    "heterbo": Method(
        defaults=("heterbo",),
        changes=heterbo.CHANGES,
        run=heterbo.outcomes,
        seeds=heterbo.SEEDS,
        loss="search and training over the best training, searched for free; unfinished or over a limit: at least 3",
        beds="scout, multicloud and trimtuner tables, the simulator's nine jobs, and each type of those jobs alone;"
        " 6 h, noise 3%",
    ),
    "mpc": Method(
        defaults=("mpc",),
        changes=schedulers.MPC_CHANGES,
        run=schedulers.outcomes,
        seeds=schedulers.SEEDS,
        loss="seconds over `informed`'s (cheapest: dollars over the cheapest fixed fleet's); unfinished counts 3",
        beds="simulated functions: 30 workloads that nothing was tuned on (tune-600 to tune-629) and lenet-localhost;"
        " held out: unseen-0 to unseen-11. All have Optimus' loss curve, which is one of mpc's, and not the laws of"
        " wide-N",
    ),
    "siren": Method(
        defaults=("siren",),
        changes=schedulers.SIREN_CHANGES,
        run=schedulers.outcomes,
        seeds=schedulers.SEEDS,
        loss="seconds over `informed`'s; unfinished counts 3",
        beds="as mpc",
    ),
    "falcon": Method(
        defaults=("falcon", "falcon-transfer"),
        changes=falcon.CHANGES,
        run=falcon.outcomes,
        seeds=falcon.SEEDS,
        loss="dollars for 1e9 requests and for the search, over the best configuration's for them; nothing found: 3",
        beds="the shipped H200 tables, each of 30 models left out in its turn, at most 15 trials, noise 1%",
    ),
    "scavenger": Method(
        defaults=("scavenger-goodput",),
        changes=scavenger.CHANGES,
        run=scavenger.outcomes,
        seeds=scavenger.SEEDS,
        loss="all time of a run for the least time, trials and starts included, over the best training's; on `cost`,"
        " all money of a run for the least cost over the cheapest training's",
        beds="pollux tables, six measured trainings of which cifar10 and yolov3 may be tuned on",
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", metavar="METHOD", help=", ".join(METHODS))
    parser.add_argument("--seeds", type=int, default=0, help="instead of the method's own count")
    parser.add_argument("--tables", type=Path, default=ROOT.parent / "shared" / "measured")
    parser.add_argument("-o", dest="output", choices=["text", "json"], default="text")
    parser.add_argument("--record", action="store_true", help="write the record and its page")
    parser.add_argument("--page", action="store_true", help="only write the page, from the record")
    given = parser.parse_args()
    if given.page:
        record({})
        return
    unknown = [name for name in given.methods if name not in METHODS]
    if unknown:
        parser.error(f"no method {unknown[0]!r}; there are {', '.join(METHODS)}")
    found = {name: ablate(name, given.tables, given.seeds) for name in given.methods or METHODS}
    if given.record:
        record(found)
    if given.output == "json":
        print(json.dumps({name: part["lines"] for name, part in found.items()}, indent=1))
    else:
        for name, part in found.items():
            print(f"{name}\n\n{table([Line(**line) for line in part['lines']])}\n")


def ablate(name: str, tables: Path, seeds: int) -> dict[str, Any]:
    """The section of one method."""
    method = METHODS[name]
    seeds = seeds or method.seeds
    everything = Change(part="", text="")
    default = {text: method.run(text, everything, tables, seeds) for text in method.defaults}
    found: list[Line] = []
    for number, change in enumerate(method.changes, start=1):
        print(f"{name}: {number} of {len(method.changes)}: {change.text}", file=sys.stderr, flush=True)
        changed = method.run(change.text, change, tables, seeds)
        before = default[change.text.partition(":")[0]]
        for unseen in (False, True):
            found += lines(name, change, before, changed, unseen=unseen)
    return {
        "made": datetime.now(UTC).date().isoformat(),
        "version": __version__,
        "code": pages.sources("src", "benchmarks/ablated"),
        "command": f"benchmarks/ablations.py {name} --seeds {seeds}",
        "lines": [asdict(line) for line in found],
    }


def record(found: dict[str, dict[str, Any]]) -> None:
    """Replace the sections that were run, then write the page from the whole record."""
    kept = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    kept = {name: found.get(name) or kept[name] for name in METHODS if name in found or name in kept}
    RECORD.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(kept), encoding="utf-8")


def page(kept: dict[str, dict[str, Any]]) -> str:
    """docs/ablations.md."""
    text = [
        "# Ablations",
        "",
        "What each part of a method brings: one setting changed at a time, everything else alike, on the benchmarks of",
        "`mlcd bench`. All of it is simulated or replayed from measured tables. Made by",
        "",
        "    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/ablations.py --record",
        "",
        "which keeps the figures of every bed in `benchmarks/results/ablations.json`. *Difference* is the mean loss",
        "with the change less without it; the interval is 95%, had other workloads been drawn. *Earns*: the part that",
        "was changed is worth its place. *Costs*: the method is better without it. Decisions are made on workloads",
        "that may be tuned on; the held-out ones are in the last column.",
    ]
    rows = [line["change"] for part in kept.values() for line in part["lines"]]
    if not set(rows) <= {change.text for method in METHODS.values() for change in method.changes}:
        text[-1] += " *Removed*: the part was deleted for these figures."
    for name, part in kept.items():
        method = METHODS[name]
        text += ["", f"## {name}", "", f"Loss: {method.loss}.", f"On: {method.beds}.", ""]
        text += [table([Line(**line) for line in part["lines"]]), ""]
        text += [f"*mlcd {part['version']} ({part['code']}), {part['made']}: `{part['command']}`*"]
    return "\n".join(text) + "\n"


def table(found: Sequence[Line]) -> str:
    """One line per change: over all its beds, and the beds where the difference exceeds the noise."""
    kept = {change.text for method in METHODS.values() for change in method.changes}
    rows = [
        "| part | change | workloads | loss | changed | difference (95%) | verdict | by bed | held out |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for part, change in dict.fromkeys((line.part, line.change) for line in found):
        of = [line for line in found if (line.part, line.change) == (part, change)]
        seen = [line for line in of if line.workloads == "seen"]
        held_out = [line for line in of if line.workloads == "unseen"]
        whole = seen[0]
        beds = [
            f"{line.bed} {line.difference:+.3f}" for line in seen[1:] if line.interval[0] > 0 or line.interval[1] < 0
        ]
        last = _difference(held_out[0]) if held_out else "-"
        named = part if change in kept else f"{part} (removed)"
        cells = (named, f"`{change}`", whole.count, f"{whole.default:.3f}", f"{whole.changed:.3f}", _difference(whole))
        rows.append(f"| {' | '.join(map(str, cells))} | {whole.verdict} | {'; '.join(beds) or '-'} | {last} |")
    return "\n".join(rows)


def _difference(line: Line) -> str:
    return f"{line.difference:+.4f} ({line.interval[0]:+.4f} to {line.interval[1]:+.4f})"


if __name__ == "__main__":
    main()
