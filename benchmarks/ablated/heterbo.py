"""heterbo: measured tables, the simulator's jobs, and single types of these under limits that nothing was tuned on."""

import math
from dataclasses import replace
from pathlib import Path

from ablated.compare import Change, Outcome
from mlcd.bench.case import UNFINISHED_RATIO, GoalKind, TrainTruth, search
from mlcd.bench.train import TrainComparison, compare
from mlcd.bench.workloads import sim_workloads
from mlcd.catalog import load_catalog
from mlcd.clouds.sim import PAPER_JOBS, SimCloud
from mlcd.goal import Goal, Objective
from mlcd.jobs.resolved_job import deployments
from mlcd.problem import Problem
from mlcd.trial.outcome import Status
from mlcd.units import HOUR, Usd

SEEDS, FIRST_SEED = 1, 500
HOURS, NOISE = 6.0, 0.03
TABLES = ("scout", "multicloud", "trimtuner")
GOALS = ((GoalKind.CHEAPEST, 1), (GoalKind.BUDGET, 1), (GoalKind.BOTH, 1), (GoalKind.FASTEST, 1), (GoalKind.FASTEST, 8))
SINGLE_BUDGETS, SINGLE_DEADLINES = (1.6, 2.2), (1.6, 2.0)
"""Limits as multiples of a single type's cheapest and fastest training."""
LIMITED = ("cheapest", "budget", "both", "single")
SERIAL = (*LIMITED, "fastest, 1")

CHANGES = (
    Change(part="start", text="heterbo:start=1", beds=("cheapest", "budget", "fastest")),
    Change(part="start", text="heterbo:start=2", beds=("cheapest", "budget", "fastest")),
    Change(part="start", text="heterbo:start=all", beds=("cheapest", "budget", "fastest")),
    Change(part="acquisition", text="heterbo:acquisition=net", beds=("fastest, 1", "single budget")),
    Change(part="acquisition", text="heterbo:acquisition=pandora", beds=SERIAL),
    Change(part="acquisition", text="heterbo:acquisition=tei", beds=SERIAL),
    Change(part="start and acquisition", text="heterbo:paper", beds=SERIAL),
    Change(part="price", text="heterbo:price=off", beds=SERIAL),
    Change(part="prune", text="heterbo:prune=off", beds=SERIAL),
    Change(part="gate", text="heterbo:gate=off", beds=SERIAL),
    Change(part="reserve", text="heterbo:reserve=off", beds=LIMITED),
    Change(part="share of the limits", text="heterbo:limit-share=off", beds=LIMITED),
    Change(part="single type: share after a miss only", text="heterbo:limit-share=always", beds=("single budget",)),
    Change(part="single type: pandora", text="heterbo:single-type-pandora=off", beds=("single budget",)),
    Change(part="first try before a deadline", text="heterbo:deadline-first-try=off", beds=("cheapest", "deadline")),
    Change(part="first try: 1.75 runs", text="heterbo:first-try-runs=3", beds=("cheapest", "deadline")),
    Change(part="first try: growth", text="heterbo:first-try-growth=1", beds=("cheapest", "deadline")),
    Change(part="prune: nearby only", text="heterbo:prune-gap-nodes=1000", beds=SERIAL),
    Change(part="Student's t", text="heterbo:tail-degrees=1e6", beds=LIMITED),
    Change(part="unfinished counts 3 runs", text="heterbo:unfinished-runs=10", beds=LIMITED),
    Change(part="round target", text="heterbo:round-target=off", beds=("fastest, 8",)),
)


def outcomes(text: str, change: Change, tables: Path, seeds: int) -> list[Outcome]:
    """Search and training relative to the best training without search; unfinished or over a limit: at least 3."""
    found: list[Outcome] = []
    for goal, parallel in GOALS:
        if change.concerns(f"{goal}, {parallel}"):
            for table in (*TABLES, None):
                found += _on_table(text, goal, parallel, tables / table if table else None, seeds)
    kinds = [("single budget", factor) for factor in SINGLE_BUDGETS]
    kinds += [("single deadline", factor) for factor in SINGLE_DEADLINES]
    for bed, factor in kinds:
        if change.concerns(bed):
            found += _on_single_types(text, bed, factor, seeds)
    return found


def _on_table(text: str, goal: GoalKind, parallel: int, table: Path | None, seeds: int) -> list[Outcome]:
    comparison = TrainComparison(
        strategies=(text,),
        goal=goal,
        hours=(HOURS,),
        seeds=seeds,
        first_seed=FIRST_SEED,
        tables=table,
        noise=NOISE,
        parallel=parallel,
    )
    source = table.name if table else "sim"
    return [
        Outcome(
            bed=f"{goal}, {parallel} at once",
            workload=f"{source}/{row.workload}",
            unseen=row.unseen and table is not None,  # no job of the simulator was held out
            seed=row.seed,
            loss=row.counted_ratio,
        )
        for row in compare(comparison)
    ]


def _on_single_types(text: str, bed: str, factor: float, seeds: int) -> list[Outcome]:
    found = []
    for job in sim_workloads():
        for seed in range(FIRST_SEED, FIRST_SEED + seeds):
            for truth, cloud in _single_types(job.name, seed):
                problem = _limited(truth, bed, factor)
                optimum = truth.optimum(problem.goal)
                if optimum is None:
                    continue
                record = search(problem, cloud, text, seed=seed)
                ratio = problem.goal.value(record.total_seconds, record.total_usd.dollars) / optimum
                loss = ratio if record.status is Status.DONE else max(ratio, UNFINISHED_RATIO)
                found.append(
                    Outcome(bed=bed, workload=truth.name, unseen=False, seed=seed * 10 + int(factor * 10), loss=loss)
                )
    return found


def _single_types(name: str, seed: int) -> list[tuple[TrainTruth, SimCloud]]:
    """The job on each single type that can run it."""
    job = PAPER_JOBS[name]
    found = []
    for instance in load_catalog().select(job.instances, cloud="aws"):
        cloud = SimCloud(cloud="aws", instances={instance.name: instance}, job=job.job, seed=seed, noise=NOISE)
        space = deployments([instance], lambda _: tuple(range(1, PAPER_JOBS[name].max_nodes + 1)))
        speeds = [cloud.true_samples_per_second(config) for config in space]
        if not any(speeds):
            continue
        problem = Problem(
            name=name,
            work_samples=max(speed for speed in speeds if speed) * HOURS * HOUR,
            space=space,
            goal=Goal(minimize=Objective.TIME),
            usd_per_hour=tuple(instance.usd_per_hour * c.nodes for c in space),
            noise=NOISE,
        )
        seconds = tuple(
            None if speed is None else cloud.startup_seconds(config) + problem.work_samples / speed
            for config, speed in zip(space, speeds, strict=True)
        )
        found.append((TrainTruth(name=f"{name}/{instance.name}", problem=problem, seconds=seconds), cloud))
    return found


def _limited(truth: TrainTruth, bed: str, factor: float) -> Problem:
    if bed == "single deadline":
        fastest = min(seconds for seconds, _ in truth.outcomes())
        return replace(truth.problem, goal=Goal(minimize=Objective.COST, deadline_seconds=factor * fastest))
    least = min(usd for _, usd in truth.outcomes())
    return replace(truth.problem, goal=Goal(minimize=Objective.TIME, budget=Usd(math.ceil(least.micros * factor))))
