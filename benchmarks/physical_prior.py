"""What a description of the trained transformer is worth, and what a wrong one costs: simulated jobs with knobs.

    python benchmarks/physical_prior.py --jobs 200 [--strategy auto] [--record]

Every job is searched three times: without a description, with the right one, and with one whose sizes are each wrong by
a factor of 2 to 10. Counted are the trials until something within 5% of the best was measured. A search that ends
before that counts as one trial more than it made, and in the second count as one more than it may make (26): the first
rewards a search that ends early without having found anything, the second does not. The truth shares no law with
mlcd.models.transformer: see `Truth`. --record writes every search to results/physical-prior.json, and the table of
docs/knobs.md.
"""

import argparse
import json
import math
import random
import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pages

from mlcd.goal import Goal, Objective
from mlcd.problem import Problem, TrialPolicy
from mlcd.search.registry import strategy
from mlcd.search.strategy import with_wishes
from mlcd.space import Config, Knob, Space, Workers
from mlcd.space.settings import Setting, Settings
from mlcd.testing.made import failed, measured
from mlcd.testing.strategies import walk
from mlcd.transformer import Transformer
from mlcd.trial.trial import FailureKind, Trial
from mlcd.units import Usd
from mlcd.version import __version__

RECORD = pages.ROOT / "benchmarks" / "results" / "physical-prior.json"
PAGE = pages.ROOT / "docs" / "knobs.md"
KINDS = ("none", "right", "wrong")
NODES = (1, 2, 4)
KNOBS = Settings(
    (
        Setting(name="precision", values=("fp32", "bf16")),
        Setting(name="micro_batch", values=(1, 2, 4, 8, 16), memory="rises"),
        Setting(name="recompute", values=(False, True), memory="falls"),
        Setting(name="compile", values=(False, True)),
    )
)
MACHINES = {
    # name: (accelerator, GPUs, USD per hour, peak TFLOPS, memory GiB), as catalogs have them
    "a.t4": ("T4", 1, 0.53, 65.0, 16.0),
    "b.a10g": ("A10G", 4, 5.67, 70.0, 24.0),
    "c.l40s": ("L40S", 4, 10.5, 362.0, 48.0),
    "d.a100": ("A100", 8, 32.8, 312.0, 40.0),
}
WITHIN = 1.05
MOST_TRIALS = 25


@dataclass(frozen=True)
class Truth:
    """A made-up job: how fast each configuration really is, None if it runs out of memory.

    Speeds saturate exponentially with a power of the micro-batch, gain from 16 bits by a factor of each machine, lose
    by a random factor with recomputation, and scale with a random power of the workers; every combination has a
    deviation of its own. Memory is a random number of bytes a parameter and a power law in the micro-batch.
    """

    model: Transformer
    seed: str

    def speed(self, config: Config) -> float | None:
        """Samples a second."""
        chance = random.Random(self.seed)
        bytes_each, activation, exponent = chance.uniform(10, 20), chance.uniform(0.3, 2.5), chance.uniform(0.7, 1.0)
        scaling, at_half, power = chance.uniform(0.7, 0.98), chance.uniform(0.5, 8), chance.uniform(0.5, 1.2)
        slower, compiled = chance.uniform(1.1, 1.5), math.exp(chance.uniform(-0.1, 0.35))
        saves = chance.uniform(3, 15)
        name, gpus, _, tflops, memory_gib = MACHINES[config.instance]
        own = random.Random(f"{self.seed}|{name}")
        reached, half_gain = own.uniform(0.1, 0.5), math.exp(own.uniform(0.2, 1.6))
        quirk = math.exp(0.04 * random.Random(f"{self.seed}|{config}").gauss())
        micro, half = float(config["micro_batch"]), config["precision"] == "bf16"
        held = activation * self.model.layers * self.model.hidden * self.model.sequence * 40e-9 * micro**exponent
        held /= (saves if config["recompute"] else 1.0) * (1.7 if half else 1.0)
        if self.model.parameters * bytes_each / 2**30 + held + 1.0 > memory_gib:
            return None
        work = self.model.parameters * self.model.sequence * 6.5
        busy = 1 - math.exp(-((micro / at_half) ** power))
        speed = tflops * 1e12 * reached * busy * (half_gain if half else 1.0) / half_gain / work
        speed /= slower if config["recompute"] else 1.0
        speed *= (compiled if config["compile"] else 1.0) * quirk
        return float(speed * (gpus * config.nodes) ** scaling)


