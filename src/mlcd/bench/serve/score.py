"""Strategies side by side: hold one model out, search for it, compare the choice with the optimum."""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase

import numpy as np

from mlcd.bench.case import is_unseen
from mlcd.bench.serve.case import Bed, Case, LeaveOut, searcher, walk
from mlcd.bench.serve.load_tests import LoadTestCase
from mlcd.bench.tasks import run_tasks
from mlcd.errors import BadInput
from mlcd.search.registry import strategy_class

Interval = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class ServeComparison:
    """What to compare. Every trial has `noise`; the choice is judged by the table's true values.

    slo_ms, noise  None: those of the bed
    """

    strategies: tuple[str, ...]
    trials: tuple[int, ...] = (1, 3, 6, 15, 30)
    slo_ms: tuple[float, ...] | None = None
    seeds: int = 5
    first_seed: int = 0
    noise: float | None = None
    leave: LeaveOut = "model"
    targets: str = "*"
    jobs: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeRow:
    """One search: its choice after each of the requested numbers of trials.

    trials_to_95, trials_to_99  None where the choice never reached 95% (99%)
    """

    bed: str
    target: str
    unseen: bool
    strategy: str
    slo_ms: float
    seed: int
    made: int
    accuracy: dict[int, float]
    search_usd: dict[int, float]
    search_seconds: float
    trials_to_95: int | None
    trials_to_99: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSummary:
    """Means over targets and seeds; `interval` is the 95% bootstrap interval of mean_accuracy over targets.

    deviation       standard deviation of accuracy over all searches
    least_accuracy  the lowest mean over seeds of any target, `least_target`
    median_regret   the median of what the choice costs more than the best, as a share; None if it breaks the limit
    A search that never reached 95% (99%) counts as one trial more than the most allowed.
    """

    strategy: str
    slo_ms: float
    trials: int
    runs: int
    mean_accuracy: float
    interval: Interval
    deviation: float
    least_accuracy: float
    least_target: str
    mean_trials_to_95: float
    mean_trials_to_99: float
    search_usd: float
    median_accuracy: float
    median_regret: float | None


