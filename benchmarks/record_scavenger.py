"""The record of `mlcd bench scavenger`, the paper's pictures, and the tables of docs/scavenger.md.

    .venv/bin/python benchmarks/record_scavenger.py --tables DIR      # measures; DIR: see docs/scavenger.md
    .venv/bin/python benchmarks/record_scavenger.py                   # the page's tables from the committed record

Everything is replayed from measured tables or simulated; nothing is run. The same tables give the same record.
"""

import argparse
import csv
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pages

from mlcd.bench.case import is_unseen
from mlcd.bench.scavenger.planned import PLANNED_SAMPLES
from mlcd.bench.scavenger.replay import MEAN_START_SECONDS
from mlcd.bench.scavenger.score import MODES, ScavengerRow, ScavengerSummary, Spread, score, summarise
from mlcd.bench.scavenger.truth import ScavengerTruth, load_truths
from mlcd.models.noise_course import expected_noise
from mlcd.spec.batches import RateRule
from mlcd.version import __version__
from papers import scavenger
from papers.scavenger_pictures import PAPER_JOBS

ROOT = Path(__file__).parents[1]
PAGE, SHORT_PAGE = ROOT / "benchmarks" / "notes" / "scavenger.md", ROOT / "docs" / "scavenger.md"
RESULT = ROOT / "benchmarks" / "results" / "scavenger.json"
DIGITS = RESULT.parent / "scavenger" / "scavenger-partial.json"
DIGITS_BED = RESULT.parent / "scavenger" / "bed.csv"
IMAGES = ROOT / "docs" / "images"

