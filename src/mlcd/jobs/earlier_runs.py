"""Trials of the same job in earlier runs: known at no price when it is searched again, under this goal or another."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from mlcd.errors import SpecError
from mlcd.jobs.choice import listed
from mlcd.jobs.recorded_spec import stored_spec
from mlcd.models.similar import FEWEST_MEASUREMENTS
from mlcd.problem import Problem
from mlcd.run.header import ReusedTrial
from mlcd.run.kind import Kind
from mlcd.run.run import AnyRun
from mlcd.space import Config
from mlcd.spec import TrainSpec
from mlcd.store.damage import DamagedStore
from mlcd.store.store import Store, has_store
from mlcd.trial.trial import Failure, FailureKind, History, Measurement, Trial

MOST_RUNS = 20
"""Most runs to learn from, the newest first."""
MOST_LOOKED_AT = 1_000
"""Most runs to search for those: a team's store may have a hundred thousand."""
MOST_SIMILAR = 3
"""Most other jobs that count."""
DAY_SECONDS = 86_400.0


@dataclass(frozen=True, kw_only=True)
class EarlierRuns:
    """What earlier runs on the same cloud tell of a job.

    reused   trials of the same job: the newest of each configuration, oldest first
    similar  problem and history of other jobs that share types with it, the newest first
    """

    reused: tuple[ReusedTrial, ...] = ()
    similar: tuple[tuple[Problem, History], ...] = ()
    similar_names: tuple[str, ...] = ()


def earlier_runs(folder: Path, cloud: str, spec: TrainSpec, problem: Problem) -> EarlierRuns:
    """What the store in `folder` tells of the job `spec` on `cloud`.

    A job is the same if what runs and what it works on are the same; goal, limits, search, types and node counts may
    differ. Speeds and lack of memory are taken over; other failures may have been put right since. Work that a trial
    did is not: its checkpoint belongs to its run.
    """
    if not has_store(folder):
        return EarlierRuns()
    found: dict[Config, ReusedTrial] = {}
    similar: dict[str, tuple[Problem, History]] = {}
    used = 0
    with Store(folder, reading=True) as store:
        for summary in store.newest(MOST_LOOKED_AT):
            if used == MOST_RUNS:
                break
            if summary.kind is not Kind.TRAIN or summary.cloud != cloud or not summary.trials:
                continue
            with suppress(DamagedStore, SpecError):
                used += 1
                run = store.load(summary.run_id)
                if _is_of(store.spec(summary.run_id), spec):
                    for each in _taken(run):
                        if each.trial.config in problem.space:
                            found.setdefault(each.trial.config, each)
                elif len(similar) < MOST_SIMILAR and isinstance(run.problem, Problem) and _shares(run, problem):
                    similar[run.run_id] = (run.problem, run.history)
    return EarlierRuns(
        reused=tuple(reversed(found.values())), similar=tuple(similar.values()), similar_names=tuple(similar)
    )


def _is_of(stored: Mapping[str, Any], spec: TrainSpec) -> bool:
    """Whether a stored job is this one. A record that mlcd cannot have written is not."""
    try:
        return is_same_job(stored_spec(stored), spec)
    except (ValueError, TypeError, KeyError, AttributeError):
        return False


def _shares(run: AnyRun, problem: Problem) -> bool:
    """Whether the run measured enough configurations of this problem's space, under the same knobs."""
    measured = {trial.config for trial in run.history.measured}
    return len(measured) >= FEWEST_MEASUREMENTS and sum(config in problem.space for config in measured) >= 2


def is_same_job(one: TrainSpec, other: TrainSpec) -> bool:
    """Whether trials of one tell the speed of the other."""
    return _what_runs(one) == _what_runs(other)


def reuse_notes(earlier: EarlierRuns, now: datetime) -> tuple[str, ...]:
    """A note on what is reused: how many trials, of which runs, how old, and at which prices they were paid."""
    notes = []
    if earlier.reused:
        runs = {each.run_id: each for each in earlier.reused}
        age = age_text([each.created for each in runs.values()], now)
        dates = sorted({each.catalog_date for each in runs.values()})
        paid = f"{age} old, paid at prices of {', '.join(dates)}; plans use today's prices"
        notes.append(f"reuses {len(earlier.reused)} trials of {listed(runs)} ({paid}): --fresh ignores them")
    if earlier.similar:
        notes.append(f"expects speeds a little like those of {listed(earlier.similar_names)}: --fresh does not")
    return tuple(notes)


def age_text(created: Sequence[str], now: datetime) -> str:
    """`less than a day`, `up to 12 days`: of the oldest of runs, by when they were created."""
    days = max((now - datetime.fromisoformat(each)).total_seconds() / DAY_SECONDS for each in created)
    return "less than a day" if days < 1 else f"up to {days:.0f} days"


def _what_runs(spec: TrainSpec) -> tuple[object, ...]:
    return (
        spec.name,
        spec.job,
        spec.batch,
        spec.learning_rate,
        spec.run,
        spec.setup,
        (Path(spec.file).parent / spec.workdir).resolve() if spec.workdir else "",
        spec.platform,
        dict(spec.file_mounts),
        sorted(spec.envs),
        spec.resources.image_id,
    )


def _taken(run: AnyRun) -> tuple[ReusedTrial, ...]:
    """The run's own trials that another run may use, the newest first."""
    return tuple(
        ReusedTrial(
            run_id=run.run_id,
            created=run.created,
            catalog_date=run.catalog_date,
            trial=_without_work(step.trial),
        )
        for step in reversed(run.trials)
        if isinstance(step.trial, Measurement) or step.trial.kind is FailureKind.OUT_OF_MEMORY
    )


def _without_work(trial: Trial) -> Trial:
    if isinstance(trial, Failure):
        return replace(trial, reached_samples=0.0)
    return replace(trial, reached_samples=0.0, learned=())