def applicable(comparison: ServeComparison, bed: Bed) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(strategies that apply to the table, those that do not because it has no operators). Raises BadInput."""
    able: list[str] = []
    unable: list[str] = []
    for text in comparison.strategies:
        cls = strategy_class(text.partition(":")[0].strip(), serving=True)
        applies = bed.has_operators or not getattr(cls, "needs_operators", False)
        applies = applies or (bed.has_sizes and getattr(cls, "takes_sizes", False))
        (able if applies else unable).append(text)
    return tuple(able), tuple(unable)


def compare(comparison: ServeComparison, beds: Sequence[Bed]) -> list[ServeRow]:
    """Every search, in order. Skips a target under a limit that none of its configurations keeps."""
    tasks = [
        (comparison, bed, name, text)
        for bed in beds
        for text in applicable(comparison, bed)[0]
        for name in bed.targets
        if fnmatchcase(name, comparison.targets)
    ]
    if not any(applicable(comparison, bed)[0] for bed in beds):
        raise BadInput("--strategies: none of these applies to the tables")
    if not tasks:
        raise BadInput(f"--targets: none matches {comparison.targets!r}")
    found = run_tasks(_in_worker, tasks, jobs=comparison.jobs)
    return [row for rows in found for row in rows]


def _in_worker(comparison: ServeComparison, bed: Bed, name: str, text: str) -> list[ServeRow]:
    return _searches(comparison, _resident(bed) if comparison.jobs != 1 else bed, name, text)


_BEDS: dict[tuple[str, str], Bed] = {}
"""The beds that this process has searched in: each task brings a copy, and caches are keyed by identity."""


def _resident(bed: Bed) -> Bed:
    digest = hashlib.sha256(bed.known.usd_per_hour.tobytes())
    for column in (*(m.latency_seconds for m in bed.known.models), *(c.seconds for c in bed.known.curves)):
        digest.update(column.tobytes())
    return _BEDS.setdefault((bed.name, digest.hexdigest()), bed)


def _searches(comparison: ServeComparison, bed: Bed, name: str, text: str) -> list[ServeRow]:
    """The searches for one target under all limits and seeds, which share the precomputed data."""
    sources, most = bed.sources(name, comparison.leave), max(comparison.trials)
    noise = bed.noise if comparison.noise is None else comparison.noise
    rows = []
    for slo_ms in comparison.slo_ms or bed.slo_ms:
        kind = LoadTestCase if bed.load_tests else Case
        case = kind.of(bed, name, slo_ms / 1000, noise=noise, max_trials=most)
        if case is None:
            continue
        for seed in range(comparison.first_seed, comparison.first_seed + comparison.seeds):
            made = walk(case, searcher(text, case, sources, seed=seed), seed=seed)
            rows.append(
                ServeRow(
                    bed=bed.name,
                    target=name,
                    unseen=is_unseen(name),
                    strategy=text,
                    slo_ms=slo_ms,
                    seed=seed,
                    made=len(made.configs),
                    accuracy={count: made.accuracy_after(count) for count in comparison.trials},
                    search_usd={count: made.usd_after(count) for count in comparison.trials},
                    search_seconds=len(made.configs) * bed.trial_seconds,
                    trials_to_95=made.trials_to(0.95),
                    trials_to_99=made.trials_to(0.99),
                )
            )
    return rows


def summarise(rows: Sequence[ServeRow]) -> list[ServeSummary]:
    """One summary for each (strategy, limit, number of trials), in the order they appear."""
    groups: dict[tuple[str, float], list[ServeRow]] = {}
    for row in rows:
        groups.setdefault((row.strategy, row.slo_ms), []).append(row)
    return [_summary(key, count, group) for key, group in groups.items() for count in group[0].accuracy]


def _summary(key: tuple[str, float], count: int, rows: list[ServeRow]) -> ServeSummary:
    never = max(rows[0].accuracy) + 1
    middle = float(np.median([row.accuracy[count] for row in rows]))
    least, target = min((float(np.mean(found)), name) for (_, name), found in _by_target(rows, count).items())
    return ServeSummary(
        strategy=key[0],
        slo_ms=key[1],
        trials=count,
        runs=len(rows),
        mean_accuracy=float(np.mean([row.accuracy[count] for row in rows])),
        interval=_bootstrap(rows, count),
        deviation=float(np.std([row.accuracy[count] for row in rows])),
        least_accuracy=least,
        least_target=target,
        mean_trials_to_95=float(np.mean([row.trials_to_95 or never for row in rows])),
        mean_trials_to_99=float(np.mean([row.trials_to_99 or never for row in rows])),
        search_usd=float(np.mean([row.search_usd[count] for row in rows])),
        median_accuracy=middle,
        median_regret=1 / middle - 1 if middle > 0 else None,
    )


def _bootstrap(rows: list[ServeRow], count: int, draws: int = 2000) -> Interval:
    """95% interval of the mean accuracy by resampling targets: searches for one target are not independent."""
    by_target = _by_target(rows, count).values()
    sums = np.array([sum(values) for values in by_target])
    sizes = np.array([len(values) for values in by_target])
    picks = np.random.default_rng(0).integers(len(sums), size=(draws, len(sums)))
    low, high = np.percentile(sums[picks].sum(axis=1) / sizes[picks].sum(axis=1), [2.5, 97.5])
    return float(low), float(high)


def _by_target(rows: Sequence[ServeRow], count: int) -> dict[tuple[str, str], list[float]]:
    """(bed, target) -> the accuracy of its searches after `count` trials."""
    found: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        found.setdefault((row.bed, row.target), []).append(row.accuracy[count])
    return found


def as_json(rows: Sequence[ServeRow], beds: Sequence[Bed]) -> dict[str, object]:
    """The test beds, the rows and the summary, with a separate summary of the held-out targets (is_unseen)."""
    return {
        "tables": [
            {"name": bed.name, "source": bed.known.source, "simulated": bed.known.simulated, "targets": bed.targets}
            for bed in beds
        ],
        "rows": [asdict(row) for row in rows],
        "summary": [asdict(s) for s in summarise(rows)],
        "summary_seen": [asdict(s) for s in summarise([row for row in rows if not row.unseen])],
        "summary_unseen": [asdict(s) for s in summarise([row for row in rows if row.unseen])],
    }
