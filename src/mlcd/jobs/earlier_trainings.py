"""Earlier runs of a serverless training in the store: `mpc` uses them as its prior."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from mlcd.functions import FunctionProblem
from mlcd.jobs.choice import listed
from mlcd.jobs.earlier_runs import MOST_LOOKED_AT, age_text
from mlcd.models.epochs import EpochPrior
from mlcd.models.experience import prior_from_runs
from mlcd.run.header import FunctionFacts
from mlcd.run.kind import Kind
from mlcd.run.run import AnyRun, EpochRun
from mlcd.store.damage import DamagedStore
from mlcd.store.store import Store, has_store
from mlcd.trial.epoch import Epoch

MOST_RUNS = 8
"""Most trainings to use, the newest first: more add little to a fitted curve."""


def earlier_trainings(folder: Path, cloud: str, facts: FunctionFacts, problem: FunctionProblem) -> tuple[str, ...]:
    """The names of earlier runs that trained the same model on the same samples in the same place, newest first."""
    if not has_store(folder):
        return ()
    found: list[str] = []
    with Store(folder) as store:
        for summary in store.newest(MOST_LOOKED_AT):
            if summary.kind is Kind.SERVERLESS and summary.cloud == cloud and summary.trials:
                with suppress(DamagedStore):
                    run = store.load(summary.run_id)
                    found += [run.run_id] if run.epochs and _is_same_work(run, facts, problem) else []
            if len(found) == MOST_RUNS:
                break
    return tuple(found)


def epochs_of(folder: Path, names: Sequence[str]) -> tuple[tuple[Epoch, ...], ...]:
    """The epochs of each of these runs."""
    if not names:
        return ()
    with Store(folder) as store:
        return tuple(store.load(name).epochs for name in names)


def learning_notes(folder: Path, names: Sequence[str], now: datetime) -> tuple[str, ...]:
    """A note on the runs that a training learns from, and how old they are; none without runs."""
    if not names:
        return ()
    with Store(folder, reading=True) as store:
        created = [store.load(name).created for name in names]
    return (f"learns from the epochs of {listed(names)} ({age_text(created, now)} old): --fresh ignores them",)


def prior_of(trainings: Sequence[Sequence[Epoch]], problem: FunctionProblem) -> EpochPrior | None:
    """The prior for the next training; None if there are no trainings."""
    if not trainings:
        return None
    return prior_from_runs(
        trainings,
        samples=problem.samples,
        puts=problem.puts_per_function,
        target_loss=problem.target_loss,
        first_loss=problem.first_loss,
    )


def _is_same_work(run: AnyRun | EpochRun, facts: FunctionFacts, problem: FunctionProblem) -> bool:
    other, seen = run.problem, run.header.functions
    if not isinstance(other, FunctionProblem) or seen is None or (seen.model, seen.sync) != (facts.model, facts.sync):
        return False
    return (other.name, other.samples, other.batch, other.target_loss) == (
        problem.name,
        problem.samples,
        problem.batch,
        problem.target_loss,
    )
