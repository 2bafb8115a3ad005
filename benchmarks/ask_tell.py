"""How `mlcd.Search(knobs=...)` compares with random search on synthetic functions and jobs, seed by seed.

    python benchmarks/ask_tell.py            # seeds 1000 to 1019: writes the record and the tables of docs/python.md
    python benchmarks/ask_tell.py 0 10       # other seeds: prints the record

Each seed is one pair: the default strategy and random search get the same number of trials. `SEEN` were used while
the strategy was developed (seeds 0 to 9), `HELD_OUT` were not. Jobs differ for each seed; for them the strategies stop
by themselves, random search makes 8 trials, and the total of search and work counts.
"""

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise, product
from typing import Any, Literal

import numpy as np
import pages

import mlcd

RESULT = pages.ROOT / "benchmarks" / "results" / "ask-tell.json"
PAGE = pages.ROOT / "docs" / "python.md"
SEEDS = range(1000, 1020)
Values = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Function:
    """A function of knobs to minimise in `trials` trials, each with normal noise."""

    of: Callable[[Values], float]
    knobs: Mapping[str, Sequence[str | float]]
    trials: int
    noise: float = 0.0

    def truth(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """All values, the best first."""
        names = list(self.knobs)
        return np.sort([self.of(dict(zip(names, row, strict=True))) for row in product(*self.knobs.values())])


def grid(low: float, high: float, points: int) -> list[float]:
    return [float(x) for x in np.linspace(low, high, points)]


def branin(v: Values) -> float:
    x, y = v["x"], v["y"]
    bowl = y - 5.1 / (4 * math.pi**2) * x * x + 5 / math.pi * x - 6
    return float(bowl**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10)


def rosenbrock(v: Values) -> float:
    x = list(v.values())
    return float(sum(100 * (b - a * a) ** 2 + (1 - a) ** 2 for a, b in pairwise(x)))


def rastrigin(v: Values) -> float:
    return float(sum(10 + x * x - 10 * math.cos(2 * math.pi * x) for x in v.values()))


def training(v: Values) -> float:
    """An error rate by learning rate, weight decay, batch, dropout and optimizer."""
    best, gap = {"sgd": (-1.2, 0.02), "adam": (-3.0, 0.0), "lamb": (-2.2, 0.012)}[v["optimizer"]]
    rate, decay = math.log10(v["lr"]), math.log10(v["decay"])
    away = 0.03 * (rate - best) ** 2 + 0.006 * (decay + 4) ** 2 + 0.01 * abs(math.log2(v["batch"] / 128))
    return float(0.07 + gap + away + 0.05 * (v["dropout"] - 0.2) ** 2)


def pipeline(v: Values) -> float:
    """Minus the images per second of a model that its loader feeds."""
    base = {"cpu": 1, "t4": 6, "v100": 14, "a100": 25}[v["instance"]]
    rate = base * (1.7 if v["precision"] == "bf16" and base > 1 else 1.0)
    return float(-rate * min(1.0, 3 * v["workers"] / rate**0.8) / (1 + 0.02 * max(0, v["workers"] - 6) ** 2))


def ackley(v: Values) -> float:
    x = np.array(list(v.values()))
    far, waves = math.sqrt(float((x**2).mean())), float(np.cos(2 * math.pi * x).mean())
    return float(20 + math.e - 20 * math.exp(-0.2 * far) - math.exp(waves))


def hartmann(v: Values) -> float:
    """Hartmann's function of three numbers; below 0."""
    scale = np.array([[3, 10, 30], [0.1, 10, 35], [3, 10, 30], [0.1, 10, 35]])
    centre = np.array([[3689, 1170, 2673], [4699, 4387, 7470], [1091, 8732, 5547], [381, 5743, 8828]]) / 1e4
    apart = (scale * (np.array(list(v.values())) - centre) ** 2).sum(axis=1)
    return float(-np.array([1.0, 1.2, 3.0, 3.2]) @ np.exp(-apart))


def serving(v: Values) -> float:
    """Milliseconds of a query by batch, threads, runtime, quantisation and whether it is compiled."""
    work = {"torch": 1.0, "onnx": 0.72, "tvm": 0.65}[v["runtime"]] * {"fp32": 1.0, "fp16": 0.7, "int8": 0.5}[v["type"]]
    work *= 0.85 if v["compiled"] and v["runtime"] == "torch" else 1.0
    threads = v["threads"] / (1 + 0.02 * v["threads"] ** 1.5)
    return float(40 * work * v["batch"] ** 0.8 / threads / v["batch"] + 0.3 * v["batch"] + 0.5 * v["threads"])


def lattice(v: Values) -> float:
    """Options only, some of which interact."""
    digits = [int(str(x)[-1]) for x in v.values()]
    return float(sum((d - 2) ** 2 for d in digits) - 3 * (digits[0] == digits[1]) + 2 * abs(digits[2] - digits[3]))


SEEN = {
    "branin": Function(of=branin, knobs={"x": grid(-5, 10, 31), "y": grid(0, 15, 31)}, trials=20),
    "rosenbrock": Function(of=rosenbrock, knobs={name: grid(-2, 2, 9) for name in "abcd"}, trials=40),
    "rastrigin": Function(of=rastrigin, knobs={name: grid(-4, 4, 17) for name in "abc"}, trials=40),
    "training": Function(
        of=training,
        knobs={
            "lr": [10 ** (-5 + step / 3) for step in range(16)],
            "decay": [10.0**-power for power in range(1, 8)],
            "batch": [16, 32, 64, 128, 256, 512],
            "dropout": grid(0, 0.5, 6),
            "optimizer": ["sgd", "adam", "lamb"],
        },
        trials=30,
    ),
    "pipeline": Function(
        of=pipeline,
        knobs={
            "instance": ["cpu", "t4", "v100", "a100"],
            "precision": ["fp32", "bf16"],
            "workers": [float(n) for n in range(1, 17)],
        },
        trials=12,
    ),
}
HELD_OUT = {
    "ackley": Function(of=ackley, knobs={name: grid(-5.2, 4.8, 11) for name in "abcd"}, trials=40),
    "hartmann": Function(of=hartmann, knobs={name: grid(0, 1, 21) for name in "abc"}, trials=30),
    "hartmann, noise 0.2": Function(of=hartmann, knobs={name: grid(0, 1, 21) for name in "abc"}, trials=30, noise=0.2),
    "serving": Function(
        of=serving,
        knobs={
            "runtime": ["torch", "onnx", "tvm"],
            "type": ["fp32", "fp16", "int8"],
            "compiled": [True, False],
            "batch": [1, 2, 4, 8, 16, 32, 64],
            "threads": [1, 2, 4, 8, 12, 16],
        },
        trials=20,
    ),
    "options only": Function(
        of=lattice, knobs={name: [f"{name}{digit}" for digit in range(6)] for name in ("p", "q", "r", "s")}, trials=30
    ),
}


def found(function: Function, seed: int, strategy: str | None) -> float:
    """The true value of the search's choice after its trials."""
    search = mlcd.Search(
        knobs=function.knobs, objective="minimize", max_trials=function.trials, seed=seed, strategy=strategy
    )
    chance = np.random.default_rng([7, seed])
    while suggestions := search.ask():
        for suggestion in suggestions:
            told = function.of(suggestion.config.as_dict()) + function.noise * chance.normal()
            search.tell(suggestion, value=told)
    assert search.best is not None
    return function.of(search.best.config.as_dict())


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """The values that both found, by seed; lower is better."""

    ours: tuple[float, ...]
    random: tuple[float, ...]

    @property
    def better(self) -> int:
        return sum(a < b for a, b in zip(self.ours, self.random, strict=True))

    @property
    def worse(self) -> int:
        return sum(a > b for a, b in zip(self.ours, self.random, strict=True))

    @property
    def counts(self) -> str:
        """Better, equal, worse."""
        return f"{self.better}, {len(self.ours) - self.better - self.worse}, {self.worse}"


def compared(function: Function, seeds: Sequence[int]) -> Pairs:
    """The default strategy and random search, seed by seed."""
    return Pairs(
        ours=tuple(found(function, seed, None) for seed in seeds),
        random=tuple(found(function, seed, "random") for seed in seeds),
    )


# ---- throughput of known work

MACHINES = {"c5": (20.0, 1.36), "g4": (120.0, 0.526), "p3": (300.0, 3.06), "p4": (900.0, 10.0)}
"""Samples per second and dollars per hour; invented."""
TWO_KNOBS: dict[str, Any] = {"instance": list(MACHINES), "nodes": range(1, 21)}
FOUR_KNOBS: dict[str, Any] = {**TWO_KNOBS, "precision": ["fp32", "bf16"], "workers": range(1, 9)}


class Job:
    """The speed of a synthetic job of this seed: its machines, its scaling, the effect of precision and loader."""

    def __init__(self, seed: int) -> None:
        chance = np.random.default_rng(seed)
        self.factor = {name: math.exp(0.3 * chance.normal()) for name in MACHINES}
        self.serial, self.exchange = chance.uniform(0, 0.1), chance.uniform(0, 0.01)
        self.bf16, self.workers = chance.uniform(1, 2), chance.uniform(1, 8)
        self.samples, self.budget = 10 ** chance.uniform(6.5, 8), 10 ** chance.uniform(1.3, 2.3)
        self.objective: Literal["time", "cost"] = "time" if chance.random() < 0.5 else "cost"
        self.chance = np.random.default_rng([5, seed])

    def measured(self, v: Values) -> float:
        nodes = v["nodes"]
        speed = MACHINES[v["instance"]][0] * self.factor[v["instance"]] * nodes
        speed /= 1 + self.serial * (nodes - 1) + self.exchange * nodes * (nodes - 1)
        if v.get("precision") == "bf16" and v["instance"] != "c5":
            speed *= self.bf16
        return float(
            speed * min(1.0, 0.3 + 0.7 * v.get("workers", 8) / self.workers) * math.exp(0.03 * self.chance.normal())
        )


def total(knobs: Mapping[str, Any], seed: int, strategy: str) -> float:
    """Search and work together, in the goal's unit; infinite where the search found nothing that fits."""
    job = Job(seed)
    by_time = job.objective == "time"
    search = mlcd.Search(
        knobs=knobs,
        objective=job.objective,
        work_samples=job.samples,
        trial_seconds=300,
        usd_per_hour={name: usd for name, (_, usd) in MACHINES.items()},
        budget=f"{job.budget:.2f} USD" if by_time else None,
        deadline=None if by_time else "48h",
        strategy=strategy,
        seed=seed,
        max_trials=8 if strategy == "random" else 30,
    )
    while suggestions := search.ask():
        for suggestion in suggestions:
            speed = job.measured(suggestion.config.as_dict())
            search.tell(suggestion, samples_per_second=speed, seconds=300, startup_seconds=60)
    plan = search.best
    if plan is None:
        return math.inf
    if by_time:
        return float(plan.seconds + sum(trial.seconds for trial in search.history))
    return float(plan.usd) + sum(trial.usd.dollars for trial in search.history)


def _functions(seeds: Sequence[int]) -> Iterator[dict[str, Any]]:
    for kind, functions in (("", SEEN), (" (held out)", HELD_OUT)):
        for name, function in functions.items():
            truth, pairs = function.truth(), compared(function, seeds)
            yield {
                "function": f"{name}{kind}",
                "configurations": len(truth),
                "trials": function.trials,
                "best": float(truth[0]),
                "default": pairs.ours,
                "random": pairs.random,
            }


def _throughput(seeds: Sequence[int]) -> Iterator[dict[str, Any]]:
    for knobs in (TWO_KNOBS, FOUR_KNOBS):
        chance = [total(knobs, seed, "random") for seed in seeds]
        for strategy in ("heterbo", "bayesian"):
            ours = [total(knobs, seed, strategy) for seed in seeds]
            yield {"knobs": ", ".join(knobs), "strategy": strategy, "ours": _finite(ours), "random": _finite(chance)}


def _finite(totals: Sequence[float]) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in totals]


