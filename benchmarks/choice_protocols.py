"""Random trainings with knobs, spot or on-demand, and several clouds: is a limit ever broken?

    .venv/bin/python benchmarks/choice_protocols.py --count 10000 --record
    .venv/bin/python benchmarks/choice_protocols.py --first 2500 --count 2500 --part /tmp/part2.json   # a part of it
    .venv/bin/python benchmarks/choice_protocols.py --join /tmp/part*.json --record
    .venv/bin/python benchmarks/choice_protocols.py --only 17                                            # one of them

Every protocol draws, from its number: 1 to 3 clouds (each may refuse access or have no capacity, data may cost to move
there), 0 to 3 knobs with conditions and exclusions (some combinations run out of memory), spot as a choice or not with
rates believed up to ten times too low or high, failures of trials, noise, limits from hopeless to loose, a strategy and
how many trials run at once. What is checked, apart from the ledger's own books:

    overspent   the money of all steps is more than the budget: never, at any assurance
    late        the deadline passed: at most 1 - assurance of the trainings that started certain to fit
    books       a step cost more than was authorised, or other than its price and its data; a round was authorised
                more than was left; a combination that conditions exclude was tried; a configuration was tried twice
                for the same attempt
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # small matrices; the processes already use every core

import argparse
import json
import math
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pages
from joblib import Parallel, delayed

from mlcd.bench.case import search as run_search
from mlcd.catalog import Instance, load_catalog
from mlcd.clouds.sim import Rates, SimCloud, SimJob
from mlcd.goal import Goal, Objective
from mlcd.interruptions import Interruptions
from mlcd.problem import DataMove, Problem, TrialPolicy
from mlcd.run.run import SearchRun
from mlcd.run.step import Role
from mlcd.space import MARKET, ON_DEMAND, SPOT, Config, Knob, Space
from mlcd.space.placed import placed_name, plain_name
from mlcd.space.settings import Condition, Setting, Settings
from mlcd.trial.outcome import Status
from mlcd.trial.trial import Failure, FailureKind
from mlcd.units import Usd
from mlcd.version import __version__

RECORD = pages.ROOT / "benchmarks" / "results" / "choice-protocols.json"
PAGE = pages.ROOT / "docs" / "reliability.md"
TYPES = {
    "aws": ("c5.xlarge", "c5.4xlarge", "m5.2xlarge", "g4dn.xlarge", "g5.xlarge", "g6.2xlarge"),
    "gcp": ("n2-standard-8", "g2-standard-4", "g2-standard-8"),
    "azure": ("Standard_D8s_v5", "Standard_NC4as_T4_v3"),
}
STRATEGIES = ("auto", "auto", "heterbo", "convbo-budget", "cherrypick-budget", "lynceus", "ernest", "arrow")
KNOBS = (
    Setting(name="precision", values=("fp32", "bf16")),
    Setting(name="micro_batch", values=(1, 4, 16), memory="rises"),
    Setting(name="recompute", values=(False, True), memory="falls"),
    Setting(name="workers", values=(0, 2, 4)),
)


class KnobbedSim(SimCloud):
    """The simulator with knobs: each value has a factor, each combination a deviation; some run out of memory."""

    fits_share = 1.0

    def true_samples_per_second(self, config: Config) -> float | None:
        """The simulator's speed times the knobs' effects; the market changes nothing."""
        plain = super().true_samples_per_second(Config.deployment(config.instance, config.nodes))
        if plain is None or not config.settings:
            return plain
        factor = 1.0
        for name, value in config.settings.items():
            factor *= math.exp(0.5 * random.Random(f"{self.seed}|{name}|{value}").gauss())
        factor *= math.exp(0.05 * random.Random(f"{self.seed}|{config.instance}|{config.settings}").gauss())
        large = config.settings.get("micro_batch") == 16 and config.settings.get("recompute") is not True
        short = large and random.Random(f"{self.seed}|{config.instance}").random() > self.fits_share
        return None if short else plain * factor


def protocol(seed: int, number: int) -> tuple[Problem, KnobbedSim, str, int, Settings]:
    """The problem, its cloud, a strategy, how many trials at once, and the declared knobs."""
    rng = random.Random(f"choice/{seed}/{number}")
    clouds = rng.sample(tuple(TYPES), rng.choice((1, 2, 2, 3)))
    instances = _instances(rng, clouds)
    spot = rng.random() < 0.7
    rate = 10 ** rng.uniform(-3, math.log10(0.5))
    moves = _moves(rng, clouds) if len(clouds) > 1 else {}
    refusing = {
        cloud: rng.choice((FailureKind.REFUSED, FailureKind.CAPACITY)) for cloud in clouds if rng.random() < 0.08
    }
    cloud = KnobbedSim(
        cloud=",".join(clouds),
        instances={name: replace(each, name=plain_name(name)) for name, each in instances.items()},
        job=SimJob(model=rng.choice(("alexnet", "resnet152", "inception-v3", "char-rnn")), batch=512),
        seed=rng.randrange(10**9),
        noise=rng.choice((0.0, 0.01, 0.03, 0.06)),
        rates=replace(rng.choice((Rates(), Rates(launch=0.03, capacity=0.05, hang=0.01))), spot=rate if spot else 0.0),
        refusing=refusing,
        moves=moves,
    )
    cloud.fits_share = rng.choice((1.0, 0.5))
    settings = _settings(rng)
    problem = _problem(rng, cloud, instances, settings, spot=spot, rate=rate)
    return replace(problem, moves=moves), cloud, rng.choice(STRATEGIES), rng.choice((1, 1, 1, 3)), settings


def _instances(rng: random.Random, clouds: Sequence[str]) -> dict[str, Instance]:
    """Types by the names that they have in the space."""
    catalog, found = load_catalog(), {}
    for cloud in clouds:
        offered = catalog.for_cloud(cloud)
        names = [name for name in TYPES[cloud] if name in offered]
        for name in rng.sample(names, rng.randint(1, min(3, len(names)))):
            found[placed_name(name, cloud) if len(clouds) > 1 else name] = offered[name]
    return found


def _moves(rng: random.Random, clouds: Sequence[str]) -> dict[str, DataMove]:
    found = {}
    for cloud in clouds:
        usd, seconds = rng.choice((0.0, 0.1, 1.0, 10.0)), rng.choice((0.0, 0.0, 60.0, 600.0))
        less = rng.choice((1.0, 0.1))
        found[cloud] = DataMove(
            usd=Usd.of(usd), trial_usd=Usd.of(usd * less), seconds=seconds, trial_seconds=seconds * less
        )
    return found


def _settings(rng: random.Random) -> Settings:
    """None, or some of the knobs, with a condition between two of them and an exclusion at times."""
    chosen = list(rng.sample(KNOBS, rng.choice((0, 1, 2, 3, 3))))
    if len(chosen) > 1 and rng.random() < 0.4:
        first, second = chosen[0], chosen[1]
        chosen[1] = replace(second, when=Condition(((first.name, first.values[:1]),)))
    exclude: tuple[Condition, ...] = ()
    if len(chosen) > 2 and rng.random() < 0.4:
        exclude = (Condition(tuple((knob.name, knob.values[-1:]) for knob in (chosen[0], chosen[2]))),)
    return Settings(tuple(chosen), exclude)


def _problem(
    rng: random.Random, cloud: KnobbedSim, instances: dict[str, Instance], knobs: Settings, *, spot: bool, rate: float
) -> Problem:
    counts = sorted(rng.sample(range(1, 17), rng.randint(1, 4)))
    rows = knobs.rows("", 1) if knobs else [()]
    machines = [
        Config((*Config.deployment(name, nodes).values, *zip(knobs.names, row, strict=True)))
        for name in instances
        for nodes in counts
        for row in rows
    ]
    configs, prices = [], []
    for config in machines:
        instance = instances[config.instance]
        for market, price in ((ON_DEMAND, instance.usd_per_hour), (SPOT, instance.spot_usd_per_hour)):
            if price is None or (market == SPOT and not spot):
                continue
            configs.append(Config((*config.values, (MARKET, market))) if spot else config)
            prices.append(price * config.nodes)
    parts = [
        Knob(name="instance", values=tuple(instances), features={n: i.features for n, i in instances.items()}),
        Knob(name="nodes", values=tuple(counts)),
        *(knobs.space_knobs(rows) if knobs else ()),
    ]
    if spot:
        parts.append(Knob(name=MARKET, values=(ON_DEMAND, SPOT), features={ON_DEMAND: (), SPOT: ()}, same_speed=True))
    speeds = {c: s for c in machines if (s := cloud.true_samples_per_second(c)) is not None} or {machines[0]: 1.0}
    work = max(speeds.values()) * 3600 * 10 ** rng.uniform(0.0, 1.3)
    kept = rng.random() < 0.8 if spot else rng.random() < 0.5
    beside = not spot and kept and rng.random() < 0.5
    believed = {name: min(rate * 10 ** rng.uniform(-1, 1), 5.0) for name in instances}
    runs = {c: (work / s, instances[c.instance].usd_per_hour.dollars * c.nodes) for c, s in speeds.items()}
    return Problem(
        name="choice",
        work_samples=work,
        space=Space(tuple(parts), tuple(configs)),
        goal=_goal(rng, runs),
        usd_per_hour=tuple(prices),
        trial=TrialPolicy(seconds=rng.choice((300.0, 600.0)), retries=rng.randint(0, 2)),
        max_trials=rng.randint(3, 14),
        noise=cloud.noise,
        assurance=rng.choice((0.9, 0.99, 0.999999, 0.999999)),
        keeps_work=kept and not beside,
        beside=beside,
        restart_seconds=rng.choice((60.0, 180.0)) if kept else 0.0,
        interruptions=Interruptions(
            per_node_hour=believed, saves=kept, on_demand={n: i.usd_per_hour for n, i in instances.items()}
        )
        if spot
        else None,
    )


def _goal(rng: random.Random, runs: dict[Config, tuple[float, float]]) -> Goal:
    """At least one limit, from hopeless to loose, around what on-demand nodes and a few trials take."""
    seconds = [each for each, _ in runs.values()]
    usd = [each / 3600 * price for each, price in runs.values()]
    room = rng.choice((1.0, 1.2, 1.5, 2.0, 3.0)) * rng.uniform(0.9, 1.2)
    which = rng.choice(("seconds", "usd", "both", "both"))
    return Goal(
        minimize=rng.choice((Objective.COST, Objective.TIME, Objective.KNEE)),
        budget=Usd.of(min(usd) * room + rng.choice((0.0, 2.0, 20.0)) + 0.01) if which != "seconds" else None,
        deadline_seconds=rng.choice((min(seconds), statistics.median(seconds))) * room + 3600
        if which != "usd"
        else None,
    )


def run_one(seed: int, number: int) -> dict[str, Any]:
    """One protocol: what became of it, and what was wrong."""
    problem, cloud, strategy, parallel, knobs = protocol(seed, number)
    run = run_search(problem, cloud, strategy, seed=number, parallel=1 if problem.beside else parallel)
    goal = run.problem.goal
    certain = bool(run.attempts) and not any(
        s.watch is not None and s.watch.fallback is None for s in run.steps if s.role is Role.TRAINING
    )
    late = goal.deadline_seconds is not None and run.total_seconds > goal.deadline_seconds * (1 + 1e-9)
    return {
        "number": number,
        "status": run.status.value,
        "assurance": problem.assurance,
        "certain": certain,
        "broken": certain and (late or run.status is not Status.DONE),
        "overspent": goal.budget is not None and _money(run) > goal.budget,
        "late": late,
        "wrong": sorted(set(_wrong(run, knobs))),
        "knobs": len(knobs.knobs),
        "spot": problem.interruptions is not None,
        "clouds": 1 + cloud.name.count(","),
        "used_spot": any(step.config.is_spot for step in run.steps),
        "interruptions": len(run.interrupted_steps),
        "out_of_memory": any(t.kind is FailureKind.OUT_OF_MEMORY for t in run.history.failures),
        "refused": bool(run.history.refused_places),
        "data_paid": any(run.problem.move_to(step.config).usd > Usd(0) for step in run.steps),
        "tight": goal.budget is not None and run.total_usd.micros > 0.8 * goal.budget.micros,
    }


def _money(run: SearchRun) -> Usd:
    """What all steps cost, counted here."""
    return Usd(sum(step.outcome.usd.micros for step in run.steps if step.outcome is not None))


def _wrong(run: SearchRun, knobs: Settings) -> Iterable[str]:
    """What the books should never show."""
    goal, allowed = run.problem.goal, set(knobs.rows("", 1)) if knobs else {()}
    if _money(run) != run.total_usd:
        yield "the total is not the sum of the steps"
    if set(Counter((t.config, t.attempt) for t in run.history).values()) - {1}:
        yield "a configuration was tried twice for the same attempt"
    for step in run.steps:
        if tuple(step.config[name] for name in knobs.names) not in allowed:
            yield "a combination was tried that the conditions exclude"
        if step.outcome is None:
            yield "a step has no end"
            continue
        if step.role is Role.TRIAL and step.outcome.usd > step.authorised_usd:
            yield "a trial cost more than was authorised"
        if step.role is Role.TRIAL and not _is_right(run, step.outcome, step):
            yield "a trial cost other than its price and its data"
    for number in sorted({step.round for step in run.steps}):
        started = [step for step in run.steps if step.round == number]
        before = sum(s.outcome.usd.micros for s in run.steps if s.round < number and s.outcome is not None)
        if goal.budget is not None and before + sum(s.authorised_usd.micros for s in started) > goal.budget.micros:
            yield "a round was authorised more than was left"


def _is_right(run: SearchRun, outcome: Any, step: Any) -> bool:
    unpaid = isinstance(outcome, Failure) and outcome.kind in (FailureKind.CAPACITY, FailureKind.REFUSED)
    expected = step.price.for_seconds(outcome.seconds) + run.problem.move_to(step.config).trial_usd
    return bool(outcome.usd == (Usd(0) if unpaid else expected))


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Counts over all protocols; the numbers of those that broke something."""
    seen = ("used_spot", "out_of_memory", "refused", "data_paid", "tight")
    found: dict[str, Any] = {
        "protocols": len(rows),
        "overspent": [row["number"] for row in rows if row["overspent"]],
        "wrong": {str(row["number"]): row["wrong"] for row in rows if row["wrong"]},
        "status": dict(Counter(row["status"] for row in rows).most_common()),
        "with_knobs": sum(row["knobs"] > 0 for row in rows),
        "with_spot": sum(row["spot"] for row in rows),
        "with_several_clouds": sum(row["clouds"] > 1 for row in rows),
        "with_all_three": sum(bool(row["knobs"] and row["spot"] and row["clouds"] > 1) for row in rows),
        "interruptions": sum(row["interruptions"] for row in rows),
        "seen": {name: sum(row[name] for row in rows) for name in seen},
        "by_assurance": {},
    }
    for level in sorted({row["assurance"] for row in rows}):
        certain = [row for row in rows if row["certain"] and row["assurance"] == level]
        broken = [row["number"] for row in certain if row["broken"]]
        found["by_assurance"][str(level)] = {"trained": len(certain), "broken": len(broken), "numbers": broken}
    return found


