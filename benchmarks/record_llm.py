"""Language models: searches for instance type and concurrency on the llmpilot tables; docs/language-model-results.md.

    .venv/bin/python benchmarks/record_llm.py run ../shared/measured/llmpilot [--seeds 5] [--only 'auto;random']
    benchmarks/peers/setup optuna
    .venvs/peers-optuna/bin/python benchmarks/record_llm.py run ../shared/measured/llmpilot --only tpe
    .venv/bin/python benchmarks/record_llm.py wrong ../shared/measured/llmpilot   # with wrong descriptions
    .venv/bin/python benchmarks/record_llm.py bounds ../shared/measured/llmpilot  # what stands between auto and 1
    .venv/bin/python benchmarks/record_llm.py page

Replayed from measured tables by the product's own engine; nothing is run on a GPU. The same tables, seeds and code give
the same record.
"""

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, median
from typing import Any, ClassVar

import numpy as np
import pages

from mlcd.bench.case import is_unseen
from mlcd.bench.serve.beds import beds
from mlcd.bench.serve.case import Bed, Case, searcher, walk
from mlcd.bench.serve.llmpilot import described_models
from mlcd.bench.serve.load_tests import LoadTestCase
from mlcd.models.serving.roofline import fits
from mlcd.problem import Problem
from mlcd.search.serving.auto import ServingAuto
from mlcd.search.serving.ranked import RankedStrategy
from mlcd.search.serving.table_informed import Floats, Need
from mlcd.search.strategy import Strategy
from mlcd.trial.trial import History
from mlcd.version import __version__
from peers.tpe_peer import TpePeer

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "benchmarks" / "results" / "serve-llm.json"
PAGE = ROOT / "docs" / "language-model-results.md"
PARTS = {"paces": "a trial is one instance type at one concurrency", "load-tests": "a trial is a load test of one type"}
STRATEGIES = (
    "auto",
    "falcon-transfer",
    "roofline",
    "roofline:learns=off",
    "source-mean",
    "heterbo",
    "random",
    "grid",
    "tpe",
)
WORDS = {
    "roofline": "the prior of `auto` alone",
    "roofline:learns=off": "data sheets alone, as aiconfigurator chooses",
    "grid": "the grid of vLLM's auto_tune, cheapest type first",
    "tpe": "Optuna's TPE as vllm-tuner drives it",
    "heterbo": "the default of language models until now",
}
CHECKPOINTS = (1, 2, 3, 6)
MOST_TRIALS = 30
WITHIN = 0.95
GOAL = 0.9
"""auto's first choice, at the median."""
WRONG = {"a tenth of the parameters": 0.1, "a third": 1 / 3, "as published": 1.0, "three times": 3.0, "ten times": 10.0}


@dataclass(frozen=True, kw_only=True)
class Grid(RankedStrategy):
    """Every configuration: the cheapest type first, and on it the largest concurrency first."""

    name: ClassVar[str] = "grid"
    needs: ClassVar[frozenset[Need]] = frozenset()

    def scores(self, problem: Problem, history: History) -> Floats:  # noqa: ARG002
        sizes = np.array([float(dict(config.values).get("batch", 1)) for config in problem.space])
        return np.asarray(-problem.dollars_per_second * 1e6 + sizes / 1e3)

    def reason(self, problem: Problem, history: History) -> str:  # noqa: ARG002
        return "the next of the grid"


def strategy_of(text: str, case: Case, bed: Bed, seed: int) -> Strategy:
    if text == "grid":
        return Grid(seed=seed)
    if text == "tpe":
        return TpePeer(seed=seed, steps=MOST_TRIALS)
    return searcher(text, case, bed.sources(case.target.name), seed=seed)


def case_of(bed: Bed, name: str, slo_ms: float) -> Case | None:
    kind = LoadTestCase if bed.load_tests else Case
    return kind.of(bed, name, slo_ms / 1000, noise=bed.noise, max_trials=MOST_TRIALS)