def made_job(seed: int) -> tuple[Problem, Truth]:
    """A job of a random size, and the truth about it."""
    chance = random.Random(f"physical-prior|{seed}")
    hidden = chance.choice([768, 1024, 1536, 2048])
    layers, sequence = chance.choice([12, 16, 24, 32]), chance.choice([512, 1024, 2048])
    model = Transformer(
        parameters=12.0 * layers * hidden**2, layers=layers, hidden=hidden, heads=hidden // 64, sequence=sequence
    )
    instances = Knob(
        name="instance",
        values=tuple(MACHINES),
        features={
            name: (math.log2(m[1] * m[3]), math.log2(m[1] * m[4]), math.log2(m[2])) for name, m in MACHINES.items()
        },
        log2_sizes={name: math.log2(m[1] * m[4]) for name, m in MACHINES.items()},
        kinds={name: m[0] for name, m in MACHINES.items()},
        workers={
            name: Workers(count=m[1], memory_gib=m[4], accelerator=m[0], tflops=m[3]) for name, m in MACHINES.items()
        },
    )
    rows = KNOBS.rows("", 1)
    configs = tuple(
        Config((("instance", name), ("nodes", n), *zip(KNOBS.names, row, strict=True)))
        for name in MACHINES
        for n in NODES
        for row in rows
    )
    space = Space((instances, Knob(name="nodes", values=NODES), *KNOBS.space_knobs(rows)), configs)
    truth = Truth(model, f"physical-prior|{seed}|truth")
    best = max(truth.speed(config) or 0.0 for config in configs)
    problem = Problem(
        name=f"made-{seed}",
        work_samples=best * chance.uniform(2, 12) * 3600,
        space=space,
        goal=Goal(minimize=chance.choice([Objective.TIME, Objective.COST])),
        usd_per_hour=tuple(Usd.of(str(round(MACHINES[c.instance][2] * c.nodes, 4))) for c in configs),
        trial=TrialPolicy(seconds=300.0),
        max_trials=MOST_TRIALS,
        samples_per_step=256,
    )
    return problem, truth


def wrong(model: Transformer, seed: int) -> Transformer:
    """The same with every size wrong by a factor of 2 to 10, up or down."""
    chance = random.Random(f"wrong|{seed}")

    def off(value: float) -> float:
        return max(1.0, value * math.exp(chance.choice([-1, 1]) * chance.uniform(math.log(2), math.log(10))))

    return Transformer(
        parameters=off(model.parameters),
        layers=round(off(model.layers)),
        hidden=round(off(model.hidden)),
        heads=round(off(model.heads)),
        sequence=round(off(model.sequence)),
    )


@dataclass(frozen=True)
class Searched:
    """Trials until within 5% of the best, all trials, those out of memory, and value of the answer over the best."""

    trials: int
    made: int
    out_of_memory: int
    ratio: float


def searched(name: str, problem: Problem, truth: Truth) -> Searched:
    """One search, one trial at a time."""
    chosen = strategy(name)
    problem = with_wishes(problem, chosen)
    speeds = [truth.speed(config) or 0.0 for config in problem.space]
    rates = problem.dollars_per_second
    values = np.array([problem.goal.value(1 / s, r / s) if s else math.inf for s, r in zip(speeds, rates, strict=True)])

    def outcome(problem: Problem, config: Config, attempt: int) -> Trial:
        speed = truth.speed(config)
        if speed is None:
            return failed(problem, config, FailureKind.OUT_OF_MEMORY, attempt=attempt)
        noise = random.Random(f"{problem.name}|{config}|noise").gauss(0, 0.02)
        return measured(problem, config, speed * math.exp(noise), error=0.03, startup=30.0)

    history = None
    found = None
    for step in walk(chosen, problem, outcome=outcome):
        history = step.history
        tried = [float(values[problem.space.index[trial.config]]) for trial in history.measured]
        if found is None and tried and min(tried) <= WITHIN * values.min():
            found = len(history)
        if len(history) >= MOST_TRIALS:
            break
    assert history is not None
    best = min((float(values[problem.space.index[t.config]]) for t in history.measured), default=math.inf)
    return Searched(found or len(history) + 1, len(history), len(history.failures), best / float(values.min()))


