"""The record of `mlcd bench serverless`, with the tables of docs/siren.md.

    .venv/bin/python benchmarks/record_serverless.py              # a few minutes on 2 cores

Everything is simulated; the same sources give the same record.
"""

import argparse
import json
import statistics
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mlcd.bench.serverless.compare import (
    DEFAULT_SCHEDULERS,
    ServerlessComparison,
    ServerlessRow,
    Versus,
    compare,
    smallest_budgets,
    summarise,
    versus,
    workload_names,
)
from mlcd.version import __version__
from papers import siren_ec2, siren_toy

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "siren.md"
RESULT = ROOT / "benchmarks" / "results" / "serverless.json"
CURVE = ROOT / "benchmarks" / "results" / "siren-training.json"
BEGIN, END = "<!-- begin: benchmarks/record_serverless.py -->", "<!-- end: benchmarks/record_serverless.py -->"
SCRIPT = ".venv/bin/python benchmarks/papers/siren.py"
BUDGETS = (50.0, 100.0, 200.0, 300.0)
PAPER_ROWS = {100.0: (4979.7, 4480.4), 200.0: (2816.9, 2454.4), 300.0: (2452.3, 1569.5)}


def sources() -> str:
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    changed = git(
        "status",
        "--porcelain",
        "--",
        "src/mlcd/schedulers",
        "src/mlcd/bench/serverless",
        "src/mlcd/models",
        "benchmarks/papers",
    )
    return f"{git('rev-parse', '--short', 'HEAD') or 'unknown'}{' with changes' if changed else ''}"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [
        "| " + " | ".join(heads) + " |",
        "|" + "---|" * len(heads),
        *("| " + " | ".join(r) + " |" for r in rows),
        "",
    ]


def percent(value: float | None) -> str:
    return "-" if value is None else f"{value:+.1%}"


def medians(rows: Sequence[ServerlessRow]) -> dict[tuple[str, float], float]:
    """(scheduler, budget) to the median of its time divided by the oracle's, minus 1."""
    done = [row for row in rows if row.status == "done"]
    best = {(row.workload, row.budget_usd, row.seed): row.seconds for row in done if row.scheduler == "informed"}
    found: dict[tuple[str, float], list[float]] = {}
    for row in done:
        if (row.workload, row.budget_usd, row.seed) in best:
            over = row.seconds / best[row.workload, row.budget_usd, row.seed] - 1
            found.setdefault((row.scheduler, row.budget_usd), []).append(over)
    return {key: statistics.median(values) for key, values in found.items()}


def comparison_table(rows: Sequence[ServerlessRow]) -> list[str]:
    pairs: dict[tuple[str, float], Versus] = {(v.scheduler, v.budget_usd): v for v in versus(rows)}
    needed, median = smallest_budgets(rows), medians(rows)
    lines = []
    for s in sorted(summarise(rows), key=lambda s: s.budget_usd):
        at = s.scheduler, s.budget_usd
        pair = pairs.get(at)
        enough = needed.get(at)
        lines.append(
            [
                f"${s.budget_usd:g}",
                f"`{s.scheduler}`",
                "-" if s.mean_seconds is None else f"{s.mean_seconds:,.0f}",
                "-" if s.mean_usd is None else f"{s.mean_usd:,.2f}",
                str(s.violations),
                f"{s.infeasible} of {s.runs}" + (f" (needs ${enough:g})" if enough else ""),
                *(
                    map(percent, (pair.against_static, pair.against_siren, pair.against_informed, median.get(at)))
                    if pair
                    else ("-", "-", "-", "-")
                ),
            ]
        )
    heads = ["budget", "scheduler", "seconds", "USD", "over budget", "not trained"]
    return table([*heads, "vs `static`", "vs `siren`", "vs `informed`", "the same, median"], lines)


def paper_table(rows: Sequence[ServerlessRow]) -> list[str]:
    means = {(s.scheduler, s.budget_usd): s.mean_seconds for s in summarise(rows)}
    lines = []
    for budget, (grid, siren) in PAPER_ROWS.items():
        ours = {name: means.get((name, budget)) for name in ("static-n", "siren", "mpc")}
        base = ours["static-n"]
        lines.append(
            [
                f"${budget:g}",
                f"{grid:,.1f} s",
                f"{siren:,.1f} s ({siren / grid - 1:+.1%})",
                *(
                    "-" if seconds is None or base is None else f"{seconds:,.1f} s ({seconds / base - 1:+.1%})"
                    for seconds in ours.values()
                ),
            ]
        )
    return table(["budget", "paper: grid search", "paper: Siren", "`static-n`", "`siren`", "`mpc`"], lines)


def toy_lines() -> list[str]:
    rows = [
        [
            r.what,
            str(r.epochs),
            f"{r.paper_loss:.6f} / {r.loss:.6f}",
            f"{r.paper_seconds:.2f} / {r.seconds:.2f}",
            f"{r.paper_usd:.3f} / {r.usd:.4f}",
            f"{r.usd_with_storage:.4f}",
        ]
        for r in siren_toy.toy_table()
    ]
    return table(
        ["on", "epochs", "loss: paper / ours", "seconds: paper / ours", "USD: paper / ours", "with storage"], rows
    )