def rows_of(tables: Path, text: str, seeds: int) -> list[dict[str, Any]]:
    """Every search of one strategy."""
    found = []
    for part in PARTS:
        bed = beds(tables=tables, load_tests=part == "load-tests")[0]
        for name in bed.targets:
            for slo_ms in bed.slo_ms:
                case = case_of(bed, name, slo_ms)
                for seed in range(seeds if case is not None else 0):
                    assert case is not None
                    made = walk(case, strategy_of(text, case, bed, seed), seed=seed)
                    reached = made.trials_to(WITHIN)
                    found.append(
                        {
                            "part": part,
                            "strategy": text,
                            "target": name,
                            "unseen": is_unseen(name),
                            "slo_ms": slo_ms,
                            "seed": seed,
                            "made": len(made.configs),
                            "accuracy": {str(n): round(made.accuracy_after(n), 4) for n in CHECKPOINTS},
                            "usd": {str(n): round(made.usd_after(n), 4) for n in (*CHECKPOINTS, MOST_TRIALS)},
                            "final": round(made.accuracy_after(MOST_TRIALS), 4),
                            "trials_within_5": reached,
                            "usd_within_5": None if reached is None else round(made.usd_after(reached), 4),
                        }
                    )
    return found


def read() -> dict[str, Any]:
    return json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {"origins": {}, "rows": []}


def write(record: dict[str, Any]) -> None:
    lines = ",\n".join("  " + json.dumps(row) for row in record["rows"])
    head = json.dumps({key: value for key, value in record.items() if key != "rows"}, indent=1)
    RECORD.write_text(f'{head[:-2]},\n "rows": [\n{lines}\n ]\n}}\n', encoding="utf-8")
    print(f"wrote {RECORD.relative_to(ROOT)}")


def made() -> dict[str, str]:
    return {"made": datetime.now(UTC).date().isoformat(), "version": __version__, "code": pages.sources()}


def run(tables: Path, texts: Sequence[str], seeds: int) -> None:
    """Records these strategies; the rows of others stay as they were recorded."""
    record = read()
    for text in texts:
        kept = [row for row in record["rows"] if row["strategy"] != text]
        new = rows_of(tables, text, seeds)
        record["rows"] = sorted([*kept, *new], key=lambda row: STRATEGIES.index(row["strategy"]))
        record["origins"][text] = {**made(), "seeds": seeds}
        write(record)


def wrong(tables: Path, seeds: int) -> None:
    """auto with descriptions that are wrong: trials until within 5% of the best."""
    lines = []
    for part in PARTS:
        bed = beds(tables=tables, load_tests=part == "load-tests")[0]
        for label, times in WRONG.items():
            reached, first = [], []
            for name in bed.targets:
                for slo_ms in bed.slo_ms:
                    case = case_of(bed, name, slo_ms)
                    for seed in range(seeds if case is not None else 0):
                        assert case is not None
                        language = replace(
                            described_models()[name], parameters=described_models()[name].parameters * times
                        )
                        target = replace(case.target.target, language=language)
                        chosen = ServingAuto(known=case.knowledge(bed.sources(name)), target=target, seed=seed)
                        found = walk(case, chosen, seed=seed)
                        reached.append(found.trials_to(WITHIN) or MOST_TRIALS)
                        first.append(found.accuracy_after(1))
            lines.append(
                {
                    "part": part,
                    "description": label,
                    "runs": len(reached),
                    "median_first": round(median(first), 4),
                    "median_trials": median(reached),
                    "mean_trials": round(fmean(reached), 2),
                    "never": sum(trials == MOST_TRIALS for trials in reached),
                }
            )
    record = read()
    record["wrong"] = {**made(), "seeds": seeds, "lines": lines, "memory": memory(beds(tables=tables)[0])}
    write(record)


