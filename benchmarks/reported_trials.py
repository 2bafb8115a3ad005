"""`auto` where trials report while they run: held-out workloads of the measured tables, and seen ones beside them.

    .venv/bin/python benchmarks/reported_trials.py TABLES --jobs 2 [--minutes 20]
    .venv/bin/python benchmarks/reported_trials.py --pages

Trials follow the rules of `mlcd train` on rented nodes (report_noise in mlcd.bench.protocol): a start, then reports
that differ, and a strategy may end a trial early. The cases and goals are those of benchmarks/record_strategies.py.
Writes benchmarks/results/reported-trials.json and its table in docs/auto-results.md; continues where it was stopped.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # small matrices, and several processes

import argparse
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pages
from record_strategies import CASES, DEFAULTS, GOALS, HOURS, NOISE, SHORT_GOALS, TABLES
from row_file import FOLDER, Made, Row, RowFile, codes, core_minutes, origin, verifiers

from mlcd.bench.case import TrainRow, is_unseen
from mlcd.bench.oracle import Oracle
from mlcd.bench.protocol import TrainProtocol, Work
from mlcd.bench.train import run_one, summarise
from mlcd.bench.workloads import table_workloads
from mlcd.clouds.replay import ReplayWorkload
from mlcd.version import __version__

RESULT = pages.ROOT / "benchmarks" / "results" / "reported-trials.json"
PAGE = pages.ROOT / "docs" / "auto-results.md"
OURS = ("auto", "auto:least-trial=1")
"""The second ends no trial early: what ending them brings."""
STRATEGIES = (*OURS, "heterbo", Oracle.name)
"""Those that are not ours with thrown work: with other work, the table without reports has heterbo."""
SEEDS = 10
REPORT_NOISE = 0.05
"""The simulator's deviation between steps; docs/bench.md has what was measured on real nodes."""
OTHER_NOISES = (0.02, 0.1)
"""On seen workloads with one seed and thrown work: how much depends on it."""


def tasks(tables: Path, seeds: int) -> dict[str, tuple[ReplayWorkload, str, Work, float, int]]:
    """Every workload with every strategy and kind of work, one seed after the other."""
    sources = [source for bed in TABLES for source in table_workloads(tables / bed).values()]
    return {
        f"{source.name}/{work}/{strategy}/{noise:g}/{seed}": (source, strategy, work, noise, seed)
        for seed in range(seeds)
        for work in Work
        for strategy in STRATEGIES
        if strategy in OURS or work is Work.THROWN
        for noise in (REPORT_NOISE, *(OTHER_NOISES if (strategy, work) == ("auto", Work.THROWN) else ()))
        for source in sources
        if (noise == REPORT_NOISE if is_unseen(source.name) else seed == 0)
    }


def rows_of(source: ReplayWorkload, strategy: str, work: Work, noise: float, seed: int) -> list[Row]:
    """The workload under every goal and length."""
    found = []
    for goal, parallel in CASES[work]:
        for hours in HOURS:
            restart = work.default_restart_seconds
            protocol = TrainProtocol(hours=hours, noise=NOISE, work=work, restart_seconds=restart, report_noise=noise)
            run = run_one(source, protocol, kind=goal, strategy_text=strategy, seed=seed, parallel=parallel)
            if run is not None:
                changed = {name: value for name, value in asdict(run.row).items() if value != DEFAULTS[name]}
                found.append({**changed, "parallel": parallel})
    return found


def record(tables: Path, *, seeds: int, jobs: int, minutes: float | None) -> None:
    """Run what is missing, and keep the summaries of whole seeds."""
    wanted = tasks(tables, seeds)
    file = RowFile(path=FOLDER / "reported-trials.jsonl", code=pages.sources(), group=_settings)
    made = file.complete(rows_of, wanted, jobs=jobs, minutes=minutes)
    lacking = {_settings(name) for name in wanted if name not in made}
    whole = {name: made[name] for name in wanted if _settings(name) not in lacking}
    content = {
        "date": datetime.now(UTC).date().isoformat(),
        "version": __version__,
        "code": codes(whole),
        "verified": verifiers(whole),
        "core_minutes": core_minutes(whole),
        "summary": list(lines(whole)),
    }
    RESULT.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _settings(task: str) -> str:
    """Of a task: all but the workload."""
    return task.split("/", 1)[1]


