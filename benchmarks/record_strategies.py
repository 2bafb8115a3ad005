"""The record of all strategies: on the scout tables and on the simulator, as JSON and as tables in docs/strategies.

    .venv/bin/python benchmarks/record_strategies.py TABLES

TABLES is the folder of the scout tables (18 Spark and Hadoop jobs on EC2; see docs/bench.md). About four minutes.
"""

import argparse
import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from mlcd.bench.case import GoalKind
from mlcd.bench.train import TrainComparison, TrainSummary, compare, summarise
from mlcd.version import __version__

ROOT = Path(__file__).parent.parent
STRATEGIES = ROOT / "docs" / "strategies"
BEGIN, END = "<!-- scout-table -->", "<!-- end: scout-table -->"
SIX = ("heterbo", "convbo", "cherrypick", "convbo-budget", "cherrypick-budget", "random")
ALL_TYPES = "heterbo:start=all"
CASES = (
    (GoalKind.CHEAPEST, 1, SIX),
    (GoalKind.BUDGET, 1, SIX),
    (GoalKind.BOTH, 1, SIX),
    (GoalKind.FASTEST, 8, (*SIX, ALL_TYPES)),
    (GoalKind.FASTEST, 1, (*SIX, ALL_TYPES)),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=-1, help="processes; -1 is one a core")
    arguments = parser.parse_args()
    date = datetime.now(UTC).date().isoformat()
    _record_scout(arguments.tables, arguments.seeds, arguments.jobs, date)
    _record_sim(arguments.seeds, arguments.jobs, date)


def _record_scout(tables: Path, seeds: int, jobs: int, date: str) -> None:
    records = []
    lines = ["| goal | strategy | ratio (95%) | if done | broken | unfinished | trials | ratio, held out |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    for goal, parallel, strategies in CASES:
        whole, held_out = _summaries(
            TrainComparison(
                strategies=strategies, goal=goal, hours=(6.0,), seeds=seeds, tables=tables, parallel=parallel, jobs=jobs
            )
        )
        at_once = f" --parallel {parallel}" if parallel > 1 else ""
        options = f"--goal {goal} --hours 6 --seeds {seeds}{at_once}"
        command = f"mlcd bench train --tables TABLES --strategies '{'; '.join(strategies)}' {options} -o json"
        records.append(_kept(command, whole, held_out))
        label = f"{goal}, {parallel} at once" if parallel > 1 else str(goal)
        lines += [_line(label, s, h) for s, h in zip(whole, held_out, strict=True)]
    _keep("scout", date, records)
    page = STRATEGIES / "heterbo.md"
    table = ["", *lines, "", f"*mlcd {__version__}, {date}, {seeds} seeds, 6 h, noise 3%.*", ""]
    page.write_text(_between(page.read_text(encoding="utf-8"), BEGIN, END, "\n".join(table)), encoding="utf-8")


def _record_sim(seeds: int, jobs: int, date: str) -> None:
    records = []
    lines: dict[str, list[str]] = {name: [] for name in SIX}
    for goal in GoalKind:
        whole = summarise(compare(TrainComparison(strategies=SIX, goal=goal, hours=(6.0,), seeds=seeds, jobs=jobs)))
        command = f"mlcd bench train --sim --strategies {','.join(SIX)} --goal {goal} --hours 6 --seeds {seeds} -o json"
        records.append(_kept(command, whole, []))  # no job of the simulator was held out
        for s in whole:
            lines[s.strategy].append(_sim_line(s))
    _keep("sim", date, records)
    for name, rows in lines.items():
        page = STRATEGIES / f"{name}.md"
        text = [
            "",
            (
                f"Simulated, the nine jobs of HeterBO's paper, fastest training scaled to 6 h, {seeds} seeds each (mlcd"
                f" {__version__}, {date}):"
            ),
            "",
            f"    mlcd bench train --sim --strategies {','.join(SIX)} \\",
            f"      --goal GOAL --hours 6 --seeds {seeds}",
            "",
            ("| goal | runs | ratio | 95% interval | if done | limits broken | unfinished | trials | search share |"),
            "|---|---|---|---|---|---|---|---|---|",
            *rows,
            "",
            "[What the columns mean.](../bench.md#what-the-figures-mean)",
            "",
        ]
        old = page.read_text(encoding="utf-8")
        new = _between(old, f"<!-- sim-table: {name} -->", "<!-- end: sim-table -->", "\n".join(text))
        page.write_text(new, encoding="utf-8")


def _summaries(comparison: TrainComparison) -> tuple[list[TrainSummary], list[TrainSummary]]:
    rows = compare(comparison)
    return summarise(rows), summarise([row for row in rows if row.unseen])


def _kept(command: str, whole: list[TrainSummary], held_out: list[TrainSummary]) -> dict[str, object]:
    return {
        "command": command,
        "summary": [asdict(summary) for summary in whole],
        "summary_unseen": [asdict(summary) for summary in held_out],
    }


def _keep(name: str, date: str, records: list[dict[str, object]]) -> None:
    kept = {"date": date, "version": __version__, "noise": 0.03, "records": records}
    (ROOT / "benchmarks" / "results" / f"{name}.json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def _between(page: str, begin: str, end: str, text: str) -> str:
    """The page with `text` between the two marks; adds an end mark where there is none."""
    before, rest = page.split(begin)
    after = rest.split(end, 1)[1] if end in rest else rest
    return f"{before}{begin}\n{text}{end}{after}"


def _line(goal: str, s: TrainSummary, held_out: TrainSummary) -> str:
    ratio = f"{s.mean_ratio:.3f} ({s.ratio_interval[0]:.2f} to {s.ratio_interval[1]:.2f})"
    counts = f"{s.violations} | {s.unfinished} of {s.runs} | {s.mean_trials:.1f}"
    return (
        f"| {goal} | `{s.strategy}` | {ratio} | {_number(s.mean_ratio_done)} | {counts} | {held_out.mean_ratio:.3f} |"
    )


def _sim_line(s: TrainSummary) -> str:
    share = "-" if s.probe_share is None else f"{s.probe_share:.0%}"
    interval = f"{s.ratio_interval[0]:.2f} to {s.ratio_interval[1]:.2f}"
    ratios = f"{s.mean_ratio:.2f} | {interval} | {_number(s.mean_ratio_done)}"
    return f"| {s.goal} | {s.runs} | {ratios} | {s.violations} | {s.unfinished} | {s.mean_trials:.1f} | {share} |"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


if __name__ == "__main__":
    main()