def parts() -> pages.Parts:
    """What the page says of the record, by its name there."""
    record = json.loads(RESULT.read_text(encoding="utf-8"))
    count = len(record["seeds"])
    functions = [
        f"Measured on {record['date']} with the code of {record['code']}.",
        "",
        f"| function | configurations | trials | best | default | random | better, equal, worse of {count} |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in record["functions"]:
        pairs = Pairs(ours=tuple(row["default"]), random=tuple(row["random"]))
        functions.append(
            f"| {row['function']} | {row['configurations']:,} | {row['trials']} | {row['best']:.4g}"
            f" | {np.median(pairs.ours):.4g} | {np.median(pairs.random):.4g} | {pairs.counts} |"
        )
    throughput = [
        f"| knobs | strategy | total over random's | better, equal, worse of {count} | no answer (random) |",
        "|---|---|---|---|---|",
    ]
    for row in record["throughput"]:
        ours, chance = ([math.inf if value is None else value for value in row[name]] for name in ("ours", "random"))
        both = [(a, b) for a, b in zip(ours, chance, strict=True) if math.isfinite(a) and math.isfinite(b)]
        ratio = math.exp(sum(math.log(a / b) for a, b in both) / len(both))
        pairs = Pairs(ours=tuple(ours), random=tuple(chance))
        throughput.append(
            f"| {row['knobs']} | {row['strategy']} | {ratio:.2f} | {pairs.counts}"
            f" | {row['ours'].count(None)} ({row['random'].count(None)}) |"
        )
    return {PAGE: {"ask-tell": "\n".join(functions), "ask-tell-jobs": "\n".join(throughput)}}


def main() -> None:
    given = sys.argv[1:3]
    seeds = range(*map(int, given)) if given else SEEDS
    record = {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "code": pages.sources(),
        "seeds": list(seeds),
        "functions": list(_functions(seeds)),
        "throughput": list(_throughput(seeds)),
    }
    text = json.dumps(record, indent=1) + "\n"
    if given:
        print(text)
        return
    RESULT.write_text(text, encoding="utf-8")
    pages.write(parts())


if __name__ == "__main__":
    main()
