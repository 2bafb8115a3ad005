"""The record of all strategies: on measured tables and on the simulator, as JSON and as tables in docs/.

    .venv/bin/python benchmarks/record_strategies.py TABLES [--beds scout,multicloud,trimtuner,sim] [--seeds 5]
    .venv/bin/python benchmarks/record_strategies.py --pages    # only the pages, from the records

TABLES is the folder that holds the folders scout, multicloud and trimtuner (docs/bench.md says what they are). About 20
minutes of one core.
"""

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pages

from mlcd.bench.case import GoalKind
from mlcd.bench.train import TrainComparison, compare, summarise
from mlcd.version import __version__

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
STRATEGIES = ROOT / "docs" / "strategies"
PAGE = ROOT / "docs" / "strategy-results.md"
COMPARED = ("heterbo", "heterbo:paper", "convbo", "cherrypick", "convbo-budget", "cherrypick-budget", "random")
ALL_TYPES = "heterbo:start=all"
CASES = (
    (GoalKind.CHEAPEST, 1, COMPARED),
    (GoalKind.BUDGET, 1, COMPARED),
    (GoalKind.BOTH, 1, COMPARED),
    (GoalKind.FASTEST, 8, (*COMPARED, ALL_TYPES)),
    (GoalKind.FASTEST, 1, (*COMPARED, ALL_TYPES)),
)
SIM = "sim"
BEDS = ("scout", "multicloud", "trimtuner", SIM)
HOURS, NOISE = 6.0, 0.03


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=Path, nargs="?", help="folder of the measured tables; only --pages needs none")
    parser.add_argument("--beds", default=",".join(BEDS), help="which to record")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=-1, help="processes; -1 is one a core")
    parser.add_argument("--pages", action="store_true", help="only write the tables of docs/, from the records")
    arguments = parser.parse_args()
    if not arguments.pages:
        if arguments.tables is None:
            parser.error("the folder of the measured tables is missing")
        for bed in arguments.beds.split(","):
            record(bed, arguments.tables, arguments.seeds, arguments.jobs)
    pages.write(parts())


