"""Where a run stands: its trials, what it has paid, what is left to do, and the ledger that follows from them."""

import time
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

from mlcd.clouds.provider import Cloud
from mlcd.events import Money
from mlcd.ledger import Ledger
from mlcd.models.standing import standing
from mlcd.problem import Problem
from mlcd.store.store import Store, simulated_elapsed
from mlcd.trial.record import FinalRun, TrialRow
from mlcd.trial.trial import History, Measurement, Trial
from mlcd.units import ZERO, Usd


@runtime_checkable
class Checkpointed(Protocol):
    """A cloud whose trials go on where the last one stopped."""

    def reached_samples(self, run_id: str) -> float:
        """How far the training of a run is saved."""
        ...


@dataclass(kw_only=True)
class Accounts:
    """The account of one run: what the store has of it, kept in step by whoever writes there.

    rows        trials that ended; earlier: attempts at the training that were begun again
    live_noise  the noise scale that the training itself shows; before it, the trials'
    """

    run_id: str
    problem: Problem
    cloud: Cloud
    guarded: bool
    store: Store
    rows: list[TrialRow] = field(default_factory=list)
    earlier: list[FinalRun] = field(default_factory=list)
    live_noise: float | None = None
    _open: Problem | None = field(default=None, init=False)

    @property
    def history(self) -> History:
        """The trials; a speed that a training showed later stands in place of what the trial had measured."""
        if not self.earlier:
            return History(tuple(row.trial for row in self.rows))
        seen = {run.config: run.samples_per_second for run in self.earlier}
        return History(tuple(_as_trained(row.trial, seen.get(row.trial.config)) for row in self.rows))

    @property
    def reached_samples(self) -> float:
        """How far the training is saved, by trials and by attempts that were begun again."""
        reached = (row.trial.reached_samples for row in self.rows), (run.reached_samples for run in self.earlier)
        return max((samples for some in reached for samples in some), default=0.0)

    @property
    def open_problem(self) -> Problem:
        """The problem with the work that is still to do; the same object as long as that does not change."""
        history = History(tuple(row.trial for row in self.rows))
        if not self.problem.work_known and self.problem.target is None:
            self.problem = self.problem.with_work_told(history.total_samples)
        now = standing(self.problem, history, self.earlier, noise_scale=self.live_noise)
        if self._open is None or _work_in(self._open) != _work_in(now):
            self._open = now
        return self._open

    @property
    def saved_samples(self) -> float:
        """What the cloud itself has of the training: also what trials saved that died with mlcd."""
        return self.cloud.reached_samples(self.run_id) if isinstance(self.cloud, Checkpointed) else 0.0

    @property
    def spent(self) -> Usd:
        """All trials, and trainings that were begun again; a simulated training that died cost nothing."""
        earlier = () if self.cloud.simulated else self.earlier
        return Usd(sum(row.trial.usd.micros for row in self.rows)) + sum((run.usd for run in earlier), ZERO)

    @property
    def elapsed_seconds(self) -> float:
        """Since the first start: simulated time, or the wall clock with all downtime."""
        if self.cloud.simulated:
            return simulated_elapsed(tuple(self.rows))
        first = self.store.first_start(self.run_id)
        return 0.0 if first is None else max(time.time() - first, 0.0)

    def ledger(self) -> Ledger:
        """What may be spent now, with nothing on its way."""
        return Ledger(
            problem=self.open_problem,
            history=self.history,
            spent=self.spent,
            elapsed_seconds=self.elapsed_seconds,
            guarded=self.guarded,
        )

    def money(self, ledger: Ledger) -> Money:
        """For whoever watches the search."""
        reserve = ledger.incumbent() if ledger.guarded else None
        reserved = reserve.worst_usd if reserve else ZERO
        reserved_seconds = reserve.worst_seconds if reserve else 0.0
        return Money(
            spent=ledger.spent,
            reserved=reserved,
            left=None if ledger.usd_left is None else ledger.usd_left - reserved,
            elapsed_seconds=ledger.elapsed_seconds,
            reserved_seconds=reserved_seconds,
            seconds_left=None if ledger.seconds_left is None else ledger.seconds_left - reserved_seconds,
        )

    def money_while_training(self, usd: Usd, seconds: float, search_seconds: float) -> Money:
        """For whoever watches the training, `seconds` and `usd` into it."""
        goal, spent = self.problem.goal, self.spent + usd
        elapsed = search_seconds + seconds
        return Money(
            spent=spent,
            reserved=ZERO,
            left=None if goal.budget is None else goal.budget - spent,
            elapsed_seconds=elapsed,
            reserved_seconds=0.0,
            seconds_left=None if goal.deadline_seconds is None else goal.deadline_seconds - elapsed,
        )


def _work_in(problem: Problem) -> tuple[object, ...]:
    """All of a problem that changes in the course of a run."""
    return problem.work_samples, problem.work_known, problem.work_error, problem.batching


def _as_trained(trial: Trial, samples_per_second: float | None) -> Trial:
    if samples_per_second is None or not isinstance(trial, Measurement):
        return trial
    return replace(trial, samples_per_second=samples_per_second)
