"""The loop of a training on functions: decide, authorise, write down, run, write down; until the target's loss."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from mlcd.clouds.functions.provider import EpochFailed, EpochOrder, FunctionCloud
from mlcd.epoch_ledger import EpochLeave, EpochLedger, EpochRefusal
from mlcd.errors import Interrupted
from mlcd.events import EpochFinished, EpochObserver, EpochStarted, ignore_epochs
from mlcd.functions import FunctionProblem
from mlcd.schedulers.scheduler import Scheduler
from mlcd.store.epochs import EpochBook, StartedEpoch
from mlcd.trial.call import FunctionCall
from mlcd.trial.epoch import Epoch, FailedEpoch, Fleet
from mlcd.trial.outcome import Status
from mlcd.trial.serverless import PlainInstance, ServerlessRecord
from mlcd.units import Usd

PATIENCE = 6.0
"""An epoch is ended when it takes so many times as long as the slowest so far would have taken on its fleet ..."""
LEAST_PATIENCE_SECONDS = 60.0
"""... but never before this."""
MOST_FAILURES = 3
"""So many epochs that fail one after another are a fault that more money does not mend."""


@runtime_checkable
class Restoring(Protocol):
    """A cloud of functions that must be told what an earlier process did."""

    def restore(self, run_id: str, epochs: Sequence[Epoch]) -> None:
        """Goes on after these epochs."""
        ...


@runtime_checkable
class Recovering(Protocol):
    """A cloud of functions whose work goes on while mlcd does not."""

    def finished(self, run_id: str, number: int) -> Epoch | None:
        """An epoch that came to its barrier without anybody writing it down."""
        ...

    def lost(self, order: EpochOrder, *, elapsed_seconds: float) -> Usd:
        """What the calls of an epoch cost that nobody waits for any more, at most what was authorised."""
        ...


@runtime_checkable
class Itemised(Protocol):
    """A cloud of functions that tells each call of its last epoch."""

    @property
    def calls(self) -> tuple[FunctionCall, ...]: ...  # noqa: D102


@dataclass(kw_only=True)
class EpochEngine:
    """One training on functions, new or resumed. Raises Interrupted, ProviderError, StoreError, RunBusy.

    compare  what the same training would take on plain instances, once it is over
    """

    run_id: str
    problem: FunctionProblem
    cloud: FunctionCloud
    scheduler: Scheduler
    book: EpochBook
    observer: EpochObserver = ignore_epochs
    compare: Callable[[tuple[Epoch, ...]], Sequence[PlainInstance]] = lambda _: ()
    _epochs: list[Epoch] = field(default_factory=list, init=False)
    _failed: list[FailedEpoch] = field(default_factory=list, init=False)
    _gos: int = field(default=0, init=False)
    _in_a_row: int = field(default=0, init=False)
    _hopeless: str = field(default="", init=False)

    def run(self) -> ServerlessRecord:
        """To the target, or to where it has to end; a run that has ended is only read again."""
        with self.book.store.lock(self.run_id):
            record = self.book.record(self.run_id)
            if record.status.is_final:
                return record
            self._epochs, self._failed = list(record.epochs), list(record.failed)
            self._gos = len(record.rows)
            try:
                if record.status is Status.INTERRUPTED:
                    self.book.store.set_status(self.run_id, Status.RUNNING)
                self._train()
            except KeyboardInterrupt as error:
                self._settle_interrupted()
                self.book.store.set_status(self.run_id, Status.INTERRUPTED)
                raise Interrupted(
                    f"interrupted; nothing paid for is lost: `mlcd resume {self.run_id}` goes on"
                ) from error
            return self.book.record(self.run_id)

    # ---- the loop

    def _train(self) -> None:
        if isinstance(self.cloud, Restoring):
            self.cloud.restore(self.run_id, self._epochs)
        self._settle_in_flight()
        while not self._is_over():
            ledger = self._ledger()
            left = ledger.left()
            history = tuple(self._epochs)
            fleet = self.scheduler.decide(self.problem, history, left)
            if fleet is None:
                self._end_short(self.scheduler.ending(self.problem, history, left), ledger)
                return
            leave = self._authorise(ledger, fleet)
            if isinstance(leave, EpochRefusal):
                self._end_short(f"an epoch of {fleet} was refused: {leave.reason}", ledger)
                return
            self._run(self._written_down(leave))

    def _is_over(self) -> bool:
        problem, epochs = self.problem, self._epochs
        if epochs and epochs[-1].loss <= problem.target_loss:
            status = self._within_limits()
            self._end(status, f"the loss of {epochs[-1].loss:.4g} has reached {problem.target_loss:.4g}")
            return True
        if not self._ledger().epochs_left:
            best = min(epoch.loss for epoch in epochs)
            most = "1 epoch" if problem.max_epochs == 1 else f"{problem.max_epochs} epochs"
            stopped = f"{most}, the most that are wanted, brought the loss to {best:.4g} at best"
            self._end(Status.NOTHING_FITS, stopped)
            return True
        if self._hopeless:
            self._end(Status.RUN_FAILED, f"the model cannot be trained: {self._hopeless}")
            return True
        if self._in_a_row >= MOST_FAILURES:
            status = Status.NOTHING_FITS if epochs else Status.ALL_FAILED
            self._end(status, f"{self._in_a_row} epochs failed one after another; the last: {self._failed[-1].message}")
            return True
        return False

    def _within_limits(self) -> Status:
        """A deadline counts what lies between the epochs, too, which nothing can authorise."""
        seconds_left = self._ledger().seconds_left
        return Status.OVERRAN if seconds_left is not None and seconds_left < 0 else Status.DONE

    def _authorise(self, ledger: EpochLedger, fleet: Fleet) -> EpochLeave | EpochRefusal:
        """Leave for as long as is paid for, or as patience lasts where that is shorter."""
        leave = ledger.authorise(fleet)
        if isinstance(leave, EpochRefusal) or not self._epochs:
            return leave
        usual = max(
            epoch.seconds
            * max(1.0, fleet.share / epoch.fleet.share)
            * max(1.0, epoch.fleet.functions / fleet.functions)
            * max(1.0, epoch.fleet.memory_mb / fleet.memory_mb)
            for epoch in self._epochs
        )
        patience = max(PATIENCE * usual, LEAST_PATIENCE_SECONDS)
        return leave if patience >= leave.seconds else ledger.authorise(fleet, patience)

    def _written_down(self, leave: EpochLeave) -> StartedEpoch:
        self._gos += 1
        started = StartedEpoch(
            go=self._gos,
            number=len(self._epochs) + 1,
            fleet=leave.fleet,
            authorised_usd=leave.usd,
            authorised_seconds=leave.seconds,
            started_at=time.time(),
        )
        self.book.start(self.run_id, started)
        ledger = self._ledger()
        self.observer(EpochStarted(number=started.number, fleet=leave.fleet, spent=ledger.spent, left=ledger.usd_left))
        return started

    def _run(self, started: StartedEpoch) -> None:
        try:
            outcome: Epoch | FailedEpoch = self.cloud.run_epoch(self._order(started))
        except EpochFailed as error:
            outcome = FailedEpoch(
                number=started.number,
                fleet=started.fleet,
                seconds=error.seconds,
                usd=error.usd,
                message=error.message,
            )
            self._hopeless = error.message if error.hopeless else ""
        self._settle(started, outcome, self._calls())

    def _order(self, started: StartedEpoch) -> EpochOrder:
        return EpochOrder(
            number=started.number,
            fleet=started.fleet,
            seconds=started.authorised_seconds,
            usd=started.authorised_usd,
            run_id=self.run_id,
        )

    def _calls(self) -> tuple[FunctionCall, ...]:
        return self.cloud.calls if isinstance(self.cloud, Itemised) else ()

    def _settle(self, started: StartedEpoch, outcome: Epoch | FailedEpoch, calls: Sequence[FunctionCall] = ()) -> None:
        self.book.end(self.run_id, started.go, outcome, calls)
        if isinstance(outcome, Epoch):
            self._epochs.append(outcome)
            self._in_a_row = 0
        else:
            self._failed.append(outcome)
            self._in_a_row += 1
        ledger = self._ledger()
        self.observer(
            EpochFinished(outcome=outcome, spent=ledger.spent, left=ledger.usd_left, elapsed_seconds=ledger.seconds)
        )

    # ---- after a kill

    def _settle_in_flight(self) -> None:
        """Simulated epochs are run again; real ones are adopted where they ended, and charged where they did not."""
        started = self.book.in_flight(self.run_id)
        if started is None:
            return
        self._gos = started.go
        if self.cloud.simulated:
            self._run(started)
            return
        done = self.cloud.finished(self.run_id, started.number) if isinstance(self.cloud, Recovering) else None
        if done is not None:
            self._settle(started, done)
            return
        self._settle_lost(started, "mlcd ended before the epoch did")

    def _settle_interrupted(self) -> None:
        started = self.book.in_flight(self.run_id)
        if started is None or self.cloud.simulated:
            return
        calls = self._calls()
        if not calls:
            self._settle_lost(started, "interrupted")
            return
        usd = Usd.of(sum(call.usd for call in calls))
        seconds = min(max(time.time() - started.started_at, 0.0), started.authorised_seconds)
        lost = FailedEpoch(
            number=started.number,
            fleet=started.fleet,
            seconds=seconds,
            usd=min(usd, started.authorised_usd),
            message="interrupted",
        )
        self._settle(started, lost, calls)

    def _settle_lost(self, started: StartedEpoch, message: str) -> None:
        elapsed = min(max(time.time() - started.started_at, 0.0), started.authorised_seconds)
        usd = started.authorised_usd
        if isinstance(self.cloud, Recovering):
            usd = min(usd, self.cloud.lost(self._order(started), elapsed_seconds=elapsed))
        lost = FailedEpoch(number=started.number, fleet=started.fleet, seconds=elapsed, usd=usd, message=message)
        self._settle(started, lost)
        self._in_a_row = 0  # that was mlcd's fault, not the fleet's

    # ---- the end

    def _ledger(self) -> EpochLedger:
        return EpochLedger(
            problem=self.problem,
            epochs=tuple(self._epochs),
            failed=tuple(self._failed),
            elapsed_seconds=self._elapsed(),
        )

    def _elapsed(self) -> float | None:
        """The wall clock since the first start with all downtime; None: simulated time, which is the epochs' own."""
        if self.cloud.simulated:
            return None
        first = self.book.first_start(self.run_id)
        return 0.0 if first is None else max(time.time() - first, 0.0)

    def _end_short(self, stopped: str, ledger: EpochLedger) -> None:
        """Without the target: nothing was ever started, or what is left does not suffice."""
        status = Status.NOTHING_FITS if self._epochs or self._failed else Status.INFEASIBLE
        if self._failed and not self._epochs:
            status = Status.ALL_FAILED
        smallest = self.scheduler.smallest_budget(self.problem, tuple(self._epochs), ledger.left())
        budget = self.problem.goal.budget
        told = smallest if smallest is not None and budget is not None and smallest > budget else None
        self._end(status, stopped, told)

    def _end(self, status: Status, stopped: str, smallest_budget: Usd | None = None) -> None:
        instances = self.compare(tuple(self._epochs)) if self._epochs else ()
        self.book.end_run(self.run_id, status, stopped=stopped, smallest_budget=smallest_budget, instances=instances)
