"""The record of `mlcd bench scavenger` and of the models alone, the paper's pictures, the tables of docs/scavenger.md.

    .venv/bin/python benchmarks/record_scavenger.py --tables DIR      # DIR: one folder per model, see docs/scavenger.md

Everything is replayed from measured tables or simulated; nothing is run. The same tables give the same record.
"""

import argparse
import json
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from mlcd.bench.case import is_unseen
from mlcd.bench.scavenger import score as product
from mlcd.bench.scavenger.truth import ScavengerTruth, load_truths
from mlcd.version import __version__
from papers import scavenger
from papers.scavenger_models.ablation import Ablation, ablations
from papers.scavenger_models.score import EXTRA_MODES, MODES, Row, as_json, score, summarise
from papers.scavenger_pictures import PAPER_JOBS

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "scavenger.md"
RESULT = ROOT / "benchmarks" / "results" / "scavenger.json"
IMAGES = ROOT / "docs" / "images"
MODELS_ALONE = (
    "Forecasts from whole trainings at several batches, which no user has (`benchmarks/papers/scavenger_models`):"
    " what the models could do at best."
)
BEGIN, END = "<!-- begin: benchmarks/record_scavenger.py -->", "<!-- end: benchmarks/record_scavenger.py -->"


def sources() -> str:
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    changed = git(
        "status", "--porcelain", "--", "src/mlcd/models", "src/mlcd/bench", "src/mlcd/report", "benchmarks/papers"
    )
    return f"{git('rev-parse', '--short', 'HEAD') or 'unknown'}{' with changes' if changed else ''}"


def best(truth: ScavengerTruth) -> dict[str, Any]:
    quickest, cheapest = min(truth.choices, key=truth.seconds), min(truth.choices, key=truth.usd)
    return {
        "model": truth.name,
        "unseen": is_unseen(truth.name),
        "configurations": len(truth.choices),
        "target": truth.target,
        "fastest": {**asdict(quickest), "seconds": truth.seconds(quickest), "usd": truth.usd(quickest)},
        "cheapest": {**asdict(cheapest), "seconds": truth.seconds(cheapest), "usd": truth.usd(cheapest)},
        "iterations": truth.iterations,
    }


def percent(value: float) -> str:
    return f"{value:.1%}" if value < 10 else f"{value:,.0%}"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [
        "| " + " | ".join(heads) + " |",
        "|" + "---|" * len(heads),
        *("| " + " | ".join(r) + " |" for r in rows),
        "",
    ]


def maybe(value: float | None) -> str:
    return "-" if value is None else percent(value)


def product_summary(rows: Sequence[product.ScavengerRow]) -> list[str]:
    held_out = {s.mode: s for s in product.summarise([r for r in rows if is_unseen(r.model)])}
    lines = []
    for s in product.summarise(rows):
        h = held_out[s.mode]
        pairs = (
            (s.median_time_mape, h.median_time_mape),
            (s.median_regret_time, h.median_regret_time),
            (s.median_regret_cost, h.median_regret_cost),
            (s.median_overhead, h.median_overhead),
        )
        total = f"{s.median_total_ratio:.2f} ({h.median_total_ratio:.2f})"
        lines.append([f"`{s.mode}`", *(f"{maybe(a)} ({maybe(b)})" for a, b in pairs), total])
    heads = ["mode", "time error", "regret, time", "regret, cost", "overhead", "all time over the best training's"]
    return table(heads, lines)


def product_rows(rows: Sequence[product.ScavengerRow]) -> list[str]:
    heads = [
        "model",
        "mode",
        "trials",
        "moves",
        "step",
        "iterations",
        "time",
        "regret: time",
        "cost",
        "knee",
        "overhead",
    ]
    lines = []
    for r in rows:
        errors = (r.step_mape, r.iterations_mape, r.time_mape, r.regret_time, r.regret_cost, r.regret_knee, r.overhead)
        name = f"{r.model} (held out)" if is_unseen(r.model) else r.model
        lines.append([name, f"`{r.mode}`", str(r.trials), str(r.restarts), *(maybe(e) for e in errors)])
    return table(heads, lines)