def compared(name: str, seeds: range) -> Iterator[dict[str, Searched]]:
    """Each job without a description, with the right one, and with a wrong one."""
    for seed in seeds:
        problem, truth = made_job(seed)
        yield {
            "none": searched(name, problem, truth),
            "right": searched(name, replace(problem, transformer=truth.model), truth),
            "wrong": searched(name, replace(problem, transformer=wrong(truth.model, seed)), truth),
        }


def summary(rows: list[dict[str, Searched]]) -> dict[str, dict[str, float]]:
    """Means over jobs, and how many trials more than none, by both counts."""
    found: dict[str, dict[str, float]] = {}
    for kind in KINDS:
        each = [row[kind] for row in rows]
        more = sorted(row[kind].trials - row["none"].trials for row in rows)
        strict = [_strict(row[kind]) - _strict(row["none"]) for row in rows]
        error = statistics.stdev(strict) / math.sqrt(len(strict)) if len(strict) > 1 else 0.0
        found[kind] = {
            "trials_to_5_percent": round(statistics.mean(s.trials for s in each), 2),
            "trials_to_5_percent_or_26": round(statistics.mean(map(_strict, each)), 2),
            "trials_made": round(statistics.mean(s.made for s in each), 2),
            "out_of_memory": round(statistics.mean(s.out_of_memory for s in each), 2),
            "within_5_percent": round(statistics.mean(s.ratio <= WITHIN for s in each), 3),
            "answer_over_best": round(math.exp(statistics.mean(math.log(min(s.ratio, 100)) for s in each)), 3),
            "mean_more_than_none": round(statistics.mean(more), 2),
            "p95_more_than_none": more[min(len(more) - 1, math.ceil(0.95 * len(more)) - 1)],
            "mean_more_than_none_or_26": round(statistics.mean(strict), 2),
            "error_of_that": round(error, 2),
        }
    return found


def _strict(found: Searched) -> int:
    return found.trials if found.ratio <= WITHIN else MOST_TRIALS + 1


def parts() -> dict[Path, dict[str, str]]:
    """What the page says of the record."""
    record: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    lines = [
        (
            "| description | trials to within 5% | the same, 26 where never | more than none | out of memory"
            " | within 5% | answer over best |"
        ),
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for kind in KINDS:
        row = record["summary"][kind]
        more = "-" if kind == "none" else f"{row['mean_more_than_none_or_26']:+.1f} ± {1.96 * row['error_of_that']:.1f}"
        lines.append(
            f"| {kind} | {row['trials_to_5_percent']:.1f} | {row['trials_to_5_percent_or_26']:.1f} | {more}"
            f" | {row['out_of_memory']:.1f} | {row['within_5_percent']:.0%} | {row['answer_over_best']:.3f} |"
        )
    lines += ["", f"`{record['command']}`, simulated, {record['date']}, commit {record['code']}."]
    return {PAGE: {"physical-prior": "\n".join(lines)}}


def main() -> None:
    """Print the comparison; write it where --record says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--strategy", default="auto")
    parser.add_argument("--record", action="store_true")
    given = parser.parse_args()
    rows = list(compared(given.strategy, range(given.first, given.first + given.jobs)))
    found = {
        "command": f"benchmarks/physical_prior.py --jobs {given.jobs}",
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "version": __version__,
        "code": pages.sources(),
        "strategy": given.strategy,
        "first": given.first,
        "summary": summary(rows),
    }
    print(json.dumps(found, indent=1))
    if given.record:
        searches = [{kind: asdict(row[kind]) for kind in KINDS} for row in rows]
        RECORD.write_text(json.dumps({**found, "searches": searches}, indent=0) + "\n", encoding="utf-8")
        pages.write(parts())


if __name__ == "__main__":
    main()
