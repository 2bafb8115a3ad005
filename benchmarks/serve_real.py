"""Real searches for models that the offline data do not have, compared with measurements of all configurations.

    python benchmarks/serve_real.py FOLDER [--out FILE.json] [--strategies A,B] [NAME ...]

For each model: every configuration of the space is load-tested; each strategy makes its own search, with its own load
tests; then the best configurations and every choice are tested three more times, in turn, because the highest of many
noisy results is likely to have been lucky. `ratio` is the choice's requests per dollar divided by the best's, by the
medians of those last tests.
"""

import argparse
import contextlib
import json
import platform
import tempfile
import time
from pathlib import Path
from typing import Any

import onnxruntime
import pages
from serve_cpu import HELD_OUT, turn
from serving_models import MODELS, build

from mlcd.findings.serve import chosen
from mlcd.jobs.prepared import begin
from mlcd.jobs.serve import PreparedServing, prepare
from mlcd.jobs.serving_space import SERVING_TRIAL
from mlcd.problem import TrialPolicy
from mlcd.profiler.load import measure_load_trial
from mlcd.run.run import SearchRun
from mlcd.space import Config
from mlcd.spec.serve import ServeSpec
from mlcd.spec.serving import serve_mapping
from mlcd.store.store import Store
from mlcd.trial.plan import Plan
from mlcd.trial.trial import Measurement

RESULT = pages.ROOT / "benchmarks" / "results" / "serve-real.json"
PAGE = pages.ROOT / "benchmarks" / "notes" / "serve.md"
SLO = "100ms"
TRIALS = 6
CONFIRM_SECONDS, CONFIRM_ROUNDS = 10.0, 3
KNOBS = {"batch": [1, 4, 16, 64], "threads": 1, "replicas": [1, 2], "precision": ["fp32", "int8"]}
"""Sixteen configurations."""
CONFIRMED = 3
"""Number of the best configurations that are tested again."""


def job(name: str, model: Path, strategy: str, *, trials: int, verify_seconds: float, slo: str = SLO) -> ServeSpec:
    """The job, as from a job file."""
    return serve_mapping(
        {
            "name": name,
            "model": str(model),
            "knobs": KNOBS,
            "goal": {"maximize": "requests per dollar", "slo": {"p99": slo}},
            "load": {"verify": verify_seconds},
            "search": {"strategy": strategy, "max_trials": trials},
        }
    )


def search(spec: ServeSpec, home: Path, *, seed: int = 0) -> tuple[SearchRun, PreparedServing]:
    """A whole run, and what `prepare` returned for it."""
    prepared = prepare(spec, seed=seed, folder=home)
    with Store(home) as store:
        return begin(prepared, store=store), prepared


def per_dollar(record: SearchRun, trial: Measurement | None) -> float:
    """Requests per dollar; 0 where the limit was broken."""
    if trial is None or not trial.meets(record.problem.goal):
        return 0.0
    return 1e6 / Plan.of(record.problem, trial).usd.dollars


def table(record: SearchRun) -> list[dict[str, Any]]:
    """Every load test of a run."""
    return [
        {
            "config": str(row.trial.config),
            "requests_per_second": row.trial.samples_per_second if isinstance(row.trial, Measurement) else None,
            "p99_ms": row.trial.load.p99_seconds * 1000
            if isinstance(row.trial, Measurement) and row.trial.load
            else None,
            "requests_per_dollar": per_dollar(record, row.trial if isinstance(row.trial, Measurement) else None),
            "failure": None if isinstance(row.trial, Measurement) else row.trial.message,
        }
        for row in record.trials
    ]


