"""`mlcd bench train`: strategies side by side on workloads whose optimum is known, over seeds, with spread."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np

from mlcd.bench.case import GoalKind, TrainRow, TrainTruth, is_unseen, row, search_with
from mlcd.bench.oracle import Oracle
from mlcd.bench.protocol import BUDGET_FACTOR, DEADLINE_FACTOR, TrainProtocol, Work
from mlcd.bench.tasks import run_tasks
from mlcd.bench.workloads import Source, case_of, other_jobs, sim_workloads, table_workloads
from mlcd.errors import BadInput
from mlcd.run.run import SearchRun
from mlcd.search.registry import strategy, strategy_class
from mlcd.search.strategy import Strategy

Unseen = Literal["all", "only", "no"]


@dataclass(frozen=True, kw_only=True)
class TrainComparison:
    """What to compare. `tables` None means the simulator's jobs.

    strategies  as the user writes them, and `oracle`: see mlcd.bench.oracle
    run_noise, work, restart_seconds, budget_factor, deadline_factor, types, report_noise  see TrainProtocol
    """

    strategies: tuple[str, ...]
    goal: GoalKind
    hours: tuple[float, ...]
    seeds: int
    first_seed: int = 0
    tables: Path | None = None
    workloads: str = "*"
    noise: float = 0.03
    run_noise: float = 0.0
    parallel: int = 1
    jobs: int = 1
    unseen: Unseen = "all"
    work: Work = Work.THROWN
    restart_seconds: float = 0.0
    budget_factor: float = BUDGET_FACTOR
    deadline_factor: float = DEADLINE_FACTOR
    types: int | None = None
    report_noise: float | None = None

    def __post_init__(self) -> None:
        if self.work is Work.KEPT and self.parallel > 1:
            raise BadInput("--parallel: trials whose work is kept continue one another; allowed with --work kept: 1")

    def protocol(self, hours: float) -> TrainProtocol:
        """The protocol of all runs whose fastest training takes `hours`."""
        return TrainProtocol(
            hours=hours,
            noise=self.noise,
            run_noise=self.run_noise,
            work=self.work,
            restart_seconds=self.restart_seconds,
            budget_factor=self.budget_factor,
            deadline_factor=self.deadline_factor,
            types=self.types,
            report_noise=self.report_noise,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSummary:
    """One strategy under one goal; docs/bench.md explains each figure."""

    strategy: str
    goal: str
    hours: float | None
    runs: int
    mean_ratio: float
    mean_ratio_done: float | None
    median_ratio: float
    p95_ratio: float
    ratio_interval: tuple[float, float]
    violations: int
    unfinished: int
    mean_trials: float
    probe_share: float | None


def compare(comparison: TrainComparison) -> list[TrainRow]:
    """Every run of the comparison, in order. Skips workloads without a feasible configuration."""
    for text in comparison.strategies:
        if text != Oracle.name:
            strategy(text)  # report a wrong name or option before the first run
    sources = _sources(comparison)
    tasks = [
        (comparison, source, hours, text, comparison.first_seed + seed)
        for hours in comparison.hours
        for text in comparison.strategies
        for source in sources
        for seed in range(comparison.seeds)
    ]
    rows = run_tasks(_run, tasks, jobs=comparison.jobs)
    return [r for r in rows if r is not None]


def _all_sources(comparison: TrainComparison, text: str) -> tuple[Source, ...]:
    """Every workload there is, for a strategy that learns from others; none for one that does not."""
    if not learns_from_others(text):
        return ()
    return sim_workloads() if comparison.tables is None else _read(comparison.tables)


def learns_from_others(strategy_text: str) -> bool:
    """Whether the strategy is given what was measured of other workloads."""
    name = strategy_text.partition(":")[0].strip()
    return name != Oracle.name and "others" in getattr(strategy_class(name), "given", ())


@lru_cache(maxsize=4)
def _read(folder: Path) -> tuple[Source, ...]:
    return tuple(table_workloads(folder).values())


def _sources(comparison: TrainComparison) -> Sequence[Source]:
    found: Iterable[Source]
    if comparison.tables is None:
        found = sim_workloads(comparison.workloads)
    else:
        found = table_workloads(comparison.tables, comparison.workloads).values()
    keep = {"all": (True, False), "only": (True,), "no": (False,)}[comparison.unseen]
    return [source for source in found if is_unseen(source.name) in keep]


def _run(comparison: TrainComparison, source: Source, hours: float, text: str, seed: int) -> TrainRow | None:
    found = run_one(
        source,
        comparison.protocol(hours),
        kind=comparison.goal,
        strategy_text=text,
        seed=seed,
        parallel=comparison.parallel,
        known=_all_sources(comparison, text),
    )
    return None if found is None else found.row


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """A run with the truth that it is judged by, and its row."""

    truth: TrainTruth
    run: SearchRun
    row: TrainRow


def run_one(
    source: Source,
    protocol: TrainProtocol,
    *,
    kind: GoalKind,
    strategy_text: str,
    seed: int,
    parallel: int = 1,
    known: Sequence[Source] = (),
) -> Searched | None:
    """One run of a workload under a protocol; None where no configuration's training fits the limits.

    known  workloads that a strategy may have learnt from; the one that is run, and its kin, are taken out here
    """
    truth, cloud = case_of(source, protocol, seed=seed)
    problem = truth.with_goal(kind, protocol)
    optimum = truth.optimum(problem.goal)
    if optimum is None:
        return None
    chosen: Strategy
    if strategy_text == Oracle.name:
        chosen = Oracle(truth=truth, seed=seed)
    else:
        chosen = strategy(strategy_text, seed=seed, others=other_jobs(source, known, problem))
    record = search_with(chosen, problem, cloud, name=strategy_text, seed=seed, parallel=parallel)
    return Searched(truth=truth, run=record, row=row(truth, record, kind=kind, protocol=protocol, optimum=optimum))


def summarise(rows: Sequence[TrainRow], *, pool_hours: bool = False) -> list[TrainSummary]:
    """One summary for each (strategy, goal, hours), in the order they appear; hours is None where they are pooled."""
    groups: dict[tuple[str, str, float | None], list[TrainRow]] = {}
    for r in rows:
        groups.setdefault((r.strategy, r.goal, None if pool_hours else r.hours), []).append(r)
    return [_summary(key, group) for key, group in groups.items()]


def _summary(key: tuple[str, str, float | None], rows: list[TrainRow]) -> TrainSummary:
    ratios = np.array([r.counted_ratio for r in rows])
    done = [r.ratio for r in rows if r.status == "done" and r.ratio is not None]
    shares = [r.probe_share for r in rows if r.probe_share is not None]
    return TrainSummary(
        strategy=key[0],
        goal=key[1],
        hours=key[2],
        runs=len(rows),
        mean_ratio=float(ratios.mean()),
        mean_ratio_done=float(np.mean(done)) if done else None,
        median_ratio=float(np.median(ratios)),
        p95_ratio=float(np.percentile(ratios, 95)),
        ratio_interval=_bootstrap(rows),
        violations=sum(r.status == "violated" for r in rows),
        unfinished=sum(r.status == "unfinished" for r in rows),
        mean_trials=float(np.mean([r.trials for r in rows])),
        probe_share=float(np.mean(shares)) if shares else None,
    )


def _bootstrap(rows: list[TrainRow]) -> tuple[float, float]:
    """95% interval of mean_ratio by resampling workloads: runs of one workload are not independent."""
    by_workload: dict[str, list[float]] = {}
    for r in rows:
        by_workload.setdefault(r.workload, []).append(r.counted_ratio)
    return bootstrap_interval(list(by_workload.values()))


def bootstrap_interval(groups: Sequence[Sequence[float]], draws: int = 2000) -> tuple[float, float]:
    """95% interval of the mean over all values, by resampling their groups."""
    sums = np.array([sum(values) for values in groups])
    counts = np.array([len(values) for values in groups])
    picks = np.random.default_rng(0).integers(len(sums), size=(draws, len(sums)))
    means = sums[picks].sum(axis=1) / counts[picks].sum(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)


def as_json(rows: Sequence[TrainRow]) -> dict[str, object]:
    """Rows and summary, with a separate summary of the held-out workloads (is_unseen)."""
    return {
        "rows": [asdict(r) for r in rows],
        "summary": [asdict(s) for s in summarise(rows)],
        "summary_seen": [asdict(s) for s in summarise([r for r in rows if not r.unseen])],
        "summary_unseen": [asdict(s) for s in summarise([r for r in rows if r.unseen])],
    }
