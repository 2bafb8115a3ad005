"""Spot as a choice on random jobs: are the limits kept, and what does it save? Three arms of each job, paired.

    .venv/bin/python benchmarks/spot_market.py --runs 2000 --seed 0 --record benchmarks/results/spot-market.json
    .venv/bin/python benchmarks/spot_market.py --runs 10000 --arms any      # the guarantee alone

`any` chooses between spot and on-demand and falls back to on-demand near a limit; `on-demand` has no spot nodes; `spot`
has no other, and no fallback. Machines, model, length, noise, limits, the rate at which spot nodes are taken away
(0.001 to 0.5 for a node and hour), what the job believes of it (a tenth to ten times as much), checkpoint costs and
whether work of trials is kept are drawn from the seed; `--only NUMBER` repeats one job. Everything is simulated.

The promise is on trainings that start certain to fit at the job's assurance. One that starts uncertain because nothing
fits for certain (a watch without a fallback) may end early; those are counted apart, as `uncertain`.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # small matrices; the processes already use every core

import argparse
import csv
import gzip
import json
import math
import random
import re
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pages
from joblib import Parallel, delayed

from mlcd.bench.case import search as run_search
from mlcd.catalog import load_catalog
from mlcd.clouds.sim import Rates, SimCloud, SimJob
from mlcd.goal import Goal, Objective
from mlcd.interruptions import DEFAULT_SAVE_SECONDS, Interruptions
from mlcd.problem import Problem, TrialPolicy
from mlcd.run.run import SearchRun
from mlcd.run.step import Role
from mlcd.space import MARKET, ON_DEMAND, SPOT, Config, Knob, Space
from mlcd.trial.outcome import Status
from mlcd.units import Usd
from mlcd.version import __version__

RESULTS = Path(__file__).parent / "results"
PAGE = pages.ROOT / "docs/how-to/spot.md"
ARMS = ("any", "on-demand", "spot")
TYPES = ("c5.xlarge", "c5.4xlarge", "c5n.4xlarge", "m5.2xlarge", "g4dn.xlarge", "g5.xlarge", "g6.2xlarge")
STRATEGIES = ("auto", "auto", "heterbo", "cherrypick-budget", "lynceus", "ernest")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One arm of one job.

    unfinished  its training began and did not end, or ended late
    uncertain   its training began where it was not certain to fit, without a fallback
    """

    number: int
    arm: str
    status: str
    usd: float
    seconds: float
    assurance: float
    limited: bool
    trained: bool
    uncertain: bool
    overspent: bool
    late: bool
    unfinished: bool
    interruptions: int
    fallback: bool
    spot_share: float


def job(seed: int, number: int) -> tuple[Problem, SimCloud, str]:
    """The problem of the arm `any`, the cloud, and the strategy."""
    rng = random.Random(f"spot/{seed}/{number}")
    catalog = load_catalog().for_cloud("aws")
    names = rng.sample(TYPES, rng.randint(1, 3))
    rate = 10 ** rng.uniform(-3, math.log10(0.5))
    cloud = SimCloud(
        cloud="aws",
        instances={name: catalog[name] for name in names},
        job=SimJob(model=rng.choice(("alexnet", "resnet152", "inception-v3", "char-rnn")), batch=512),
        seed=rng.randrange(10**9),
        noise=rng.choice((0.0, 0.01, 0.03, 0.06)),
        rates=replace(rng.choice((Rates(), Rates(launch=0.03, capacity=0.05, hang=0.01))), spot=rate),
    )
    counts = sorted(rng.sample(range(1, 17), rng.randint(1, 5)))
    machines = [Config.deployment(name, n) for name in names for n in counts]
    space, prices = _space(machines, names, catalog)
    speeds = {c: s for c in machines if (s := cloud.true_samples_per_second(c)) is not None} or {machines[0]: 1.0}
    work = max(speeds.values()) * 3600 * 10 ** rng.uniform(0.0, 1.3)
    kept = rng.random() < 0.8
    believed = {name: min(rate * 10 ** rng.uniform(-1, 1), 5.0) for name in names}
    problem = Problem(
        name="spot",
        work_samples=work,
        space=space,
        goal=_goal(rng, {c: (work / s, catalog[c.instance].usd_per_hour.dollars * c.nodes) for c, s in speeds.items()}),
        usd_per_hour=prices,
        trial=TrialPolicy(seconds=rng.choice((300.0, 600.0)), retries=rng.randint(0, 2)),
        max_trials=rng.randint(3, 12),
        noise=cloud.noise,
        assurance=rng.choice((0.9, 0.99, 0.999999, 0.999999)),
        keeps_work=kept,
        restart_seconds=rng.choice((60.0, 180.0)) if kept else 0.0,
        interruptions=Interruptions(
            per_node_hour=believed,
            saves=kept,
            save_seconds=rng.choice((DEFAULT_SAVE_SECONDS, cloud.save_seconds * rng.uniform(0.5, 2))),
            on_demand={name: catalog[name].usd_per_hour for name in names},
        ),
    )
    return problem, cloud, rng.choice(STRATEGIES)


