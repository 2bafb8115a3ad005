"""What serve_gpu/run.py measured on a GPU: each model's search against the configurations of the same run.

    python benchmarks/record_serve_gpu.py results.jsonl... [--out benchmarks/results/serve-gpu.json]

A configuration is worth its requests a second (of a language model: output tokens) per dollar within the limits, 0
where it breaks one or does not run. What the search chose is judged by the exhaustive measurement, not by its own
trials. A configuration that was measured several times is worth the mean.
"""

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean, median
from typing import Any

import pages

RESULT = pages.ROOT / "benchmarks" / "results" / "serve-gpu.json"
PAGE = pages.ROOT / "docs" / "serve-gpu.md"

Row = dict[str, Any]


def main() -> None:
    """Write the record and the page's tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=RESULT)
    given = parser.parse_args()
    rows = [json.loads(line) for file in given.files for line in file.read_text().splitlines()]
    given.out.write_text(json.dumps(recorded(rows), indent=1) + "\n")
    if given.out == RESULT:
        pages.write(parts())


def recorded(rows: Iterable[Row]) -> Row:
    """The record of all runs: the machine, and each model with its configurations, trials and choice."""
    runs = [row for row in rows if row["kind"] == "run" and row["result"]]
    about = [row for row in rows if row["kind"] == "about"]
    names = dict.fromkeys(row["name"] for row in runs)
    models = {name: _model([row for row in runs if row["name"] == name]) for name in names}
    return {"about": about, "repeated": _repeated(models.values()), "models": models}


def _repeated(models: Iterable[Row]) -> Row:
    """What two measurements of one configuration in one run differ by: the larger / the smaller rate."""
    ratios = []
    for model in models:
        whole = {_key(each["config"]): each["per_second"] for each in model["configurations"]}
        for trial in (trial for search in model["searches"] for trial in search["trials"]):
            one, other = trial["per_second"], whole.get(_key(trial["config"]), 0.0)
            if min(one, other) > 0:
                ratios.append(round(max(one, other) / min(one, other), 3))
        several = [each["per_dollar_each"] for each in model["configurations"] if "per_dollar_each" in each]
        ratios += [round(max(each) / min(each), 3) for each in several if min(each) > 0]
    return {"pairs": len(ratios), "median": median(ratios) if ratios else None, "most": max(ratios, default=None)}


def _model(runs: list[Row]) -> Row:
    measured: dict[str, list[Row]] = {}
    for row in runs:
        if row["role"] == "exhaustive":
            for trial in row["result"]["trials"]:
                measured.setdefault(_key(trial["config"]), []).append(_trial(trial))
    whole = {key: _mean(of) for key, of in measured.items()}
    best = max((each["per_dollar"] for each in whole.values()), default=0.0)
    searches = []
    for row in runs:
        if row["role"] != "search":
            continue
        result = row["result"]
        trials = [_trial(trial) for trial in result["trials"]]
        after = []
        for count in range(1, len(trials) + 1):
            chosen = max(trials[:count], key=lambda each: each["per_dollar"])
            after.append(_share(whole, chosen["config"], best))
        choice = result["choice"]
        searches.append(
            {
                "strategy": result["strategy"],
                "trials": trials,
                "of_best_after_trials": after,
                "choice": choice and choice["config"],
                "of_best": _share(whole, choice["config"], best) if choice else 0.0,
                "verified_seconds": choice and choice["verified_seconds"],
                "promised_per_second": choice and choice["requests_per_second"],
                "verified_load": choice and choice["load"],
                "status": result["status"],
                "receipt": result["receipt"],
            }
        )
    goal, load = next(((row["job"]["goal"], row["job"]["load"]) for row in runs), ({}, {}))
    return {
        "goal": goal,
        "load": load,
        "best_per_dollar": best,
        "configurations": list(whole.values()),
        "searches": searches,
    }


def _mean(of: list[Row]) -> Row:
    """Several measurements of one configuration: the first, with the mean worth, and what each said."""
    if len(of) == 1:
        return of[0]
    worths = [each["per_dollar"] for each in of]
    return {**of[0], "per_dollar": round(fmean(worths), 1), "per_dollar_each": worths}


def _share(whole: dict[str, Row], config: Row, best: float) -> float | None:
    """The configuration's worth / the best's, by the exhaustive measurement; None where that lacks it."""
    found = whole.get(_key(config))
    return None if found is None or not best else round(found["per_dollar"] / best, 4)


def _key(config: Row) -> str:
    return json.dumps(config, sort_keys=True)


def _trial(trial: Row) -> Row:
    measured = trial["measured"]
    row = {"config": trial["config"], "usd_per_hour": trial["usd_per_hour"], "seconds": round(trial["seconds"], 2)}
    if measured is None:
        return {**row, "failure": trial["failure"], "per_second": 0.0, "per_dollar": 0.0}
    load = measured["load"]
    tokens = load["tokens"]
    per_second = tokens["output_tokens_per_second"] if tokens else measured["requests_per_second"]
    kept = measured["meets_goal"]
    return {
        **row,
        "failure": None,
        "per_second": round(per_second, 3),
        "meets_goal": kept,
        "per_dollar": round(per_second * 3600 / trial["usd_per_hour"], 1) if kept else 0.0,
        "p99_ms": round(load["p99_seconds"] * 1000, 2),
        "ttft_p95_ms": round(tokens["ttft_seconds"][1] * 1000, 1) if tokens else None,
        "tpot_p95_ms": round(tokens["tpot_seconds"][1] * 1000, 2) if tokens else None,
        "paces": tokens["front"] if tokens else None,
        "in_flight": round(tokens["concurrency"], 1) if tokens else None,
        "startup_seconds": round(measured["startup_seconds"], 2),
        "gpu_memory_gib": load.get("gpu_memory_gib"),
        "saturated": load["saturated"],
    }


def parts(record: Row | None = None) -> pages.Parts:
    """The tables of the page."""
    found = record or json.loads(RESULT.read_text())
    return {PAGE: {"h200": table(found)}}


def table(record: Row) -> str:
    lines = [
        "| model | configurations | kept the limits | choice of the search | its worth / the best | verified |",
        "|---|---|---|---|---|---|",
    ]
    for name, model in record["models"].items():
        rows = model["configurations"]
        start = f"| {name} | {len(rows)} | {sum(row['per_dollar'] > 0 for row in rows)} |"
        for search in model["searches"]:
            share, held = search["of_best"], search["verified_seconds"]
            knobs = {knob: value for knob, value in (search["choice"] or {}).items() if value != "off"}
            choice = ", ".join(f"{knob} {value}" for knob, value in knobs.items())
            worth = "not measured" if share is None else f"{share:.0%}"
            lines.append(f"{start} {choice or 'none'} | {worth} | {f'{held:.0f} s' if held else 'no'} |")
        if not model["searches"]:
            lines.append(f"{start} not finished | - | no |")
    about, twice = record["about"][-1], record["repeated"]
    said = f"{about['gpu']}; PyTorch {about['torch']}, transformers {about['transformers']}, {about['date'][:10]}."
    noise = (
        ""
        if twice["median"] is None
        else (
            f"{twice['pairs']} configurations were measured twice, by the search and exhaustively in the same run:"
            f" the larger rate is {twice['median']:.2f} times the smaller at the median, {twice['most']:.2f} at most."
        )
    )
    return "\n".join([said, "", *lines, "", noise])


if __name__ == "__main__":
    main()