def memory(bed: Bed) -> dict[str, int]:
    """How the memory rule divides the types that were measured, and those that were not, for each model."""
    counts = {"measured, fits": 0, "measured, left out": 0, "not measured, fits": 0, "not measured, left out": 0}
    for model in bed.known.models:
        ran = {bed.known.configs[row].instance for row in np.flatnonzero(np.isfinite(model.latency_seconds))}
        for instance, machine in bed.known.machines.items():
            language, lengths = model.target.language, bed.known.lengths
            if language is not None and lengths is not None:
                word = "fits" if fits(language, machine, lengths) else "left out"
                counts[f"{'measured' if instance in ran else 'not measured'}, {word}"] += 1
    return counts


def bounds(tables: Path) -> None:
    """The first choice of auto's prior as a user has it, and with the model's own measurements among the known ones."""
    lines = []
    for part in PARTS:
        bed = beds(tables=tables, load_tests=part == "load-tests")[0]
        for label, own in (("as a user has it", False), ("its own measurements known", True)):
            first, of_type = [], []
            for name in bed.targets:
                for slo_ms in bed.slo_ms:
                    case = case_of(bed, name, slo_ms)
                    if case is None:
                        continue
                    chosen = searcher("roofline", case, bed.known if own else bed.sources(name), seed=0)
                    tried = walk(replace(case, problem=replace(case.problem, max_trials=1)), chosen, seed=0)
                    instance = tried.configs[0].instance
                    first.append(tried.accuracy_after(1))
                    of_type.append(max(case.accuracy(c) for c in case.problem.space if c.instance == instance))
            medians = {"first": round(median(first), 4), "type": round(median(of_type), 4)}
            lines.append(
                {"part": part, "knowledge": label, "runs": len(first), **medians, "mean": round(fmean(first), 4)}
            )
    record = read()
    record["bounds"] = {**made(), "lines": lines}
    write(record)


# ---- page


