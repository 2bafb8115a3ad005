"""The record of random protocols: 10,000 searches and more that no constant of a strategy can have been fitted to.

    .venv/bin/python benchmarks/record_protocols.py TABLES --jobs 2   # about 10 minutes of 2 cores
    .venv/bin/python benchmarks/record_protocols.py TABLES --unseen no --seed 1 --count 600 --show

Protocols are drawn as in protocols.py, on held-out workloads. Each also draws what becomes of a trial's work (thrown,
kept, beside), the goal (fastest, cheapest, budget, both) and how many trials run at once (1 or 8; 1 where work is
kept), and is run once with `auto`; the first --rivals of them with the other strategies too. A recording that was
stopped continues when the command is given again.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # small matrices, and several processes

import argparse
import json
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pages
from protocols import FOLDERS, SIM, Drawn, drawn, sources
from row_file import FOLDER, Row, RowFile, codes, core_minutes, origin, verifiers

from mlcd.bench.case import GoalKind, TrainRow
from mlcd.bench.protocol import Work
from mlcd.bench.train import Unseen, run_one, summarise
from mlcd.bench.workloads import Source
from mlcd.version import __version__

RECORD = pages.ROOT / "benchmarks" / "results" / "protocols.json"
PAGE = pages.ROOT / "docs" / "auto-results.md"
RECORD_SEED = 16
"""Of the protocols that are reported. Nothing is chosen on them."""
OURS, RIVALS = "auto", ("heterbo", "oracle")
CHUNK = 20
AT_ONCE = (1, 1, 1, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A protocol with the goal and the trials at once that it is run with."""

    drawn: Drawn
    goal: GoalKind
    parallel: int


