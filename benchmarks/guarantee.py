"""Ten thousand randomised searches: how many exceed their budget or deadline? The guarantee is none.

    .venv/bin/python benchmarks/guarantee.py --searches 10000 --seed 0 -o json

Half of the searches run on the simulated cloud, half on a synthetic table under Noisy and Flaky. Spaces, prices,
noise (up to 10%), failures, limits (from hopeless to loose), goals, strategies that keep limits, the number of parallel
trials, and whether their work is thrown away, kept, or done beside the training are drawn from the seed;
`--only NUMBER` repeats one search. With `--slower 0.1` the work of every final run takes 10% longer than its trials
promise. With `--knobs` every search is on a table whose rows also differ in two to four settings of the script: with
effects that types do not share, and with rows that run out of memory.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # small matrices; the processes already use every core

import argparse
import itertools
import json
import math
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import pages
from joblib import Parallel, delayed

from mlcd.bench.case import search as run_search
from mlcd.catalog import load_catalog
from mlcd.clouds.provider import Cloud, KnownTruth
from mlcd.clouds.replay import ReplayCloud, ReplayInstance, ReplayWorkload
from mlcd.clouds.sim import MODELS, Rates, SimCloud, SimJob
from mlcd.clouds.wrappers import Flaky, Noisy, SlowerRun
from mlcd.goal import Goal, Objective
from mlcd.problem import Problem, TrialPolicy
from mlcd.run.attempt import Ending
from mlcd.run.run import SearchRun
from mlcd.space import Config, Knob, Space, Value
from mlcd.space.space import RISES
from mlcd.trial.outcome import Status
from mlcd.units import Usd
from mlcd.version import __version__

STRATEGIES = ("auto", "auto", "heterbo", "heterbo:start=all", "heterbo:paper", "heterbo:prune=off,gate=off",
              "convbo-budget", "cherrypick-budget", "lynceus", "ernest")  # fmt: skip
WITH_KNOBS = ("auto", "auto", "auto", "heterbo", "convbo-budget", "cherrypick-budget", "lynceus")
RESULTS = Path(__file__).parent / "results"
README, PAGE = (pages.ROOT / name for name in ("README.md", "docs/reliability.md"))
SIM_TYPES = ("c5.xlarge", "c5.4xlarge", "c5n.4xlarge", "c4.2xlarge", "m4.4xlarge", "p2.xlarge", "p3.2xlarge")


@dataclass(frozen=True, kw_only=True)
class World:
    """The setting of one search, before its limits are drawn."""

    cloud: Cloud
    prices: dict[str, Usd]
    features: dict[str, tuple[float, ...]]
    memory_gib: dict[str, float]
    configs: tuple[Config, ...]
    speeds: dict[Config, float]
    work_samples: float
    settings: tuple[Knob, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One search, as far as the guarantee is concerned. Shares are of the limit: 1 is all of it."""

    number: int
    cloud: str
    strategy: str
    status: str
    overspent_usd: bool
    overspent_seconds: bool
    stopped: bool
    budget_share: float | None
    deadline_share: float | None
    trials: int
    margin: float | None


def simulated_world(rng: random.Random) -> World:
    """Some types of the AWS catalog training one of the simulator's models."""
    catalog = load_catalog().for_cloud("aws")
    names = rng.sample(SIM_TYPES, rng.randint(1, 4))
    job = SimJob(model=rng.choice(list(MODELS)[:5]), batch=rng.choice((128, 512)), topology=rng.choice(("ring", "ps")))
    use_spot = rng.random() < 0.2
    rough = Rates(launch=0.05, capacity=0.1, straggler=0.05, hang=0.02, spot=0.05)
    cloud = SimCloud(
        cloud="aws",
        instances={name: catalog[name] for name in names},
        job=job,
        seed=rng.randrange(10**9),
        use_spot=use_spot,
        noise=rng.choice((0.0, 0.01, 0.03, 0.1)),
        rates=rng.choice((Rates(), rough)),
    )
    prices = {name: catalog[name].price(spot=use_spot) or catalog[name].usd_per_hour for name in names}
    configs = _product(names, sorted(rng.sample(range(1, 51), rng.randint(1, 12))))
    speeds = {c: speed / cloud.stretch(c) for c in configs if (speed := cloud.true_samples_per_second(c)) is not None}
    fastest = max(speeds.values(), default=1.0)
    return World(
        cloud=cloud,
        prices=prices,
        features={name: catalog[name].features for name in names},
        memory_gib={name: catalog[name].memory_gib for name in names},
        configs=configs,
        speeds=speeds,
        work_samples=fastest * 3600 * 10 ** rng.uniform(-0.3, 1.2),
    )