def summary_table(rows: Sequence[Row]) -> list[str]:
    held_out = {s.mode: s for s in summarise([r for r in rows if is_unseen(r.model)])}
    lines = []
    for s in summarise(rows):
        h = held_out[s.mode]
        pairs = (
            (s.median_time_mape, h.median_time_mape),
            (s.median_regret_time, h.median_regret_time),
            (s.median_regret_cost, h.median_regret_cost),
            (s.median_overhead, h.median_overhead),
        )
        lines.append([f"`{s.mode}`", *(f"{percent(a)} ({percent(b)})" for a, b in pairs)])
    return table(["mode", "time error", "regret, time", "regret, cost", "overhead"], lines)


def rows_table(rows: Sequence[Row]) -> list[str]:
    heads = ["model", "mode", "step", "iterations", "time", "regret: time", "cost", "knee", "overhead"]
    lines = []
    for r in rows:
        errors = (r.step_mape, r.iterations_mape, r.time_mape, r.regret_time, r.regret_cost, r.regret_knee, r.overhead)
        name = f"{r.model} (held out)" if is_unseen(r.model) else r.model
        lines.append([name, f"`{r.mode}`", *(percent(e) for e in errors)])
    return table(heads, lines)


def ablation_table(found: Sequence[Ablation]) -> list[str]:
    models = list(dict.fromkeys(a.model for a in found))
    lines = []
    for of, change in dict.fromkeys((a.of, a.change) for a in found):
        errors = {a.model: a.error for a in found if (a.of, a.change) == (of, change)}
        lines.append([of, change, percent(median(errors.values())), *(percent(errors[m]) for m in models)])
    return table(["error of", "what is changed", "median", *models], lines)


def lengths_table(found: Sequence[dict[str, Any]]) -> list[str]:
    def say(at: dict[str, Any]) -> str:
        return f"K = {at['workers']}, B = {at['batch']:,}: {at['seconds']:,.0f} s, ${at['usd']:,.2f}"

    lines = [
        [f["model"], str(f["configurations"]), f"{f['target']:.4g}", say(f["fastest"]), say(f["cheapest"])]
        for f in found
    ]
    return table(["model", "configurations", "target", "fastest", "cheapest"], lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=-1, help="processes; -1 is one a core")
    arguments = parser.parse_args()
    truths = load_truths(arguments.tables)
    runs = product.score(truths, jobs=arguments.jobs)
    rows = score(truths, modes=(*MODES, *EXTRA_MODES))
    changes, known = ablations(truths), [best(truth) for truth in truths.values()]
    pictures = scavenger.figures(tuple(PAPER_JOBS))
    scavenger.draw(pictures, IMAGES)
    result = {
        "version": __version__,
        "sources": sources(),
        "date": datetime.now(UTC).date().isoformat(),
        "command": "mlcd bench scavenger --tables DIR -o json",
        **product.as_json(runs),
        "summary_unseen": [asdict(s) for s in product.summarise([r for r in runs if is_unseen(r.model)])],
        "models_alone": {
            **as_json(rows),
            "summary_unseen": [asdict(s) for s in summarise([r for r in rows if is_unseen(r.model)])],
        },
        "truth": known,
        "ablations": [asdict(a) for a in changes],
        "figures": scavenger.as_json(pictures),
    }
    RESULT.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    said = f"Version {__version__}, {result['date']}; raw result: `benchmarks/results/scavenger.json`."
    lines = [
        *(f"{said} Median over the six models, and in brackets over the four held-out ones.", ""),
        *product_summary(runs),
        *("### Every model", "", *product_rows(runs)),
        *("### The models alone", "", MODELS_ALONE, "", *summary_table(rows), *rows_table(rows)),
        *("### The trainings", "", *lengths_table(known)),
        *("### What each part is worth", "", *ablation_table(changes)),
    ]
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n\n" + "\n".join(lines) + f"\n{END}{after}", encoding="utf-8")
    print(RESULT.relative_to(ROOT))


if __name__ == "__main__":
    main()