def records() -> list[dict[str, Any]]:
    """What was recorded, one for each seed."""
    found: list[dict[str, Any]] = json.loads(RECORD.read_text(encoding="utf-8"))
    return found


def parts() -> dict[Path, dict[str, str]]:
    """What the page says of the records."""
    every = records()

    def total(name: str) -> int:
        return sum(found[name] for found in every)

    drawn = (
        f"{total('protocols'):,} protocols: {total('with_knobs'):,} with knobs, {total('with_spot'):,} with spot,"
        f" {total('with_several_clouds'):,} on several clouds, {total('with_all_three'):,} with all three;"
        f" {total('interruptions'):,} interruptions."
    )
    broken = (
        f" **Over budget: {sum(len(found['overspent']) for found in every)}.** Steps at another price, at more than"
        f" authorised, or excluded by conditions: {sum(len(found['wrong']) for found in every)}."
    )
    lines = [
        drawn + broken,
        "",
        "| seed | `assurance` | trainings that started certain to fit | late or not finished | promised at most |",
        "|---|---|---:|---:|---:|",
    ]
    for found in every:
        for level, row in found["by_assurance"].items():
            share = f"{row['broken']:,} ({row['broken'] / max(row['trained'], 1):.2%})"
            lines.append(f"| {found['seed']} | {level} | {row['trained']:,} | {share} | {1 - float(level):.4%} |")
    lines += [""]
    lines += [f"- `{found['command']}`, simulated, {found['date']}, commit {found['code']}" for found in every]
    return {PAGE: {"choice-protocols": "\n".join(lines)}}