def _middle(found: list[dict[str, Any]]) -> dict[str, Any]:
    """The test with the median requests per dollar."""
    return sorted(found, key=lambda each: each["requests_per_dollar"])[len(found) // 2]


def again(record: SearchRun, prepared: PreparedServing, config: Config, number: int) -> dict[str, Any]:
    """One more load test of a configuration."""
    policy = TrialPolicy(seconds=CONFIRM_SECONDS, extra_seconds_per_3_nodes=0.0, extension=0.0, watchdog_seconds=20.0)
    trial = measure_load_trial(
        prepared.server,
        config,
        attempt=7 + number,
        policy=policy,
        usd_per_hour=record.problem.price(config),
        test=prepared.test,
        run_id=record.run_id,
    )
    seen = trial if isinstance(trial, Measurement) else None
    return {
        "config": str(config),
        "requests_per_second": seen.samples_per_second if seen else None,
        "p99_ms": seen.load.p99_seconds * 1000 if seen and seen.load else None,
        "requests_per_dollar": per_dollar(record, seen),
    }


def compare(name: str, model: Path, strategies: list[str], home: Path) -> dict[str, Any]:
    """All configurations, the searches, and further tests of the best and of the choices."""
    begun = time.monotonic()
    every, prepared = search(job(name, model, "exhaustive", trials=1000, verify_seconds=0.0), home)
    measured = {t.config: per_dollar(every, t) for t in every.history.measured}
    best = sorted(measured, key=lambda config: -measured[config])[:CONFIRMED]
    searches, wanted = {}, list(best)
    for strategy in strategies:
        record, _ = search(job(name, model, strategy, trials=TRIALS, verify_seconds=0.0), home)
        choice = chosen(record)
        searches[strategy] = {
            "status": str(record.status),
            "trials": len(record.trials),
            "choice": str(choice.config) if choice else None,
            "requests_per_second": choice.requests_per_second if choice else None,
            "p99_ms": choice.load.p99_seconds * 1000 if choice else None,
            "search_seconds": record.search_seconds,
            "search_usd": record.search_usd.dollars,
            "table": table(record),
        }
        if choice is not None and choice.config not in wanted:
            wanted.append(choice.config)
    rounds = [again(every, prepared, config, at) for at in range(CONFIRM_ROUNDS) for config in wanted]
    longer = {str(config): _middle([found for found in rounds if found["config"] == str(config)]) for config in wanted}
    top = max(found["requests_per_dollar"] for found in longer.values())
    for found in searches.values():
        there = longer.get(str(found["choice"]), {"requests_per_dollar": 0.0})
        found["ratio"] = there["requests_per_dollar"] / top if top else 0.0
        found["ratio_in_table"] = (
            next((v for c, v in measured.items() if str(c) == found["choice"]), 0.0) / measured[best[0]]
        )
    return {
        "model": name,
        "family": MODELS[name][0],
        "configurations": len(every.problem.space),
        "exhaustive": table(every),
        "searches": searches,
        "longer": list(longer.values()),
        "seconds": time.monotonic() - begun,
    }


def parts() -> pages.Parts:
    """What the page says of the record, by its name there."""
    record = json.loads(RESULT.read_text(encoding="utf-8"))
    strategies = list(record["models"][0]["searches"])
    about = record["about"]
    heads = "".join(f" choice of `{strategy}` | load tests | choice / best |" for strategy in strategies)
    lines = [
        f"Measured on {about['measured']} with the code of {about['code']}; most requests per dollar, {about['slo']}.",
        "",
        f"| model |{heads}",
        "|---|" + "---|---|---|" * len(strategies),
    ]
    for model in record["models"]:
        searches = (model["searches"][strategy] for strategy in strategies)
        cells = (f"{run['choice'] or 'none'} | {run['trials']} | {run['ratio']:.3f}" for run in searches)
        lines.append(f"| {model['model']} | {' | '.join(cells)} |")
    return {PAGE: {"real": "\n".join(lines)}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", default=list(HELD_OUT))
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--strategies", default="falcon")
    parser.add_argument("--lock", type=Path, default=Path(tempfile.gettempdir()) / "mlcd-measure")
    arguments = parser.parse_args()
    models = build(arguments.folder / "models", *arguments.names)
    done: dict[str, Any] = {"models": []}
    with contextlib.suppress(OSError, ValueError):
        done = json.loads(arguments.out.read_text())
    for name, model in models.items():
        with turn(arguments.lock):
            found = compare(name, model, arguments.strategies.split(","), arguments.folder / "home")
        done["models"] = [other for other in done["models"] if other["model"] != name] + [found]
        done["about"] = {
            "slo": f"p99 within {SLO}",
            "trials": TRIALS,
            "trial_seconds": SERVING_TRIAL.seconds,
            "measured": time.strftime("%Y-%m-%d"),
            "code": pages.sources(),
            "onnxruntime": onnxruntime.__version__,
            "machine": platform.machine(),
        }
        arguments.out.write_text(json.dumps(done, indent=1) + "\n")
        for strategy, run in found["searches"].items():
            print(f"{name} {strategy}: {run['choice']} ratio {run['ratio']:.3f}, {run['trials']} trials", flush=True)


if __name__ == "__main__":
    main()