def record(bed: str, tables: Path, seeds: int, jobs: int) -> None:
    """Run every case on one bed and keep the summaries of all workloads, and of the held-out ones."""
    folder = None if bed == SIM else tables / bed
    records = []
    for goal, parallel, strategies in CASES:
        rows = compare(
            TrainComparison(
                strategies=strategies,
                goal=goal,
                hours=(HOURS,),
                seeds=seeds,
                tables=folder,
                noise=NOISE,
                parallel=parallel,
                jobs=jobs,
            )
        )
        where = "--sim" if folder is None else f"--tables TABLES/{bed}"
        options = f"--goal {goal} --hours {HOURS:g} --seeds {seeds} --parallel {parallel} -o json"
        records.append(
            {
                "command": f"mlcd bench train {where} --strategies '{'; '.join(strategies)}' {options}",
                "parallel": parallel,
                "summary": [asdict(summary) for summary in summarise(rows)],
                # No job of the simulator was held out.
                "summary_unseen": [asdict(s) for s in summarise([r for r in rows if r.unseen and folder is not None])],
            }
        )
    kept = {
        "date": datetime.now(UTC).date().isoformat(),
        "version": __version__,
        "sources": pages.sources(),
        "noise": NOISE,
        "seeds": seeds,
        "records": records,
    }
    (RESULTS / f"{bed}.json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


# ---- pages


def parts() -> dict[Path, dict[str, str]]:
    """The tables of every page, by their names there."""
    results = {bed: json.loads((RESULTS / f"{bed}.json").read_text(encoding="utf-8")) for bed in BEDS}
    own = {STRATEGIES / f"{name}.md": {name: _own_table(results, name)} for name in ("heterbo", *COMPARED[2:])}
    beds = {bed: _bed_table(result) for bed, result in results.items()}
    return {PAGE: {"losses": losses_table(results), **beds}, **own}


def losses_table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Where another strategy's mean ratio is below heterbo's, in the digits that are printed."""
    lines = ["| bed | goal | jobs | `heterbo` (95%) | place | ahead of it |", "|---|---|---|---|---|---|"]
    for bed, result in results.items():
        for case in result["records"]:
            for part, jobs in (("summary", "all"), ("summary_unseen", "held out")):
                found = {s["strategy"]: s for s in case[part]}
                if not found:
                    continue
                ours = found["heterbo"]
                ahead = [s for s in found.values() if round(s["mean_ratio"], 2) < round(ours["mean_ratio"], 2)]
                if ahead:
                    names = ", ".join(_ahead(s) for s in sorted(ahead, key=lambda s: float(s["mean_ratio"])))
                    goal = _goal(case, ours)
                    place = f"{len(ahead) + 1} of {len(found)}"
                    lines.append(f"| {bed} | {goal} | {jobs} | {_ratio(ours)} | {place} | {names} |")
    return "\n".join(lines)


def _ahead(s: Mapping[str, Any]) -> str:
    """A strategy that is ahead, with the runs in which it broke a limit or finished nothing."""
    lost = ", ".join(
        f"{s[key]} {word}" for key, word in (("violations", "broken"), ("unfinished", "unfinished")) if s[key]
    )
    return f"`{s['strategy']}` {_ratio(s)}" + (f" [{lost} of {s['runs']}]" if lost else "")


def _goal(case: Mapping[str, Any], s: Mapping[str, Any]) -> str:
    return f"{s['goal']}, {case['parallel']} at once" if case["parallel"] > 1 else str(s["goal"])


def _bed_table(result: Mapping[str, Any]) -> str:
    lines = [
        "| goal | strategy | ratio (95%) | if done | broken | unfinished | trials | held out: ratio (95%) | of runs |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for case in result["records"]:
        held_out = {summary["strategy"]: summary for summary in case["summary_unseen"]}
        for s in case["summary"]:
            goal = _goal(case, s)
            other = held_out.get(s["strategy"])
            apart = f"{_ratio(other)} | {other['runs']}" if other else "- | -"
            counts = f"{s['violations']} | {s['unfinished']} of {s['runs']} | {s['mean_trials']:.1f}"
            done = _number(s["mean_ratio_done"])
            lines.append(f"| {goal} | `{s['strategy']}` | {_ratio(s)} | {done} | {counts} | {apart} |")
    return "\n".join([*lines, "", f"*{_made(result)}*"])


def _own_table(results: Mapping[str, Mapping[str, Any]], name: str) -> str:
    """One strategy on every bed, trials one after the other."""
    lines = [
        "| bed | goal | runs | ratio (95%) | if done | limits broken | unfinished | trials |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for bed, result in results.items():
        for case in result["records"]:
            for s in case["summary"]:
                if case["parallel"] == 1 and s["strategy"] in (
                    (name, "heterbo:paper") if name == "heterbo" else (name,)
                ):
                    goal = s["goal"] if s["strategy"] == name else f"{s['goal']}, `{s['strategy']}`"
                    figures = f"{_ratio(s)} | {_number(s['mean_ratio_done'])} | {s['violations']} | {s['unfinished']}"
                    lines.append(f"| {bed} | {goal} | {s['runs']} | {figures} | {s['mean_trials']:.1f} |")
    seeds = ", ".join(f"{bed} {result['seeds']}" for bed, result in results.items())
    lines += ["", f"*mlcd {results[SIM]['version']}, {results[SIM]['date']}; seeds: {seeds}."]
    lines += ["[What the columns mean](../bench.md#what-the-figures-mean); all strategies side by side, and the"]
    lines += ["held-out jobs: [strategy results](../strategy-results.md).*"]
    return "\n".join(lines)


def _made(result: Mapping[str, Any]) -> str:
    version = f"mlcd {result['version']} ({result['sources']}), {result['date']}"
    return f"{version}: {result['seeds']} seeds, fastest training scaled to {HOURS:g} h, noise {result['noise']:.0%}."


def _ratio(s: Mapping[str, Any]) -> str:
    return f"{s['mean_ratio']:.2f} ({s['ratio_interval'][0]:.2f} to {s['ratio_interval'][1]:.2f})"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


if __name__ == "__main__":
    main()