SETTINGS: Mapping[str, tuple[Value, ...]] = {
    "precision": ("fp32", "bf16"), "micro_batch": (1, 2, 4, 8), "sharding": ("ddp", "fsdp"), "recompute": (False, True)
}  # fmt: skip


def tabled_world(rng: random.Random, *, knobs: bool = False) -> World:
    """A synthetic table of curves that rise and fall, with some failed rows, under noise and failures."""
    names = [f"type-{i}" for i in range(rng.randint(1, 5))]
    prices = {name: Usd.of(round(10 ** rng.uniform(-1.3, 1.3), 4)) for name in names}
    counts = sorted(rng.sample(range(1, 61), rng.randint(1, 3 if knobs else 12)))
    settings = {name: SETTINGS[name] for name in rng.sample(list(SETTINGS), rng.randint(2, 4))} if knobs else {}
    seconds: dict[Config, float | None] = {}
    for name in names:
        alone, serial, talk = 3600 * 10 ** rng.uniform(0, 2), rng.uniform(0, 0.3), rng.uniform(0, 0.02)
        for n in counts:
            wiggle = math.exp(rng.gauss(0, 0.1))
            time_taken = alone * (serial + (1 - serial) / n + talk * n) * wiggle
            deployment = Config.deployment(name, n)
            for config, share in _with_settings(rng, deployment, settings) if knobs else [(deployment, 1.0)]:
                seconds[config] = None if share is None or rng.random() < 0.05 else time_taken * share
    if not any(seconds.values()):
        seconds[next(iter(seconds))] = 3600.0
    instances = {name: ReplayInstance(name=name, usd_per_hour=prices[name]) for name in names}
    cloud: Cloud = ReplayCloud(ReplayWorkload(name="made-up", seconds=seconds, instances=instances))
    if rng.random() < 0.6:
        cloud = Flaky(cloud, rate=rng.choice((0.05, 0.2, 0.6)), seed=rng.randrange(10**9))
    if rng.random() < 0.8:
        cloud = Noisy(cloud, sigma=rng.uniform(0, 0.1), seed=rng.randrange(10**9))
    return World(
        cloud=cloud,
        prices=prices,
        features={name: (math.log2(price.dollars),) for name, price in prices.items()},
        memory_gib={},
        configs=tuple(seconds),
        speeds={c: 1 / s for c, s in seconds.items() if s is not None},
        work_samples=1.0,
        settings=tuple(
            Knob(
                name=name,
                values=values,
                features={value: (float(place),) for place, value in enumerate(values)},
                is_setting=True,
                memory=RISES if name == "micro_batch" else "",
            )
            for name, values in settings.items()
        ),
    )


def _with_settings(
    rng: random.Random, deployment: Config, settings: Mapping[str, Sequence[Value]]
) -> Iterator[tuple[Config, float | None]]:
    """Every combination of settings on a deployment with its share of the time; None: it runs out of memory."""
    effects = {(name, value): math.exp(rng.gauss(0, 0.4)) for name, values in settings.items() for value in values}
    room = rng.choice((1, 2, 4, 8, 8))
    for values in itertools.product(*settings.values()):
        chosen = dict(zip(settings, values, strict=True))
        share = math.prod(effects[pair] for pair in chosen.items()) * math.exp(rng.gauss(0, 0.1))
        is_too_large = int(chosen.get("micro_batch", 1)) > room and not chosen.get("recompute", False)
        yield Config.of({**deployment.as_dict(), **chosen}), None if is_too_large else share


def _product(names: list[str], counts: list[int]) -> tuple[Config, ...]:
    return tuple(Config.deployment(name, n) for name in names for n in counts)


