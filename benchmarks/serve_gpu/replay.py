"""Strategies on the configurations that were measured on an H200: every one of a model is known, none to the strategy.

    PYTHONPATH=benchmarks python -m serve_gpu.replay [--seeds 12] [--trials 6] [--noise 0.05]

Of the language models of benchmarks/results/serve-gpu.json, whose server is a command with knobs of its own. Prints the
worth of the choice / the best's; a configuration that broke a limit or did not start is worth nothing.
"""

import argparse
import json
from statistics import fmean, median

import numpy as np
from record_serve_gpu import RESULT

from mlcd.bench.serve.case import Bed, Case, searcher, walk
from mlcd.known import Known, KnownModel, TargetModel
from mlcd.space import Config

STRATEGIES = ("auto", "heterbo", "random")
NO_LIMIT_SECONDS = 1e6
"""The limits were judged when it was measured."""


def bed_of(name: str, noise: float) -> Bed:
    """The measured configurations of a model."""
    rows = json.loads(RESULT.read_text())["models"][name]["configurations"]
    rates = np.array([row["per_second"] if row["per_dollar"] > 0 else 0.0 for row in rows])
    with np.errstate(divide="ignore"):
        seconds = np.where(rates > 0, 1.0 / np.maximum(rates, 1e-9), np.inf)
    models = [
        KnownModel(
            target=TargetModel(name=each, operators=()),
            family=each,
            latency_seconds=seconds,
            memory_gib=np.full(len(rows), np.nan),
        )
        for each in (name, "another")
    ]
    known = Known(
        configs=tuple(Config.of(row["config"]) for row in rows),
        usd_per_hour=np.array([row["usd_per_hour"] for row in rows]),
        models=tuple(models),
        curves=(),
        source="serve-gpu.json",
        simulated=False,
    )
    return Bed(name=name, known=known, targets=(name,), trial_seconds=15.0, noise=noise, slo_ms=(NO_LIMIT_SECONDS,))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--trials", type=int, default=6)
    parser.add_argument("--noise", type=float, default=0.05)
    given = parser.parse_args()
    for name in ("llama-100m", "llama-1b"):
        bed = bed_of(name, given.noise)
        case = Case.of(bed, name, NO_LIMIT_SECONDS, noise=given.noise, max_trials=given.trials)
        assert case is not None
        for text in STRATEGIES:
            made = [
                walk(case, searcher(text, case, bed.sources(name), seed=seed), seed=seed).accuracy_after(given.trials)
                for seed in range(given.seeds)
            ]
            near = sum(each >= 0.9 for each in made)
            print(f"{name} {text}: median {median(made):.2f}, mean {fmean(made):.2f}, within 10% {near} of {len(made)}")


if __name__ == "__main__":
    main()