def table(rows: Sequence[dict[str, Any]], part: str) -> str:
    head = ["strategy", "runs", "1: median", "mean", "3: median", "mean", "6: median", "mean", "cost regret 1 / 3 / 6"]
    head += ["trials to 5%", "$ to 5%", "reached"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for text in STRATEGIES:
        of = [row for row in rows if row["part"] == part and row["strategy"] == text]
        if not of:
            continue
        cells = [f"`{text}`", str(len(of))]
        for count in ("1", "3", "6"):
            seen = [row["accuracy"][count] for row in of]
            cells += [f"{median(seen):.3f}", f"{fmean(seen):.3f}"]
        cells.append(" / ".join(regret(of, count) for count in ("1", "3", "6")))
        trials = median([row["trials_within_5"] or math.inf for row in of])
        usd = median([row["usd_within_5"] if row["usd_within_5"] is not None else math.inf for row in of])
        cells += ["never" if math.isinf(trials) else f"{trials:g}", "never" if math.isinf(usd) else f"${usd:.2f}"]
        cells.append(f"{sum(row['trials_within_5'] is not None for row in of) / len(of):.0%}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def regret(rows: Sequence[dict[str, Any]], count: str) -> str:
    """The median of what the choice costs more than the best; infinite where the limit is broken."""
    found = median([1 / row["accuracy"][count] - 1 if row["accuracy"][count] > 0 else math.inf for row in rows])
    return "broken" if math.isinf(found) else f"{found:.0%}"


def by_target(rows: Sequence[dict[str, Any]]) -> str:
    names = list(dict.fromkeys(row["target"] for row in rows))
    limits = sorted({row["slo_ms"] for row in rows})
    head = ["model", "part", *(f"{limit / 1000:g} s" for limit in limits)]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for name in names:
        for part in PARTS:
            cells = []
            for limit in limits:
                of = [
                    row
                    for row in rows
                    if (row["target"], row["part"], row["slo_ms"], row["strategy"]) == (name, part, limit, "auto")
                ]
                means = [fmean(row["accuracy"][count] for row in of) for count in ("1", "3")]
                cells.append(f"{means[0]:.2f}, {means[1]:.2f}")
            held = " (held out)" if is_unseen(name) else ""
            lines.append(f"| {name}{held} | {part} | {' | '.join(cells)} |")
    return "\n".join(lines)


def goal_text(rows: Sequence[dict[str, Any]]) -> str:
    """Whether auto's first choice is within 10% of the best at the median."""
    said = []
    for part, words in PARTS.items():
        values = {}
        for label, keep in (("all models", (True, False)), ("held out", (True,)), ("tuned on", (False,))):
            of = [r for r in rows if (r["part"], r["strategy"]) == (part, "auto") and r["unseen"] in keep]
            values[label] = median([row["accuracy"]["1"] for row in of])
        verdict = "reached" if values["all models"] >= GOAL and values["held out"] >= GOAL else "missed"
        numbers = ", ".join(f"{label} {value:.3f}" for label, value in values.items())
        said.append(f"- Where {words}: **{verdict}**; the median of the first choice is {numbers}.")
    return "\n".join(said)


def wrong_table(record: dict[str, Any]) -> str:
    head = (
        "| parameters in the description | part | runs | first choice, median | trials to 5%: median | mean | never |"
    )
    lines = [head, "|---|---|---|---|---|---|---|"]
    for line in record["wrong"]["lines"]:
        cells = [line["description"], line["part"], str(line["runs"]), f"{line['median_first']:.3f}"]
        cells += [f"{line['median_trials']:g}", f"{line['mean_trials']:.1f}", str(line["never"])]
        lines.append(f"| {' | '.join(cells)} |")
    counts = record["wrong"]["memory"]
    return "\n".join(lines) + (
        f"\n\nMemory by the models' sizes: of {counts['measured, fits'] + counts['measured, left out']} pairs of model"
        f" and type that were measured, {counts['measured, left out']} are left out; of"
        f" {counts['not measured, fits'] + counts['not measured, left out']} that were not,"
        f" {counts['not measured, left out']} are."
    )


def bounds_table(record: dict[str, Any]) -> str:
    head = "| part | knowledge | runs | first choice: median | mean | its type at the best concurrency: median |"
    lines = [head, "|---|---|---|---|---|---|"]
    for line in record["bounds"]["lines"]:
        cells = [line["part"], line["knowledge"], str(line["runs"]), f"{line['first']:.3f}", f"{line['mean']:.3f}"]
        lines.append(f"| {' | '.join([*cells, format(line['type'], '.3f')])} |")
    return "\n".join(lines)


def parts() -> dict[Path, dict[str, str]]:
    record = read()
    rows = record["rows"]
    unseen = [row for row in rows if row["unseen"]]
    origin = record["origins"]["auto"]
    made_by = f"Recorded {origin['made']} with {origin['seeds']} seeds, mlcd {origin['version']} ({origin['code']})."
    texts = {"llm-goal": goal_text(rows), "llm-by-model": by_target(rows), "llm-origin": made_by}
    for part in PARTS:
        texts[f"llm-{part}"] = table(rows, part)
        texts[f"llm-{part}-unseen"] = table(unseen, part)
    texts["llm-wrong"] = wrong_table(record)
    texts["llm-bounds"] = bounds_table(record)
    return {PAGE: texts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "wrong", "bounds", "page"])
    parser.add_argument("tables", type=Path, nargs="?")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", default=";".join(text for text in STRATEGIES if text != "tpe"))
    arguments = parser.parse_args()
    if arguments.what == "page":
        pages.write(parts())
        return
    if arguments.tables is None:
        parser.error("give the folder of the tables")
    if arguments.what == "run":
        run(arguments.tables, [text.strip() for text in arguments.only.split(";")], arguments.seeds)
    elif arguments.what == "bounds":
        bounds(arguments.tables)
    else:
        wrong(arguments.tables, min(arguments.seeds, 2))


if __name__ == "__main__":
    main()