def a_problem(world: World, rng: random.Random) -> Problem:
    """Limits close to what the best deployment plus some trials needs, where the guarantee is hard to keep."""
    policy = TrialPolicy(seconds=rng.choice((60.0, 300.0, 600.0)), retries=rng.randint(0, 2))
    runs = [
        (world.work_samples / speed, world.prices[c.instance].dollars * c.nodes / 3600 * world.work_samples / speed)
        for c, speed in world.speeds.items()
    ] or [(3600.0, 10.0)]
    room = rng.choice((1.0, 1.1, 1.3, 1.6, 2.0, 4.0, 10.0)) * rng.uniform(0.9, 1.3)
    trials = rng.randint(0, 6)
    cheapest_rate = min(price.dollars for price in world.prices.values()) / 3600
    usd = min(u for _, u in runs) * room + trials * 600 * cheapest_rate
    seconds = min(s for s, _ in runs) * room + trials * 600
    which = rng.choice(("none", "usd", "usd", "seconds", "seconds", "both", "both"))
    features, memory = world.features, world.memory_gib
    instance = Knob(
        name="instance",
        values=tuple(features),
        features=features,
        log2_sizes={name: math.log2(size) for name, size in memory.items()} if memory else None,
    )
    counts = Knob(name="nodes", values=tuple(sorted({c.nodes for c in world.configs})))
    is_spot = isinstance(world.cloud, SimCloud) and world.cloud.use_spot
    return Problem(
        name="guarantee",
        work_samples=world.work_samples,
        space=Space((instance, counts, *world.settings), world.configs),
        goal=Goal(
            minimize=rng.choice(list(Objective)),
            budget=Usd.of(usd) if which in ("usd", "both") else None,
            deadline_seconds=seconds if which in ("seconds", "both") else None,
        ),
        usd_per_hour=tuple(world.prices[c.instance] * c.nodes for c in world.configs),
        trial=policy,
        max_trials=rng.randint(2, 20),
        noise=world.cloud.noise,
        stretch=tuple(cast(SimCloud, world.cloud).stretch(c) for c in world.configs) if is_spot else (),
    )


def search(seed: int, number: int, *, slower: float = 0.0, slowdown: float = 0.0, knobs: bool = False) -> Outcome:
    """Search `number` of `seed`, determined by these numbers alone.

    slower    the share by which its final run is slower than the trials
    slowdown  the share by which it may be slower: `search.slowdown`
    knobs     whether there are settings of the script to choose
    """
    rng = random.Random(f"{seed}/{number}")
    is_tabled = knobs or rng.random() >= 0.5
    world = tabled_world(rng, knobs=knobs) if is_tabled else simulated_world(rng)
    problem = replace(a_problem(world, rng), slowdown=slowdown)
    text, parallel = rng.choice(WITH_KNOBS if knobs else STRATEGIES), rng.choice((1, 1, 2, 3, 4))
    work, restart_seconds = rng.choice(("thrown", "kept", "beside")), rng.choice((0.0, 60.0, 300.0))
    if work != "thrown":
        problem = replace(problem, restart_seconds=restart_seconds)
    if work == "kept":  # each trial continues from the last
        problem, parallel = replace(problem, keeps_work=True), 1
    problem = replace(problem, beside=work == "beside")
    cloud = SlowerRun(world.cloud, share=slower) if slower else world.cloud
    run = run_search(problem, cloud, text, seed=number, parallel=parallel)
    return judge(run, number, world)


def judge(run: SearchRun, number: int, world: World) -> Outcome:
    """The outcome of a run. `margin` is the used share of its upper bound: above 1 the bound itself was wrong.

    Beside trials, what is chosen in the end is a plan for the rest of the work only: no margin.
    """
    goal, final, choice = run.problem.goal, run.final, run.choice
    usd_share = None if goal.budget is None else run.total_usd.micros / goal.budget.micros
    seconds_share = None if goal.deadline_seconds is None else run.total_seconds / goal.deadline_seconds
    assert hasattr(world.cloud, "true_samples_per_second"), cast(KnownTruth, world.cloud)
    return Outcome(
        number=number,
        cloud=run.cloud,
        strategy=run.strategy,
        status=run.status.value,
        overspent_usd=goal.budget is not None and run.total_usd > goal.budget,
        overspent_seconds=goal.deadline_seconds is not None and run.total_seconds > goal.deadline_seconds,
        stopped=final is not None and final.ending is Ending.STOPPED,
        budget_share=usd_share,
        deadline_share=seconds_share,
        trials=len(run.trials),
        margin=float(final.seconds / choice.worst_seconds) if final and choice and not run.problem.beside else None,
    )