def _space(machines: Sequence[Config], names: Sequence[str], catalog: Any) -> tuple[Space, tuple[Usd, ...]]:
    configs, prices = [], []
    for config in machines:
        instance = catalog[config.instance]
        for market, price in ((ON_DEMAND, instance.usd_per_hour), (SPOT, instance.spot_usd_per_hour)):
            configs.append(Config((*config.values, (MARKET, market))))
            prices.append(price * config.nodes)
    knobs = (
        Knob(name="instance", values=tuple(names), features={name: catalog[name].features for name in names}),
        Knob(name="nodes", values=tuple(sorted({config.nodes for config in machines}))),
        Knob(name=MARKET, values=(ON_DEMAND, SPOT), features={ON_DEMAND: (), SPOT: ()}, same_speed=True),
    )
    return Space(knobs, tuple(configs)), tuple(prices)


def _goal(rng: random.Random, runs: dict[Config, tuple[float, float]]) -> Goal:
    """Limits from hopeless to loose, around what on-demand nodes and a few trials take."""
    seconds = [s for s, _ in runs.values()]
    usd = [s / 3600 * price for s, price in runs.values()]
    room = rng.choice((1.0, 1.2, 1.5, 2.0, 3.0)) * rng.uniform(0.9, 1.2)
    middle = rng.choice((min(seconds), statistics.median(seconds)))
    which = rng.choice(("seconds", "seconds", "usd", "both", "both", "none"))
    return Goal(
        minimize=rng.choice((Objective.COST, Objective.COST, Objective.TIME, Objective.KNEE)),
        budget=Usd.of(min(usd) * room + 2.0) if which in ("usd", "both") else None,
        deadline_seconds=middle * room + 3600 if which in ("seconds", "both") else None,
    )


def arm_of(problem: Problem, arm: str) -> Problem:
    """The same job with both markets, or with one."""
    if arm == "any":
        return problem
    kept = [row for row, config in enumerate(problem.space) if config.is_spot == (arm == "spot")]
    return replace(
        problem,
        space=Space(problem.space.knobs, tuple(problem.space.configs[row] for row in kept)),
        usd_per_hour=tuple(problem.usd_per_hour[row] for row in kept),
    )


