"""How good searches are on the shipped CPU tables: each model held out in turn, load tests answered by its own rows.

    python benchmarks/serve_cpu_accuracy.py [STRATEGY ...]

Prints the mean of (requests per dollar of the choice / of the best) after each of six trials, and the least at the end.
The tables were measured with as many requests in flight as fill every batch; here a batch's time counts as its p99.
"""

import json
import sys

import numpy as np

from mlcd.goal import Goal, Objective, Slo
from mlcd.known import Known, KnownModel
from mlcd.known.cpu import cpu, cpu_noise
from mlcd.problem import Problem
from mlcd.search.registry import strategy
from mlcd.space import Knob, Space
from mlcd.trial.plan import Remaining, best_fitting
from mlcd.trial.trial import History, Load, Measurement
from mlcd.units import ZERO, Usd

TRIALS = 6
SLO_SECONDS = (0.02, 0.05, 0.1)
STRATEGIES = ("falcon", "falcon-transfer", "source-mean", "random")
_BITS = {"fp32": (5.0,), "int8": (3.0,)}


def problem(known: Known, slo_seconds: float) -> Problem:
    """The problem over all configurations of the tables."""
    names = ("batch", "threads", "replicas")
    counts = (Knob(name=n, values=tuple(sorted({c[n] for c in known.configs}, key=float))) for n in names)
    knobs = (*counts, Knob(name="precision", values=tuple(_BITS), features=_BITS))
    return Problem(
        name="left-out",
        work_samples=1e6,
        space=Space(knobs, known.configs),
        goal=Goal(minimize=Objective.COST, slo=Slo(seconds=slo_seconds)),
        usd_per_hour=tuple(Usd.of(str(round(price, 6))) for price in known.usd_per_hour),
        max_trials=TRIALS,
        noise=cpu_noise(),
        verify_seconds=60.0,
    )


def accuracy(known: Known, model: KnownModel, name: str, slo_seconds: float) -> list[float]:
    """After each trial, the choice's value divided by the best."""
    others, asked = known.without(model.name), problem(known, slo_seconds)
    chosen = strategy(name, known=others, target=model.target)
    remaining = Remaining(usd=None, seconds=None, allowed=np.ones(len(asked.space), dtype=bool))
    truth = known.per_dollar(model, slo_seconds)
    history, found = History(), []
    for _ in range(TRIALS):
        for suggestion in chosen.suggest(asked, history, remaining, 1):
            row = asked.space.index[suggestion.config]
            seconds = float(model.latency_seconds[row])
            load = Load(p50_seconds=seconds, p95_seconds=seconds, p99_seconds=seconds, requests=1)
            history = history.with_trials(
                Measurement(
                    config=suggestion.config,
                    attempt=1,
                    samples_per_second=float(known.batches[row] * known.replicas[row] / seconds),
                    relative_error=asked.noise,
                    iterations=1,
                    startup_seconds=0.0,
                    seconds=1.0,
                    usd=ZERO,
                    load=load,
                )
            )
        best = best_fitting(asked, history, remaining)
        found.append(float(truth[asked.space.index[best.config]] / truth.max()) if best else 0.0)
    return found


def main() -> None:
    known = cpu()
    rows = []
    for slo_seconds in SLO_SECONDS:
        models = [model for model in known.models if known.per_dollar(model, slo_seconds).max() > 0]
        for name in sys.argv[1:] or STRATEGIES:
            scores = np.array([accuracy(known, model, name, slo_seconds) for model in models])
            rows.append(
                {
                    "strategy": name,
                    "slo_ms": slo_seconds * 1000,
                    "models": len(models),
                    "mean_accuracy": [round(float(score), 3) for score in scores.mean(axis=0)],
                    "least_at_the_end": round(float(scores[:, -1].min()), 3),
                }
            )
            print(json.dumps(rows[-1]), flush=True)


if __name__ == "__main__":
    main()
