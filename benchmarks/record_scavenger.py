"""The record of `mlcd bench scavenger`, the paper's pictures, and the tables of docs/scavenger.md.

    .venv/bin/python benchmarks/record_scavenger.py --tables DIR      # measures; DIR: see docs/scavenger.md
    .venv/bin/python benchmarks/record_scavenger.py                   # the page's tables from the committed record

Everything is replayed from measured tables or simulated; nothing is run. The same tables give the same record.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pages

from mlcd.bench.case import is_unseen
from mlcd.bench.scavenger.planned import PLANNED_SAMPLES
from mlcd.bench.scavenger.score import MODES, ScavengerRow, ScavengerSummary, Spread, score, summarise
from mlcd.bench.scavenger.truth import ScavengerTruth, load_truths
from mlcd.spec.batches import RateRule
from mlcd.version import __version__
from papers import scavenger
from papers.scavenger_pictures import PAPER_JOBS

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "scavenger.md"
RESULT = ROOT / "benchmarks" / "results" / "scavenger.json"
IMAGES = ROOT / "docs" / "images"

GOAL_MODES = ("partial", "goodput")
"""The modes whose errors and regrets have goals."""
CASES: Mapping[str, tuple[str, dict[str, Any]]] = {
    "as-planned": ("", {"modes": MODES, "seeds": 2}),
    "known-length": (" --known-length", {"modes": ("partial",), "seeds": 2, "known_length": True}),
    **{
        rule: (f" --rule {rule}", {"modes": ("partial",), "seeds": 1, "rule": RateRule(rule)})
        for rule in ("linear", "sqrt", "fixed")
    },
}
"""What is run: its name in the record, the options of the command, and how it is called."""


def best(truth: ScavengerTruth) -> dict[str, Any]:
    quickest, cheapest = min(truth.choices, key=truth.seconds), min(truth.choices, key=truth.usd)
    largest = max(truth.choices, key=lambda choice: (choice.batch, choice.workers))
    smallest = min(truth.choices, key=lambda choice: (choice.workers, choice.batch))
    return {
        "model": truth.name,
        "unseen": is_unseen(truth.name),
        "configurations": len(truth.choices),
        "target": truth.target,
        "fastest": {**asdict(quickest), "seconds": truth.seconds(quickest), "usd": truth.usd(quickest)},
        "cheapest": {**asdict(cheapest), "seconds": truth.seconds(cheapest), "usd": truth.usd(cheapest)},
        "largest_regret": truth.seconds(largest) / truth.seconds(quickest) - 1,
        "smallest_regret": truth.usd(smallest) / truth.usd(cheapest) - 1,
        "iterations": truth.iterations,
    }


def measure(tables: Path, jobs: int) -> dict[str, Any]:
    """The whole record, from the tables."""
    truths = load_truths(tables)
    pictures = scavenger.figures(tuple(PAPER_JOBS))
    scavenger.draw(pictures, IMAGES)
    made_of, cases = pages.sources("src", "benchmarks/papers"), {}
    for name, (options, arguments) in CASES.items():
        print(name, flush=True)
        command = f"mlcd bench scavenger --tables DIR{options} --seeds {arguments['seeds']} -o json"
        cases[name] = {
            "command": f"{command} --modes {','.join(arguments['modes'])}",
            "rows": [asdict(row) for row in score(truths, jobs=jobs, **arguments)],
        }
    return {
        "version": __version__,
        "sources": made_of,
        "date": datetime.now(UTC).date().isoformat(),
        "cases": cases,
        "truth": [best(truth) for truth in truths.values()],
        "figures": scavenger.as_json(pictures),
    }


def page_text(record: Mapping[str, Any]) -> str:
    """The generated part of docs/scavenger.md."""
    cases = {name: [ScavengerRow(**row) for row in case["rows"]] for name, case in record["cases"].items()}
    said = f"Version {record['version']}, {record['date']}; raw result: `benchmarks/results/scavenger.json`."
    spread = "Medians over models and seeds, with the quartiles."
    lines = [
        *(f"{said} {spread}", "", *_findings(cases, record["truth"])),
        *("### As a user gets it", "", f"    {record['cases']['as-planned']['command']}", ""),
        *("All six models:", "", *_summary(cases["as-planned"])),
        *("The four held-out models:", "", *_summary(_held_out(cases["as-planned"]))),
        *("### With the length known", "", f"    {record['cases']['known-length']['command']}", ""),
        *("All six models:", "", *_summary(cases["known-length"])),
        *("The four held-out models:", "", *_summary(_held_out(cases["known-length"]))),
        *("### Under each learning-rate rule", "", *_rules(cases)),
        *("### Every model", "", *_models(cases["as-planned"])),
        *("### The trainings", "", *_lengths(record["truth"])),
    ]
    return "\n".join(lines)


def _findings(cases: Mapping[str, Sequence[ScavengerRow]], truth: Sequence[Mapping[str, Any]]) -> list[str]:
    """The two goals, and what stands in the way of the one that is missed."""

    def over(case: str, mode: str, key: str) -> str:
        rows = [row for row in cases[case] if row.mode == mode]
        whole, held_out = ([getattr(row, key) for row in of] for of in (rows, _held_out(rows)))
        return f"{_median(whole)} (held out: {_median(held_out)})"

    def verdict(key: str, goal: float) -> str:
        medians = [Spread.of([getattr(r, key) for r in cases["as-planned"] if r.mode == mode]) for mode in GOAL_MODES]
        return "reached" if all(m is not None and m.median <= goal for m in medians) else "missed"

    def both(key: str) -> str:
        return ", ".join(f"`{mode}` {over('as-planned', mode, key)}" for mode in GOAL_MODES)

    def known(key: str) -> str:
        return over("known-length", "partial", key)

    guess = _median([f["largest_regret"] for f in truth])
    shares = sorted(f["iterations"][first] * int(first) / PLANNED_SAMPLES[f["model"]] for f, first in _firsts(truth))
    regret, cost, time = both("regret_time"), both("regret_cost"), both("time_mape")
    parts = f"step times by {known('step_mape')}, iterations by {known('iterations_mape')}"
    lines = (
        (
            f"**Regret in time, goal 5%: {verdict('regret_time', 0.05)}.** {regret}. The largest batch on the most"
            f" GPUs, chosen without any search, is at {guess}: these tables are kind to large batches."
        ),
        f"**Regret in cost**: {cost}.",
        (
            f"**Time error, goal 20%: {verdict('time_mape', 0.20)}.** {time}. What stands in the way is when the target"
            f" will be met: a script plans its epochs, and these targets are met after {shares[0]:.0%} to"
            f" {shares[-1]:.0%} of them at the smallest batch. With that length in the job file, `partial` is off by"
            f" {known('time_mape')}: {parts}."
        ),
    )
    return [*(f"- {line}" for line in lines), ""]


def _firsts(truth: Sequence[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], str]]:
    """Each training with its smallest batch."""
    return [(found, min(found["iterations"], key=int)) for found in truth]


def parts() -> dict[Path, dict[str, str]]:
    """The tables of the page, by their name there."""
    return {PAGE: {"results": page_text(json.loads(RESULT.read_text(encoding="utf-8")))}}


def _held_out(rows: Sequence[ScavengerRow]) -> list[ScavengerRow]:
    return [row for row in rows if is_unseen(row.model)]


def _summary(rows: Sequence[ScavengerRow]) -> list[str]:
    heads = ["mode", "runs", "met in trials", "step error", "iterations error", "time error", "regret, time"]
    return _table(
        [*heads, "regret, cost", "all time over the best training's"],
        [_summary_line(f"`{s.mode}`", s) for s in summarise(rows)],
    )


def _summary_line(name: str, s: ScavengerSummary) -> list[str]:
    spreads = (s.step_mape, s.iterations_mape, s.time_mape, s.regret_time, s.regret_cost)
    total = "-" if s.total_ratio is None else f"{s.total_ratio.median:.2f}"
    return [name, str(s.runs), str(s.met_in_trials), *(_spread(spread) for spread in spreads), total]


def _rules(cases: Mapping[str, Sequence[ScavengerRow]]) -> list[str]:
    """`partial` with the first seed."""
    rows = {"adascale": [r for r in cases["as-planned"] if r.mode == "partial" and r.seed == 0]}
    rows |= {rule: list(cases[rule]) for rule in ("linear", "sqrt", "fixed")}
    lines = []
    for rule, of in rows.items():
        (s,) = summarise(of)
        spreads = (s.iterations_mape, s.time_mape, s.regret_time, s.regret_cost)
        lines.append([f"`{rule}`", *(_spread(spread) for spread in spreads)])
    return _table(["rule", "iterations error", "time error", "regret, time", "regret, cost"], lines)


def _models(rows: Sequence[ScavengerRow]) -> list[str]:
    lines = []
    for model, mode in dict.fromkeys((row.model, row.mode) for row in rows):
        of = [row for row in rows if (row.model, row.mode) == (model, mode)]
        name = f"{model} (held out)" if is_unseen(model) else model
        figures = [
            [getattr(row, key) for row in of]
            for key in ("step_mape", "iterations_mape", "time_mape", "regret_time", "regret_cost", "regret_knee")
        ]
        counts = ["/".join(str(getattr(row, key)) for row in of) for key in ("trials", "restarts")]
        done = "/".join(f"{row.done_share:.0%}" for row in of)
        lines.append([name, f"`{mode}`", *counts, done, *(_median(values) for values in figures)])
    heads = ["model", "mode", "trials", "moves", "done by trials", "step", "iterations", "time"]
    return [
        "Trials, moves and the share of the training that trials did, by seed; the rest are medians over seeds.",
        "",
        *_table([*heads, "regret: time", "cost", "knee"], lines),
    ]


def _lengths(found: Sequence[Mapping[str, Any]]) -> list[str]:
    def say(at: Mapping[str, Any]) -> str:
        return f"K = {at['workers']}, B = {at['batch']:,}: {at['seconds']:,.0f} s, ${at['usd']:,.2f}"

    lines = [
        [
            *(f["model"], str(f["configurations"]), f"{f['target']:.4g}", say(f["fastest"]), say(f["cheapest"])),
            *(_percent(f["largest_regret"]), _percent(f["smallest_regret"])),
        ]
        for f in found
    ]
    guesses = [_median([f[key] for f in found]) for key in ("largest_regret", "smallest_regret")]
    heads = ["model", "configurations", "target", "fastest", "cheapest"]
    return [
        "The last two columns are choices without any search: the largest batch on the most GPUs (its regret in time),",
        f"and the smallest batch on one GPU (its regret in cost). Their medians are {guesses[0]} and {guesses[1]}.",
        "",
        *_table([*heads, "largest: time", "smallest: cost"], lines),
    ]


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [
        "| " + " | ".join(heads) + " |",
        "|" + "---|" * len(heads),
        *("| " + " | ".join(r) + " |" for r in rows),
        "",
    ]


def _spread(value: Spread | None) -> str:
    return "-" if value is None else f"{_percent(value.median)} ({_percent(value.low)} to {_percent(value.high)})"


def _median(values: Sequence[float | None]) -> str:
    found = Spread.of(values)
    return "-" if found is None else _percent(found.median)


def _percent(value: float) -> str:
    return f"{value:.1%}" if value < 10 else f"{value:,.0%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=Path, help="measure anew, with these tables")
    parser.add_argument("--jobs", type=int, default=-1, help="processes; -1 is one a core")
    arguments = parser.parse_args()
    if arguments.tables is not None:
        record = measure(arguments.tables, arguments.jobs)
        RESULT.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    pages.write(parts())


if __name__ == "__main__":
    main()