def run_arm(seed: int, number: int, arm: str) -> tuple[SearchRun, Outcome]:
    """One arm of job `number`."""
    problem, cloud, strategy = job(seed, number)
    run = run_search(arm_of(problem, arm), cloud, strategy, seed=number)
    goal = run.problem.goal
    spot = sum(step.outcome.usd.micros for step in run.spot_steps if step.outcome is not None)
    first = [step for step in run.steps if step.role is Role.TRAINING][:1]  # what follows is part of the promise
    moved = [b for a, b in zip(run.attempts, run.attempts[1:], strict=False) if a.config.is_spot]
    return run, Outcome(
        number=number,
        arm=arm,
        status=run.status.value,
        usd=run.total_usd.dollars,
        seconds=run.total_seconds,
        assurance=run.problem.assurance,
        limited=goal.is_limited,
        trained=bool(run.attempts),
        uncertain=any(s.watch is not None and s.watch.fallback is None for s in first),
        overspent=goal.budget is not None and run.total_usd > goal.budget,
        late=goal.deadline_seconds is not None and run.total_seconds > goal.deadline_seconds,
        unfinished=bool(run.attempts) and run.status is not Status.DONE,
        interruptions=len(run.interrupted_steps),
        fallback=any(not attempt.config.is_spot for attempt in moved),
        spot_share=spot / max(run.total_usd.micros, 1),
    )


def summary(outcomes: Sequence[Outcome], arms: Sequence[str]) -> dict[str, Any]:
    """For each arm what became of its runs; for `any`, its money over that of the others where both finished."""
    by_arm = {arm: {o.number: o for o in outcomes if o.arm == arm} for arm in arms}
    return {
        "arms": {arm: _of_arm(list(found.values())) for arm, found in by_arm.items()},
        "against": {other: _paired(by_arm["any"], by_arm[other]) for other in arms if other != "any"},
    }


def _of_arm(found: list[Outcome]) -> dict[str, Any]:
    done = [o for o in found if o.status == Status.DONE]
    return {
        "runs": len(found),
        "done": len(done),
        "overspent": sum(o.overspent for o in found),
        "late": sum(o.late for o in found),
        "unfinished": sum(o.unfinished for o in found),
        "unfinished_uncertain": sum(o.unfinished and o.uncertain for o in found),
        "by_assurance": {str(level): _promise(found, level) for level in sorted({o.assurance for o in found})},
        "interrupted_runs": sum(o.interruptions > 0 for o in found),
        "interruptions": sum(o.interruptions for o in found),
        "fell_back": sum(o.fallback for o in found),
        "used_spot": sum(o.spot_share > 0 for o in found),
    }


def _promise(found: Sequence[Outcome], assurance: float) -> dict[str, Any]:
    """Of the trainings that started certain to fit at this level: how many were late or did not end."""
    certain = [o for o in found if o.assurance == assurance and o.trained and o.limited and not o.uncertain]
    broken = [o.number for o in certain if o.late or o.unfinished]
    return {"trained": len(certain), "late_or_unfinished": len(broken), "numbers": broken}


def _paired(ours: dict[int, Outcome], theirs: dict[int, Outcome]) -> dict[str, Any]:
    pairs = [(ours[n], theirs[n]) for n in ours if n in theirs]
    both = [(a, b) for a, b in pairs if a.status == b.status == Status.DONE]
    ratios = sorted(a.usd / b.usd for a, b in both)
    hours = sorted(a.seconds / b.seconds for a, b in both)
    logs = [math.log(r) for r in ratios]
    error = statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else 0.0
    mean = statistics.fmean(logs) if logs else 0.0
    return {
        "pairs": len(both),
        "only_any_finished": sum(a.status == Status.DONE != b.status for a, b in pairs),
        "only_other_finished": sum(b.status == Status.DONE != a.status for a, b in pairs),
        "usd_ratio": {f"p{p}": _percentile(ratios, p) for p in (5, 25, 50, 75, 95)},
        "usd_ratio_mean": round(math.exp(mean), 4),
        "usd_ratio_ci95": [round(math.exp(mean - 1.96 * error), 4), round(math.exp(mean + 1.96 * error), 4)],
        "seconds_ratio": {f"p{p}": _percentile(hours, p) for p in (5, 50, 95)},
    }


