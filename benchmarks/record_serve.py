"""The records of `mlcd bench serve` on the paper's simulated space and on ribbon's tables, and docs/falcon-paper.md.

    .venv/bin/python benchmarks/record_serve.py ribbon --tables DIR [--seeds 20]
    .venv/bin/python benchmarks/record_serve.py sim [--seeds 20]            # operators: $MLCD_OPERATORS
    .venv/bin/python benchmarks/record_serve.py evaluations [--seeds 5]     # with the pictures of docs/images
    .venv/bin/python benchmarks/record_serve.py page                        # the tables of the page, from the records

Everything is simulated or replayed; nothing is run. The same tables, seeds and code give the same record.
"""

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

import pages

from mlcd.bench.serve.beds import beds
from mlcd.bench.serve.case import Bed
from mlcd.bench.serve.score import ServeComparison, ServeRow, applicable, compare, summarise
from mlcd.version import __version__
from papers.falcon import draw
from papers.falcon_evaluations import EVALUATED_MS, STRATEGIES, Setting, as_json, evaluate

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
IMAGES = ROOT / "docs" / "images"
PAGE, SHORT_PAGE = ROOT / "benchmarks" / "notes" / "falcon-paper.md", ROOT / "docs" / "falcon-paper.md"
SLO = {"sim": (30.0, 100.0, 150.0), "ribbon": (10.0, 30.0, 100.0)}


def by_target(rows: Sequence[ServeRow]) -> list[dict[str, Any]]:
    groups: dict[tuple[str, str, float], list[ServeRow]] = {}
    for row in rows:
        groups.setdefault((row.strategy, row.target, row.slo_ms), []).append(row)
    return [
        {
            "strategy": strategy,
            "target": target,
            "slo_ms": slo_ms,
            "unseen": found[0].unseen,
            "made": fmean(row.made for row in found),
            "accuracy": {count: fmean(row.accuracy[count] for row in found) for count in found[0].accuracy},
        }
        for (strategy, target, slo_ms), found in groups.items()
    ]


def record_comparison(name: str, found: Sequence[Bed], arguments: argparse.Namespace) -> None:
    trials = tuple(int(count) for count in arguments.trials.split(","))
    comparison = ServeComparison(
        strategies=STRATEGIES, trials=trials, slo_ms=SLO[name], seeds=arguments.seeds, jobs=arguments.jobs
    )
    rows = compare(comparison, found)
    left_out = sorted({text for bed in found for text in applicable(comparison, bed)[1]})
    write(
        RESULTS / f"serve-{name}.json",
        {
            "made": made(),
            "seeds": arguments.seeds,
            "noise": found[0].noise,
            "tables": [
                {"name": b.name, "source": b.known.source, "simulated": b.known.simulated, "targets": b.targets}
                for b in found
            ],
            "left_out_for_want_of_operators": left_out,
            "summary": [asdict(s) for s in summarise(rows)],
            "summary_unseen": [asdict(s) for s in summarise([row for row in rows if row.unseen])],
            "by_target": by_target(rows),
        },
    )


def record_evaluations(arguments: argparse.Namespace) -> None:
    setting = Setting(
        bed=beds(sim=True)[0],
        slo_ms=EVALUATED_MS,
        strategies=STRATEGIES,
        seeds=arguments.seeds,
        jobs=arguments.jobs,
    )
    found = evaluate(setting, range(1, 8))
    draw(found, IMAGES)
    write(RESULTS / "serve-evaluations.json", {"made": made(), **as_json(setting, found)})


def made() -> dict[str, str]:
    return {
        "version": __version__,
        "code": pages.sources("src", "benchmarks/papers"),
        "date": datetime.now(UTC).date().isoformat(),
    }


def write(path: Path, record: dict[str, Any]) -> None:
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    print(f"wrote {path.relative_to(ROOT)}")


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / f"serve-{name}.json").read_text(encoding="utf-8"))
    return found


def recorded(name: str) -> bool:
    return (RESULTS / f"serve-{name}.json").exists()


def markdown(rows: Sequence[Sequence[object]]) -> str:
    lines = ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def origin(record: dict[str, Any]) -> str:
    most = max(line["trials"] for line in record["summary"])
    runs = f"{record['seeds']} seeds, {record['noise']:.0%} noise on every trial"
    never = f"a search that never gets to 95% counts as {most + 1} trials"
    return f"{made_by(record)}: {runs}; {never}."


def made_by(record: dict[str, Any]) -> str:
    made = record["made"]
    return f"mlcd {made['version']} ({made['code']}), {made['date']}"


def comparison_table(record: dict[str, Any]) -> str:
    head: list[object] = [
        "strategy",
        "limit",
        "after 1",
        "after 3",
        "after 6",
        "95% interval at 6",
        "after 15",
        "trials to 95%",
    ]
    rows: list[list[object]] = [head]
    groups: dict[tuple[str, float], dict[int, dict[str, Any]]] = {}
    for line in record["summary"]:
        groups.setdefault((line["strategy"], line["slo_ms"]), {})[line["trials"]] = line
    for (strategy, slo_ms), found in sorted(groups.items(), key=lambda item: item[0][1]):
        low, high = found[6]["interval"]
        accuracy = {n: f"{found[n]['mean_accuracy']:.3f}" for n in (1, 3, 6, 15)}
        reached = f"{found[6]['mean_trials_to_95']:.1f}"
        interval = f"{low:.2f} to {high:.2f}"
        cells = [accuracy[1], accuracy[3], accuracy[6], interval, accuracy[15], reached]
        rows.append([f"`{strategy}`", f"{slo_ms:g} ms", *cells])
    return markdown(rows)


def evaluation_text(one: dict[str, Any]) -> str:
    def cell(value: object) -> str:
        return f"{value:.3f}" if isinstance(value, float) else str(value)

    note = f"\n\n{one['note']}" if one["note"] else ""
    picture = IMAGES / f"falcon-evaluation-{one['number']}.svg"
    shown = f"\n\n![{one['title']}](../../docs/images/{picture.name})" if picture.exists() else ""
    rows = [list(one["columns"]), *([cell(value) for value in row] for row in one["rows"])]
    return f"**The paper:** {one['paper']}\n\n{markdown(rows)}{note}{shown}"


def parts() -> dict[Path, dict[str, str]]:
    """The generated parts of the page, by their names there."""
    found = {
        name: f"{origin(read(name))}\n\n{comparison_table(read(name))}" for name in ("sim", "ribbon") if recorded(name)
    }
    evaluations = read("evaluations")
    found["evaluations"] = (
        f"{made_by(evaluations)}: {evaluations['seeds']} seeds, a limit of {evaluations['slo_ms']:g} ms,"
        f" {evaluations['noise']:.0%} noise on every trial; `benchmarks/results/serve-evaluations.json`."
    )
    for one in evaluations["evaluations"]:
        found[f"evaluation-{one['number']}"] = evaluation_text(one)
    return {PAGE: found, SHORT_PAGE: {"sim": found["sim"]}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["sim", "ribbon", "evaluations", "page"])
    parser.add_argument("--tables", type=Path, default=Path("../shared/measured/ribbon"))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--trials", default="1,3,6,15", help="counts of trials; for sim and ribbon")
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if arguments.what == "page":
        pages.write(parts())
    elif arguments.what == "evaluations":
        record_evaluations(arguments)
    else:
        tables = arguments.tables if arguments.what == "ribbon" else None
        record_comparison(arguments.what, beds(sim=tables is None, tables=tables), arguments)


if __name__ == "__main__":
    main()