def ec2_lines() -> list[str]:
    rows = [
        [
            f.workload,
            f"by the {f.paid_by}",
            "none payable" if f.most_less_time is None else f"up to {f.most_less_time:.1%}",
            f"{f.fastest_functions.seconds:,.0f} s / {f.fastest_instances.seconds:,.0f} s",
            f"${f.cheapest_functions.usd:.3f} / ${f.cheapest_instances.usd:.3f}",
        ]
        for f in siren_ec2.findings()
    ]
    heads = ["workload", "instances are paid", "less time at equal cost"]
    return table([*heads, "fastest: functions / instances", "cheapest: functions / instances"], rows)


def curve_lines() -> list[str]:
    record = json.loads(CURVE.read_text(encoding="utf-8"))
    curve = record["curve"]
    shown = curve[:: max(1, len(curve) // 10)]
    if shown[-1] is not curve[-1]:
        shown.append(curve[-1])
    rows = [
        [
            f"{p['steps']:,.0f}",
            f"{p['paper']:.3f}",
            f"{p['other']:.3f}",
            "-" if p["reward"] is None else f"{p['reward']:.2f}",
        ]
        for p in shown
    ]
    said = f"`{record['command']}`: {record['seconds']} s on 2 cores that other work shared."
    return [said, "", *table(["epochs seen", "paper's workload", "other workloads", "reward, exploring"], rows)]


def rows_of(name: str, comparison: ServerlessComparison, folder: Path | None) -> list[ServerlessRow]:
    """The rows: read from `folder` where the command was run before, else computed."""
    file = folder / f"{name}.json" if folder is not None else None
    if file is None or not file.exists():
        return compare(comparison)
    read = [ServerlessRow(**row) for row in json.loads(file.read_text(encoding="utf-8"))["rows"]]
    found = {(row.workload, row.scheduler, row.budget_usd) for row in read}
    expected = len(comparison.workloads) * len(comparison.schedulers) * len(comparison.budgets)
    if len(found) != expected or len(read) != expected * comparison.seeds:
        raise SystemExit(f"{file}: is not the result of the command that is recorded")
    return read


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--unseen-seeds", type=int, default=20)
    parser.add_argument("--flat-seeds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--rows", type=Path, help="a folder with paper.json, unseen.json, flat.json: what was printed")
    arguments = parser.parse_args()
    seeds, other, flat_seeds = arguments.seeds, arguments.unseen_seeds, arguments.flat_seeds
    known = (*DEFAULT_SCHEDULERS, "mpc-first", "informed-whole")
    unknown = (*DEFAULT_SCHEDULERS, "mpc-again", "informed-whole")
    jobs, unseen_names = arguments.jobs, workload_names("unseen")
    wanted = {
        "paper": ServerlessComparison(budgets=BUDGETS, seeds=seeds, schedulers=known, jobs=jobs),
        "unseen": ServerlessComparison(
            workloads=unseen_names, schedulers=unknown, budgets=BUDGETS, seeds=other, jobs=jobs
        ),
        "flat": ServerlessComparison(workloads=("flat",), budgets=BUDGETS[1:], seeds=flat_seeds, jobs=jobs),
    }
    seen, unseen, flat = (rows_of(name, comparison, arguments.rows) for name, comparison in wanted.items())
    commands = {
        "paper": f"mlcd bench serverless --budgets 50,100,200,300 --seeds {seeds} --schedulers {','.join(known)}",
        "unseen": f"mlcd bench serverless --budgets 50,100,200,300 --seeds {other} --workloads unseen"
        f" --schedulers {','.join(unknown)}",
        "flat": f"mlcd bench serverless --budgets 100,200,300 --seeds {flat_seeds} --workloads flat",
    }
    record: dict[str, Any] = {
        "version": __version__,
        "sources": sources(),
        "date": datetime.now(UTC).date().isoformat(),
        "simulated": True,
        "commands": commands,
        "toy": siren_toy.as_json()["rows"],
        "ec2": siren_ec2.as_json()["findings"],
    }
    for name, rows in (("paper", seen), ("unseen", unseen), ("flat", flat)):
        record[name] = {
            "summary": [asdict(line) for line in summarise(rows)],
            "versus": [asdict(line) for line in versus(rows)],
        }
    record["paper"]["rows"] = [asdict(row) for row in seen]
    record["unseen"]["workloads"] = {
        name: [asdict(line) for line in summarise([row for row in unseen if row.workload == name])]
        for name in dict.fromkeys(row.workload for row in unseen)
    }
    RESULT.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    lines = [
        *(f"mlcd {__version__}, {record['date']}, simulated; raw result: `benchmarks/results/serverless.json`.", ""),
        *("### The paper's table", "", *paper_table(seen)),
        *(f"### All schedulers, {seeds} seeds", "", f"    {commands['paper']}", "", *comparison_table(seen)),
        *(
            f"### Twelve unseen workloads, {other} seed{'s' if other > 1 else ''} each",
            "",
            f"    {commands['unseen']}",
            "",
        ),
        *comparison_table(unseen),
        *("### Were progress independent of the number of functions", "", f"    {commands['flat']}", ""),
        *comparison_table(flat),
        *("### The toy table", "", f"    {SCRIPT} --figures toy", "", *toy_lines()),
        *(
            "### Functions against instances",
            "",
            f"    {SCRIPT} --figures ec2",
            "",
            *ec2_lines(),
        ),
        *("### How the policy learnt", "", *curve_lines()),
    ]
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n\n" + "\n".join(lines) + f"\n{END}{after}", encoding="utf-8")
    print(RESULT.relative_to(ROOT))


if __name__ == "__main__":
    main()