def summary(outcomes: list[Outcome], wall_seconds: float) -> dict[str, object]:
    """The printed summary: overspends, statuses, and how close to the limits the finished runs came."""
    done = [o for o in outcomes if o.status in (Status.DONE, Status.OVERRAN)]
    shares = [max(s for s in (o.budget_share, o.deadline_share) if s is not None)
              for o in done if o.budget_share is not None or o.deadline_share is not None]  # fmt: skip
    margins = [o.margin for o in done if o.margin is not None]
    return {
        "searches": len(outcomes),
        "overspent_budget": sum(o.overspent_usd for o in outcomes),
        "overspent_deadline": sum(o.overspent_seconds for o in outcomes),
        "stopped_before_budget": sum(o.stopped for o in outcomes),
        "bounds_exceeded": sum(m > 1 for m in margins),
        "offenders": [asdict(o) for o in outcomes if o.overspent_usd or o.overspent_seconds],
        "exceeding": [asdict(o) for o in done if o.margin is not None and o.margin > 1],
        "statuses": dict(Counter(o.status for o in outcomes)),
        "clouds": dict(Counter(o.cloud for o in outcomes)),
        "limit_used": {f"p{p}": _percentile(shares, p) for p in (5, 25, 50, 75, 95, 100)},
        "within_5_percent_of_limit": sum(s > 0.95 for s in shares),
        "limited_and_done": len(shares),
        "trials": sum(o.trials for o in outcomes),
        "wall_seconds": round(wall_seconds, 1),
    }


def command(words: Sequence[str]) -> str:
    """What repeats the measurement: without where it was written to, and how it was printed."""
    return f"benchmarks/guarantee.py {re.sub(r' ?(--record|-o|--output) [^ ]+', '', ' '.join(words)).strip()}".rstrip()


def parts() -> dict[Path, dict[str, str]]:
    """What the pages say of the records, by the names there."""
    found = json.loads((RESULTS / "guarantee.json").read_text(encoding="utf-8"))
    over = sum(found[key] for key in ("overspent_budget", "overspent_deadline"))
    readme = (
        f"Of {found['searches']:,} randomised searches (`{command(found['command'].split()[1:])}`, commit"
        f" {found.get('code', 'not recorded')}; {found['limited_and_done']:,} of them trained under a limit,"
        f" {found['within_5_percent_of_limit']} within 5% of it) {over or 'none'} overspent budget or deadline."
    )
    rows = json.loads((RESULTS / "guarantee-slower.json").read_text(encoding="utf-8"))["rows"]
    lines = ["| case | command | searches | trained under a limit | broke it |", "|---|---|---:|---:|---:|"]
    lines += [
        f"| {row['what']} | `{row['command']}` | {row['searches']:,} | {row['limited_and_done']:,} |"
        f" {len(row['offenders'])} |"
        for row in rows
    ]
    return {README: {"guarantee": readme}, PAGE: {"slower": "\n".join(lines)}}


def _percentile(values: list[float], percent: int) -> float | None:
    if not values:
        return None
    return round(sorted(values)[min(len(values) - 1, len(values) * percent // 100)], 4)


def main() -> int:
    """0 when no search overspent, 1 when any did."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searches", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--slower", type=float, default=0.0, help="share by which every final run is slower")
    parser.add_argument("--slowdown", type=float, default=0.0, help="search.slowdown: the share that limits allow for")
    parser.add_argument("--knobs", action="store_true", help="settings of the script are to be chosen too")
    parser.add_argument("--jobs", type=int, default=-1, help="processes; -1 is one a core")
    parser.add_argument("--only", type=int, metavar="NUMBER", help="this one search, in this process")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    parser.add_argument("--record", type=Path, metavar="FILE", help="also write the result there, with its origin")
    options = parser.parse_args()
    start = time.perf_counter()
    numbers = [options.only] if options.only is not None else list(range(options.searches))
    chunks = [numbers[i : i + 100] for i in range(0, len(numbers), 100)]
    jobs = 1 if options.only is not None else options.jobs
    final = (options.slower, options.slowdown, options.knobs)
    answers = Parallel(n_jobs=jobs)(delayed(_searches)(options.seed, chunk, *final) for chunk in chunks)
    outcomes = [outcome for chunk in answers for outcome in chunk]
    settings = {"seed": options.seed, "slower": options.slower, "slowdown": options.slowdown}
    found = {**settings, **summary(outcomes, time.perf_counter() - start)}
    if options.record:
        made = {"command": command(sys.argv[1:]), "date": f"{datetime.now(UTC):%Y-%m-%d}"}
        made |= {"version": __version__, "code": pages.sources()}
        options.record.write_text(json.dumps({**made, **found}, indent=1) + "\n", encoding="utf-8")
    if options.output == "json":
        print(json.dumps(found, indent=2))
    else:
        for name, value in found.items():
            print(f"{name:28} {value}")
    return int(any(o.overspent_usd or o.overspent_seconds for o in outcomes))


def _searches(seed: int, numbers: list[int], slower: float, slowdown: float, knobs: bool) -> list[Outcome]:
    return [search(seed, number, slower=slower, slowdown=slowdown, knobs=knobs) for number in numbers]


if __name__ == "__main__":
    sys.exit(main())