def lines(made: Mapping[str, Made]) -> Iterable[dict[str, Any]]:
    """A line for each strategy, kind of work and case, of held-out and of seen workloads."""
    groups: dict[tuple[bool, str, int, float | None, str, str], list[TrainRow]] = {}
    for each in made.values():
        for known in each.rows:
            given = {name: value for name, value in known.items() if name != "parallel"}
            row = TrainRow(**{**DEFAULTS, **given})
            key = (row.unseen, row.work, known["parallel"], row.report_noise, row.goal, row.strategy)
            groups.setdefault(key, []).append(row)
    for (unseen, work, parallel, report_noise, _, _), rows in groups.items():
        (pooled,) = summarise(rows, pool_hours=True)
        yield {
            "unseen": unseen,
            "work": work,
            "parallel": parallel,
            "report_noise": report_noise,
            "seeds": len({row.seed for row in rows}),
            "hours": {f"{s.hours:g}": s.mean_ratio for s in summarise(rows)},
            "summary": asdict(pooled),
        }


# ---- page


def parts() -> dict[Path, dict[str, str]]:
    """The table of the page, by its name there."""
    found = json.loads(RESULT.read_text(encoding="utf-8"))
    made = f"*mlcd {found['version']} ({origin(found['code'], found['verified'])}), {found['date']}.*"
    usual = [line for line in found["summary"] if line["report_noise"] == REPORT_NOISE]
    return {PAGE: {"reported": f"{table(usual)}\n\n{noise_table(found['summary'])}\n\n{made}"}}


def table(found: Iterable[Mapping[str, Any]]) -> str:
    """auto beside what was to be reached, without early ends, heterbo and the bound."""
    heads = "work | goal | workloads | seeds | `auto` (95%) | to reach | 2 h | 6 h | 24 h | broken | lost"
    rows = [f"| {heads} | no early ends | `heterbo` | `oracle` |", "|---" * 14 + "|"]
    by_key = {
        (line["work"], line["summary"]["goal"], line["parallel"], line["unseen"], line["summary"]["strategy"]): line
        for line in found
    }
    for work, cases in CASES.items():
        for goal, parallel in cases:
            for unseen, words in ((True, "held out"), (False, "seen")):
                key = (work.value, goal.value, parallel, unseen)
                if (ours := by_key.get((*key, "auto"))) is None:
                    continue
                s, asked = ours["summary"], GOALS.get((work, goal, parallel))
                short = SHORT_GOALS.get(goal) if asked is not None and work is Work.BESIDE else None
                to_reach = "-" if asked is None else f"{asked:.2f}" + (f", 2 h: {short:.2f}" if short else "")
                lengths = " | ".join(f"{ours['hours'][f'{hours:g}']:.2f}" for hours in HOURS)
                others = [
                    f"{other['summary']['mean_ratio']:.2f}" if (other := by_key.get((*key, name))) else "-"
                    for name in STRATEGIES[1:]
                ]
                low, high = s["ratio_interval"]
                case = f"{goal}, {parallel} at once" if parallel > 1 else str(goal)
                figures = f"{s['mean_ratio']:.2f} ({low:.2f} to {high:.2f}) | {to_reach} | {lengths}"
                counts = f"{s['violations']} | {s['unfinished']} of {s['runs']}"
                rows.append(
                    f"| {work} | {case} | {words} | {ours['seeds']} | {figures} | {counts} | {' | '.join(others)} |"
                )
    return "\n".join(rows)


def noise_table(found: Iterable[Mapping[str, Any]]) -> str:
    """auto on seen workloads, one seed, with reports that differ less and more."""
    noises = sorted((REPORT_NOISE, *OTHER_NOISES))
    rows = [f"| work | goal | {' | '.join(f'reports differ by {noise:.0%}' for noise in noises)} |", "|---" * 5 + "|"]
    of = {
        (line["work"], line["summary"]["goal"], line["parallel"], line["report_noise"]): line["summary"]["mean_ratio"]
        for line in found
        if not line["unseen"] and line["summary"]["strategy"] == "auto"
    }
    for work, goal, parallel in (key for key in GOALS if key[0] is Work.THROWN):
        cells = [f"{of[work.value, goal.value, parallel, noise]:.2f}" for noise in noises]
        rows.append(f"| {work} | {goal}{f', {parallel} at once' if parallel > 1 else ''} | {' | '.join(cells)} |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=Path, nargs="?", help="folder of the measured tables; only --pages needs none")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--minutes", type=float, help="start nothing more after so long")
    parser.add_argument("--pages", action="store_true", help="only write the table, from the record")
    given = parser.parse_args()
    if not given.pages:
        if given.tables is None:
            parser.error("the folder of the measured tables is missing")
        record(given.tables, seeds=given.seeds, jobs=given.jobs, minutes=given.minutes)
    pages.write(parts())


if __name__ == "__main__":
    import reported_trials  # the processes that it starts find its functions by this name

    reported_trials.main()