def _chunk(seed: int, numbers: Sequence[int]) -> list[dict[str, Any]]:
    return [run_one(seed, number) for number in numbers]


def main() -> int:
    """0 when nothing was overspent and no book was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="processes; -1 is one a core")
    parser.add_argument("--only", type=int, metavar="NUMBER")
    parser.add_argument("--part", type=Path, help="write every row there, for --join")
    parser.add_argument("--join", type=Path, nargs="+", help="rows of earlier parts instead of new runs")
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    began = time.perf_counter()
    if options.only is not None:
        rows = [run_one(options.seed, options.only)]
    elif options.join:
        rows = [row for file in options.join for row in json.loads(file.read_text(encoding="utf-8"))]
    else:
        numbers = range(options.first, options.first + options.count)
        chunks = [numbers[i : i + 50] for i in range(0, len(numbers), 50)]
        answers = Parallel(n_jobs=options.jobs)(delayed(_chunk)(options.seed, chunk) for chunk in chunks)
        rows = [row for chunk in answers for row in chunk]
    found = summary(rows)
    print(json.dumps(rows if options.only is not None else found, indent=1))
    print(f"{time.perf_counter() - began:.0f} s", file=sys.stderr)
    if options.part:
        options.part.write_text(json.dumps(rows), encoding="utf-8")
    if options.record:
        made = {
            "command": f"benchmarks/choice_protocols.py --count {len(rows)} --seed {options.seed}",
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "version": __version__,
            "code": pages.sources(),
            "seed": options.seed,
        }
        others = [record for record in records() if record["seed"] != options.seed]
        ordered = sorted((*others, {**made, **found}), key=lambda record: record["seed"])
        RECORD.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
        pages.write(parts())
    return int(bool(found["overspent"] or found["wrong"]))


if __name__ == "__main__":
    sys.exit(main())