def settings(beds: dict[str, list[Source]], *, count: int, seed: int) -> Iterator[Setting]:
    """`count` protocols: every bed, kind of work and goal equally often; they depend on the seed and the beds alone."""
    works, goals, rows = list(Work), list(GoalKind), len(beds)
    every = drawn(beds, count=count, seed=seed, work=lambda number: works[number // rows % len(works)])
    for number, each in enumerate(every):
        rng = random.Random(f"at once/{seed}/{number}")
        parallel = 1 if each.protocol.work is Work.KEPT else rng.choice(AT_ONCE)
        yield Setting(drawn=each, goal=goals[number // (rows * len(works)) % len(goals)], parallel=parallel)


def rows_of(chunk: Sequence[Setting], strategies: Sequence[str]) -> list[Row]:
    """A row for each run; protocols without a feasible deployment under their goal have none."""
    rows = []
    for each in chunk:
        for text in strategies:
            found = run_one(
                each.drawn.source,
                each.drawn.protocol,
                kind=each.goal,
                strategy_text=text,
                seed=each.drawn.seed,
                parallel=each.parallel,
            )
            if found is not None:
                rows.append({"number": each.drawn.number, "parallel": each.parallel, **asdict(found.row)})
    return rows


def record(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run what is missing, and summarise."""
    began = time.monotonic()
    beds = sources(arguments.tables, cast(Unseen, arguments.unseen))
    every = list(settings(beds, count=arguments.count, seed=arguments.seed))
    tasks: dict[str, tuple[Sequence[Setting], Sequence[str]]] = {}
    for at in range(0, len(every), CHUNK):
        for names in ((OURS,), RIVALS) if at < arguments.rivals else ((OURS,),):
            tasks[f"{arguments.unseen}/{arguments.seed}/{at}/{','.join(names)}"] = (every[at : at + CHUNK], names)
    file = RowFile(path=FOLDER / "protocols.jsonl", code=pages.sources(), group=lambda name: name.split("/")[-1])
    begins = not file.knows_any(tasks)
    made = file.complete(rows_of, tasks, jobs=arguments.jobs)
    rows = [row for each in made.values() for row in each.rows]
    ours = {name: each for name, each in made.items() if name.endswith(f"/{OURS}")}
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "version": __version__,
        "code": codes(made),
        "verified": verifiers(made),
        "command": f"benchmarks/record_protocols.py TABLES --count {arguments.count} --seed {arguments.seed}"
        f" --unseen {arguments.unseen}",
        "protocols": len(every),
        "searches": sum(row["strategy"] == OURS for row in rows),
        "core_minutes": core_minutes(ours),
        "wall_minutes": round((time.monotonic() - began) / 60, 1) if begins else None,
        "jobs": arguments.jobs,
        "violated": [row for row in rows if row["strategy"] == OURS and row["status"] == "violated"],
        "summary": lines(rows, rivals=arguments.rivals),
    }


def lines(rows: Sequence[Row], *, rivals: int) -> list[Row]:
    """Summaries by goal and kind of work: `auto` over all, and all strategies over those that rivals ran too."""
    found: list[Row] = []
    for part, some in (
        ("all", [r for r in rows if r["strategy"] == OURS]),
        ("shared", [r for r in rows if r["number"] < rivals]),
    ):
        for work in ("all", *(work.value for work in Work)):
            kept = [_row(row) for row in some if work in ("all", row["work"])]
            pooled = summarise([replace(row, goal="all") for row in kept], pool_hours=True)
            found += [
                {"part": part, "work": work, **asdict(summary)}
                for summary in (*summarise(kept, pool_hours=True), *pooled)
                if work != "all" or summary.goal == "all"
            ]
    return found


def _row(row: Mapping[str, Any]) -> TrainRow:
    return TrainRow(**{key: value for key, value in row.items() if key not in ("number", "parallel")})


def table(result: Mapping[str, Any]) -> str:
    """The record as a table of markdown: auto over all, with the rivals' means over the protocols they share."""
    shared = {(s["work"], s["goal"], s["strategy"]): s for s in result["summary"] if s["part"] == "shared"}
    heads = " | ".join(f"`{name}`" for name in (OURS, *RIVALS))
    first = f"first {max((s['runs'] for s in shared.values()), default=0):,}: {heads}"
    rows = [f"| work | goal | runs | ratio (95%) | median | p95 | broken | unfinished | trials | {first} |"]
    rows += ["|---" * (10 + len(RIVALS)) + "|"]
    order = ["all", *(goal.value for goal in GoalKind)]
    ours = [s for s in result["summary"] if s["part"] == "all"]
    for s in sorted(ours, key=lambda s: (["all", *(w.value for w in Work)].index(s["work"]), order.index(s["goal"]))):
        low, high = s["ratio_interval"]
        ratios = f"{s['mean_ratio']:.2f} ({low:.2f} to {high:.2f}) | {s['median_ratio']:.2f} | {s['p95_ratio']:.2f}"
        lost = f"{s['violations']} | {s['unfinished']} ({s['unfinished'] / s['runs']:.1%}) | {s['mean_trials']:.1f}"
        others = [shared.get((s["work"], s["goal"], name)) for name in (OURS, *RIVALS)]
        beside = " | ".join("-" if other is None else f"{other['mean_ratio']:.2f}" for other in others)
        rows.append(f"| {s['work']} | {s['goal']} | {s['runs']:,} | {ratios} | {lost} | {beside} |")
    return "\n".join(rows)


def parts() -> dict[Path, dict[str, str]]:
    """What the page says of the record."""
    result = json.loads(RECORD.read_text(encoding="utf-8"))
    wall = f", {result['wall_minutes']:g} minutes in {result['jobs']} processes" if result["wall_minutes"] else ""
    commits = origin(result["code"], result.get("verified", ""))
    made = (
        f"*mlcd {result['version']} ({commits}), {result['date']}: {result['searches']:,} searches of `{OURS}`,"
        f" {result['core_minutes']:g} minutes of one core{wall}; {len(result['violated'])} broke a limit."
        f" `{result['command']}`*"
    )
    return {PAGE: {"protocols": f"{table(result)}\n\n{made}"}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=Path, help=f"folder of the tables {', '.join(FOLDERS)}; {SIM} needs none")
    parser.add_argument("--count", type=int, default=10_400, help="protocols, each run once; under some nothing fits")
    parser.add_argument("--rivals", type=int, default=2_400, help="how many of them other strategies run too")
    parser.add_argument("--seed", type=int, default=RECORD_SEED)
    parser.add_argument("--unseen", choices=["all", "only", "no"], default="only")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--show", action="store_true", help="print, and keep no record")
    arguments = parser.parse_args()
    result = record(arguments)
    if not arguments.show:
        RECORD.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        pages.write(parts())
    print(table(result))
    print(f"\n{result['searches']:,} searches, {result['core_minutes']:g} minutes of one core")
    for row in result["violated"]:
        print(f"violated: {json.dumps(row)}")


if __name__ == "__main__":
    main()