def _percentile(values: Sequence[float], percent: int) -> float | None:
    return round(values[min(len(values) - 1, len(values) * percent // 100)], 4) if values else None


def parts() -> dict[Path, dict[str, str]]:
    """What the page says of the records."""
    found = json.loads((RESULTS / "spot-market.json").read_text(encoding="utf-8"))
    lines = [
        (
            "| | runs | finished | over budget | late | training not finished | of those uncertain from the start |"
            " interruptions | fell back |"
        ),
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for arm, row in found["arms"].items():
        kept = f"{row['overspent']:,} | {row['late']:,} | {row['unfinished']:,} | {row['unfinished_uncertain']:,}"
        more = f"{row['interruptions']:,} | {row['fell_back']:,}"
        lines.append(f"| `{arm}` | {row['runs']:,} | {row['done']:,} | {kept} | {more} |")
    lines += [
        "",
        "| `assurance` | trainings of `any` that started certain to fit | late or not finished | promised at most |",
        "|---|---:|---:|---:|",
    ]
    for level, row in found["arms"]["any"]["by_assurance"].items():
        count, broken = row["trained"], row["late_or_unfinished"]
        lines.append(f"| {level} | {count:,} | {broken:,} ({broken / count:.2%}) | {1 - float(level):.4%} |")
    lines += [
        "",
        "| money of `any` over | pairs | mean | 95% interval | middle half | only `any` finished | only the other |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for other, row in found["against"].items():
        low, high = row["usd_ratio_ci95"]
        middle = f"{row['usd_ratio']['p25']:.2f} .. {row['usd_ratio']['p75']:.2f}"
        lines.append(f"| `{other}` | {row['pairs']:,} | {row['usd_ratio_mean']:.3f} | {low:.3f} .. {high:.3f} |"
                     f" {middle} | {row['only_any_finished']:,} | {row['only_other_finished']:,} |")  # fmt: skip
    lines += ["", f"`{found['command']}`, simulated, commit {found['code']}."]
    return {PAGE: {"spot-market": "\n".join(lines)}}


def command(words: Sequence[str]) -> str:
    """What repeats the measurement."""
    return f"benchmarks/spot_market.py {re.sub(r' ?--(record|jobs) [^ ]+', '', ' '.join(words)).strip()}".rstrip()


def main() -> int:
    """0 when no arm overspent its budget, 1 when any did."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--arms", default=",".join(ARMS), help="some of any,on-demand,spot")
    parser.add_argument("--jobs", type=int, default=-1, help="processes; -1 is one a core")
    parser.add_argument("--only", type=int, metavar="NUMBER", help="this one job, in this process")
    parser.add_argument("--record", type=Path, metavar="FILE", help="also write the result there, with its origin")
    options = parser.parse_args()
    arms = [arm for arm in ARMS if arm in options.arms.split(",")]
    begun = time.perf_counter()
    if options.only is not None:
        found = [run_arm(options.seed, options.only, arm)[1] for arm in arms]
    else:
        numbers = range(options.runs)
        chunks = [numbers[i : i + 50] for i in range(0, len(numbers), 50)]
        answers = Parallel(n_jobs=options.jobs)(delayed(_chunk)(options.seed, chunk, arms) for chunk in chunks)
        found = [outcome for chunk in answers for outcome in chunk]
    result = {"seed": options.seed, **summary(found, arms)}
    result["wall_seconds"] = round(time.perf_counter() - begun, 1)
    if options.record:
        made = {"command": command(sys.argv[1:]), "date": f"{datetime.now(UTC):%Y-%m-%d}"}
        made |= {"version": __version__, "code": pages.sources()}
        options.record.write_text(json.dumps({**made, **result}, indent=1) + "\n", encoding="utf-8")
        with gzip.open(options.record.with_suffix(".csv.gz"), "wt", newline="") as file:
            rows = csv.DictWriter(file, [field.name for field in fields(Outcome)])
            rows.writeheader()
            rows.writerows(map(asdict, found))
    print(json.dumps(result, indent=2))
    return int(any(o.overspent for o in found))


def _chunk(seed: int, numbers: Sequence[int], arms: Sequence[str]) -> list[Outcome]:
    return [run_arm(seed, number, arm)[1] for number in numbers for arm in arms]


if __name__ == "__main__":
    sys.exit(main())
