"""Trials of the same job in earlier runs: known at no price when it is searched again, under this goal or another."""

from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from mlcd.errors import SpecError
from mlcd.jobs.choice import listed
from mlcd.jobs.recorded_spec import stored_spec
from mlcd.problem import Problem
from mlcd.run.header import ReusedTrial
from mlcd.run.kind import Kind
from mlcd.run.run import AnyRun
from mlcd.space import Config
from mlcd.spec import TrainSpec
from mlcd.store.damage import DamagedStore
from mlcd.store.store import FILE, Store
from mlcd.trial.trial import Failure, FailureKind, Measurement, Trial

MOST_RUNS = 20
"""Most runs to take trials from, the newest first."""
DAY_SECONDS = 86_400.0


def earlier_trials(folder: Path, cloud: str, spec: TrainSpec, problem: Problem) -> tuple[ReusedTrial, ...]:
    """The newest trial of each configuration of `problem` that a run of the same job on `cloud` made, oldest first.

    A job is the same if what runs and what it works on are the same; goal, limits, search, types and node counts may
    differ. Speeds and lack of memory are taken over; other failures may have been put right since. Work that a trial
    did is not: its checkpoint belongs to its run.
    """
    if not (folder / FILE).exists():
        return ()
    found: dict[Config, ReusedTrial] = {}
    used = 0
    with Store(folder, reading=True) as store:
        for summary in store.runs():  # the newest first
            if summary.kind is not Kind.TRAIN or summary.cloud != cloud or not summary.trials or used == MOST_RUNS:
                continue
            with suppress(DamagedStore, SpecError):
                if is_same_job(stored_spec(store.spec(summary.run_id)), spec):
                    used += 1
                    for each in _taken(store.load(summary.run_id)):
                        if each.trial.config in problem.space:
                            found.setdefault(each.trial.config, each)
    return tuple(reversed(found.values()))


def is_same_job(one: TrainSpec, other: TrainSpec) -> bool:
    """Whether trials of one tell the speed of the other."""
    return _what_runs(one) == _what_runs(other)


def reuse_notes(reused: tuple[ReusedTrial, ...], now: datetime) -> tuple[str, ...]:
    """A note on what is reused: how many trials, of which runs, how old, and at which prices they were paid."""
    if not reused:
        return ()
    runs = {each.run_id: each for each in reused}
    ages = [(now - datetime.fromisoformat(each.created)).total_seconds() / DAY_SECONDS for each in runs.values()]
    oldest, dates = max(ages), sorted({each.catalog_date for each in runs.values()})
    age = "less than a day" if oldest < 1 else f"up to {oldest:.0f} days"
    paid = f"{age} old, paid at prices of {', '.join(dates)}; plans use today's prices"
    return (f"reuses {len(reused)} trials of {listed(runs)} ({paid}): --fresh ignores them",)


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