GOAL_MODES = ("partial", "goodput")
"""The modes whose errors and regrets have goals."""
DIGITS_BATCH = 64
"""The reference batch of examples/digits-target.yaml; its rule is `sqrt`."""
SAME_SHARE = 5e-4
"""Regrets that differ by less print alike and count as the same."""
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
    said = f"mlcd {record['version']} ({record['sources']}), {record['date']}; `benchmarks/results/scavenger.json`."
    spread = "Medians over models and seeds, with the quartiles."
    lines = [
        *(f"{said} {spread}", "", *_findings(cases, record["truth"])),
        *("### As a user gets it", "", f"    {record['cases']['as-planned']['command']}", ""),
        *("All six models:", "", *_summary(cases["as-planned"])),
        *("The four held-out models:", "", *_summary(_held_out(cases["as-planned"]))),
        *("### Beside no search at all", "", *_no_search(cases["as-planned"], record["truth"])),
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

    def unsearched(goal: str) -> str:
        guesses = [NoSearch.of(rows, truth, goal, mode) for rows in groups for mode in GOAL_MODES]
        (all_low, all_high), (low, high) = (
            sorted(_percent(guess.median) for guess in of) for of in (guesses[:2], guesses[2:])
        )
        return f"{_range(all_low, all_high)} (held out: {_range(low, high)})"

    groups = (cases["as-planned"], _held_out(cases["as-planned"]))
    compared = [NoSearch.of(groups[1], truth, goal, mode) for goal in ("time", "cost") for mode in GOAL_MODES]
    better, same, worse = (sum(counts) for counts in zip(*(c.better_same_worse for c in compared), strict=True))
    waited = [_waited(cases["as-planned"], truth, mode) for mode in GOAL_MODES]
    shares = sorted(f["iterations"][first] * int(first) / PLANNED_SAMPLES[f["model"]] for f, first in _firsts(truth))
    regret, cost, time = both("regret_time"), both("regret_cost"), both("time_mape")
    parts = f"step times by {known('step_mape')}, iterations by {known('iterations_mape')}"
    lines = (
        (
            f"**Regret in time, goal 5%: {verdict('regret_time', 0.05)}.** {regret}. On the same runs the largest batch"
            f" on the most GPUs, chosen without any search, is at {unsearched('time')}."
        ),
        (f"**Regret in cost**: {cost}. On the same runs the smallest batch on one GPU is at {unsearched('cost')}."),
        (
            f"**[Beside no search](#beside-no-search-at-all)**, both goals and both modes, held out: better in"
            f" {better} runs, the same in {same}, worse in {worse}."
        ),
        (
            "**All time, trials included**, over the best training's (the largest batch without search: "
            f"{waited[0][1]}): {', '.join(f'`{mode}` {of}' for mode, (of, _) in zip(GOAL_MODES, waited, strict=True))}."
        ),
        (
            f"**Time error, goal 20%: {verdict('time_mape', 0.20)}.** {time}. What stands in the way is when the target"
            f" will be met: a script plans its epochs, and these targets are met after {shares[0]:.0%} to"
            f" {shares[-1]:.0%} of them at the smallest batch. With that length in the job file, `partial` is off by"
            f" {known('time_mape')}: {parts}."
        ),
    )
    return [*(f"- {line}" for line in lines), ""]


@dataclass(frozen=True, kw_only=True)
class NoSearch:
    """A choice without any search, on the runs of a mode with a regret: those whose trials did not meet the target.

    pairs  (regret of the mode's run, regret of that choice on its model over a whole training)
    """

    pairs: tuple[tuple[float, float], ...]

    @classmethod
    def of(cls, rows: Sequence[ScavengerRow], truth: Sequence[Mapping[str, Any]], goal: str, mode: str) -> "NoSearch":
        """goal: "time" (the largest batch on the most GPUs) or "cost" (the smallest batch on one)."""
        guess = {f["model"]: f["largest_regret" if goal == "time" else "smallest_regret"] for f in truth}
        regrets = [(row.model, getattr(row, f"regret_{goal}")) for row in rows if row.mode == mode]
        return cls(pairs=tuple((regret, guess[model]) for model, regret in regrets if regret is not None))

    @property
    def median(self) -> float:
        """Of the choice without search."""
        return statistics.median(guess for _, guess in self.pairs)

    @property
    def better_same_worse(self) -> tuple[int, int, int]:
        """Runs in which the search's regret is lower, the same, higher."""
        apart = [regret - guess for regret, guess in self.pairs]
        lower, higher = sum(a < -SAME_SHARE for a in apart), sum(a > SAME_SHARE for a in apart)
        return lower, len(apart) - lower - higher, higher


def _no_search(rows: Sequence[ScavengerRow], truth: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = []
    for goal in ("time", "cost"):
        for mode in dict.fromkeys(row.mode for row in rows):
            for of, models in ((rows, "six"), (_held_out(rows), "held out")):
                found = NoSearch.of(of, truth, goal, mode)
                if found.pairs:
                    counts = [str(count) for count in found.better_same_worse]
                    searched = _percent(statistics.median(regret for regret, _ in found.pairs))
                    cells = [goal, f"`{mode}`", models, str(len(found.pairs)), searched, _percent(found.median)]
                    lines.append([*cells, " / ".join(counts)])
    return [
        "Median regrets of the search and of a choice without any (for time the largest batch on the most GPUs,",
        "for cost the smallest batch on one GPU), over the same runs: those with a regret. Trials are in neither.",
        "",
        *_table(["goal", "mode", "models", "runs", "search", "no search", "search better / same / worse"], lines),
    ]


def _waited(rows: Sequence[ScavengerRow], truth: Sequence[Mapping[str, Any]], mode: str) -> tuple[str, str]:
    """All time of a mode's runs over the best training's, and that of the largest batch without search: the median and
    the range over models, each model's over seeds."""
    searched: dict[str, list[float]] = {}
    for row in rows:
        if row.mode == mode:
            searched.setdefault(row.model, []).append(row.total_ratio)
    guessed = {}
    for found in truth:
        best = found["fastest"]["seconds"]
        whole = MEAN_START_SECONDS + best * (1 + found["largest_regret"])
        guessed[found["model"]] = [whole / (MEAN_START_SECONDS + best)] * len(searched[found["model"]])
    said = []
    for of in (searched, guessed):
        medians = sorted(statistics.median(ratios) for ratios in of.values())
        every = statistics.median(ratio for ratios in of.values() for ratio in ratios)
        said.append(f"{every:.2f} times ({medians[0]:.2f} to {medians[-1]:.2f} by model)")
    return said[0], said[1]


def _range(low: str, high: str) -> str:
    return low if low == high else f"{low} and {high}"


def bed_text() -> str:
    """Mean seconds of the real trainings to the target, by batch and nodes; the fastest in bold."""
    found: dict[tuple[int, int], list[float]] = {}
    with DIGITS_BED.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["status"] == "ok":
                found.setdefault((int(row["batch"]), int(row["nodes"])), []).append(float(row["seconds"]))
    seconds = {key: statistics.mean(values) for key, values in found.items()}
    least = min(seconds.values())
    cells = {key: f"**{value:.1f}**" if value == least else f"{value:.1f}" for key, value in seconds.items()}
    batches, nodes = (sorted({key[at] for key in cells}) for at in (0, 1))
    rows = [[str(batch), *(cells.get((batch, count), "-") for count in nodes)] for batch in batches]
    return "\n".join(_table(["B", *(f"K = {count}" for count in nodes)], rows))


def digits_text() -> str:
    """The real runs on the digits, as judged by the rule (recorded) and by their noise (computed from the record)."""
    record = json.loads(DIGITS.read_text(encoding="utf-8"))
    with DIGITS_BED.open(encoding="utf-8") as file:
        done = [row for row in csv.DictReader(file) if row["status"] == "ok" and int(row["batch"]) == DIGITS_BATCH]
    whole = statistics.mean(float(row["steps"]) * DIGITS_BATCH for row in done)
    runs = record["runs"]
    judged = [("rule `sqrt`, as mlcd did before", [(run["regret"], run["median_error_untried"]) for run in runs])]
    judged.append(
        ("noise, as measured", [_digits_by_noise(run, run["noise_scale"], record["measured_seconds"]) for run in runs])
    )
    for share in (0.05, 0.2, 0.5):
        noises = [
            expected_noise(
                [(share * whole, run["noise_scale"])], reference=DIGITS_BATCH, done_samples=0.0, whole_samples=whole
            )
            or 0.0
            for run in runs
        ]
        found = [
            _digits_by_noise(run, noise, record["measured_seconds"]) for run, noise in zip(runs, noises, strict=True)
        ]
        judged.append((f"noise that grows, as mlcd does now, if measured at {share:.0%} of the training", found))
    lines = [[name, *(", ".join(f"{of[at]:.1%}" for of in found) for at in (0, 1))] for name, found in judged]
    return "\n".join(_table(["what counts a sample", "regret", "median error of untried configurations"], lines))


def _digits_by_noise(run: Mapping[str, Any], noise: float, measured: Mapping[str, float]) -> tuple[float, float]:
    """(regret, median error of untried configurations) had this noise scale counted the samples, and not the rule."""

    def seconds(key: str) -> float:
        batch = int(key.partition("x")[2])
        by_rule, by_noise = math.sqrt(batch / DIGITS_BATCH), (noise + batch) / (noise + DIGITS_BATCH)
        return float(run["predicted"][key]) * by_noise / by_rule

    chosen = min(run["predicted"], key=seconds)
    errors = [abs(seconds(key) / true - 1) for key, true in measured.items() if key not in run["tried"]]
    return float(measured[chosen] / min(measured.values()) - 1), statistics.median(errors)


def _firsts(truth: Sequence[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], str]]:
    """Each training with its smallest batch."""
    return [(found, min(found["iterations"], key=int)) for found in truth]


def parts() -> dict[Path, dict[str, str]]:
    """The tables of the page, by their name there."""
    results = page_text(json.loads(RESULT.read_text(encoding="utf-8")))
    short = results.partition("\n### ")[0].replace("](#", f"](../benchmarks/notes/{PAGE.name}#")
    return {
        PAGE: {"results": results, "bed": bed_text(), "digits": digits_text()},
        SHORT_PAGE: {"results": short},
    }


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
    runs = len(cases["linear"])
    rows = {"adascale": [r for r in cases["as-planned"] if r.mode == "partial" and r.seed == 0]}
    rows |= {rule: list(cases[rule]) for rule in ("linear", "sqrt", "fixed")}
    lines = []
    for rule, of in rows.items():
        (s,) = summarise(of)
        spreads = (s.iterations_mape, s.time_mape, s.regret_time, s.regret_cost)
        lines.append([f"`{rule}`", *(_spread(spread) for spread in spreads)])
    return [
        f"`partial`, one seed ({runs} runs a rule). The rule only changes what mlcd assumes: all six trainings",
        "were made with AdaScale, so this table says that the choice does not depend on the rule, not how a",
        "training under another rule would go. The one real test of another rule: [real nodes](#on-real-nodes).",
        "",
        *_table(["rule", "iterations error", "time error", "regret, time", "regret, cost"], lines),
    ]


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
    heads = ["model", "configurations", "target", "fastest", "cheapest"]
    return [
        "The last two columns are choices without any search: the largest batch on the most GPUs (its regret in time),",
        "and the smallest batch on one GPU (its regret in cost).",
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
