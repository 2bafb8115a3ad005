"""The only loop: ask the strategy, authorise, measure, store; then choose and train.

Only this file starts a trial, and only after the ledger has authorised its worst case and the store has written that
down. Killed at any instant, a run goes on from the store: on a simulated cloud trials in flight are measured again
(they give the same answer), on a real one they are charged for their elapsed time as failed.
"""

import math
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from dataclasses import dataclass, field, replace

from mlcd.clouds.provider import Cloud, LeaseFailed, Progress, Purpose
from mlcd.errors import Interrupted
from mlcd.events import Event, Money, Observer, RunProgress, SearchEnded, TrialFinished, TrialStarted, ignore
from mlcd.ledger import Authorisation, Ledger, Refusal
from mlcd.models.speed import speed_model
from mlcd.problem import Problem
from mlcd.profiler.measure import measure
from mlcd.relaxation import relaxations
from mlcd.search.strategy import Strategy
from mlcd.space import Config
from mlcd.store.store import StartedTrial, Store, simulated_elapsed
from mlcd.trial.outcome import Status
from mlcd.trial.plan import Plan
from mlcd.trial.record import FinalRun, Naive, RunRecord, TrialRow
from mlcd.trial.trial import Failure, FailureKind, History, Measurement, Suggestion, Trial
from mlcd.units import ZERO, Usd

MODEL_TRIALS = 100
"""Up to so many trials the receipt's comparisons may ask the model; an exhaustive search has measured enough itself."""


@dataclass(kw_only=True)
class Engine:
    """One run, from where the store says it stands to its end.

    naive  (label, configuration) pairs that the receipt compares the choice with
    """

    run_id: str
    problem: Problem
    cloud: Cloud
    strategy: Strategy
    store: Store
    parallel: int = 1
    naive: Sequence[tuple[str, Config]] = ()
    observer: Observer = ignore
    _stop: threading.Event = field(default_factory=threading.Event, init=False)
    _rows: list[TrialRow] = field(default_factory=list, init=False)

    def run(self) -> RunRecord:
        """Search, choose, train. Raises Interrupted on Ctrl-C; the run can then be resumed."""
        with self.store.lock(self.run_id):
            record = self.store.record(self.run_id)
            if record.status.is_final:
                return record
            self._rows = list(record.rows)
            try:
                if record.status is Status.INTERRUPTED:
                    self.store.set_status(self.run_id, Status.RUNNING)
                choice = record.choice if record.stopped else self._search()
                self._finish(choice)
            except KeyboardInterrupt as error:
                self._stop.set()
                self._settle_in_flight()
                self._settle_lost_final()
                self.store.set_status(self.run_id, Status.INTERRUPTED)
                raise Interrupted(
                    f"interrupted; nothing paid for is lost: `mlcd resume {self.run_id}` goes on"
                ) from error
            return self.store.record(self.run_id)

    # ---- search

    def _search(self) -> Plan | None:
        self._settle_in_flight()
        while True:
            ledger = self._ledger()
            round_number = 1 + max((row.round for row in self._rows), default=0)
            started, stopped = self._next_round(ledger, round_number)
            if not started:
                return self._conclude(stopped)
            self._run_round(started)

    def _next_round(self, ledger: Ledger, round_number: int) -> tuple[list[StartedTrial], str]:
        """The trials to run side by side now, authorised and written down; or none, and why."""
        history, problem = ledger.history, self.problem
        room = min(self.parallel, problem.max_trials - len(history))
        if room <= 0:
            return [], f"the limit of {problem.max_trials} trials is reached"
        left = ledger.left()
        again = history.to_retry(problem.trial.retries)
        wanted = [retry for retry in again if left.allowed[problem.space.index[retry.config]]][:room]
        if len(wanted) < room:
            wanted += self.strategy.suggest(problem, history, left, room - len(wanted))
        if not wanted:
            return [], self.strategy.ending(problem, history, left)
        started: list[StartedTrial] = []
        refused = ""
        for suggestion in wanted:
            answer = self._with_open(ledger, started).authorise(suggestion.config)
            if isinstance(answer, Refusal):
                refused = f"a trial of {answer.config} was refused: {answer.reason}"
                continue
            started.append(self._started(answer, suggestion, round_number, len(history) + len(started) + 1, ledger))
        if started:
            self._write_down(started, ledger)
        return started, refused

    def _started(
        self, leave: Authorisation, suggestion: Suggestion, round_number: int, number: int, ledger: Ledger
    ) -> StartedTrial:
        return StartedTrial(
            number=number,
            round=round_number,
            reason=suggestion.reason,
            usd_per_hour=self.problem.price(leave.config),
            authorisation=leave,
            started_seconds=ledger.elapsed_seconds,
            started_at=time.time(),
        )

    def _write_down(self, started: Sequence[StartedTrial], ledger: Ledger) -> None:
        """The whole round at once: killed before or after, a resumed run has the same rounds as one left alone."""
        self.store.start_trials(self.run_id, started)
        for count, trial in enumerate(started, start=1):
            money = self._money(self._with_open(ledger, started[:count]))
            config = trial.authorisation.config
            self._tell(TrialStarted(number=trial.number, config=config, reason=trial.reason, money=money))

    def _run_round(self, started: Sequence[StartedTrial]) -> None:
        """Measure side by side; each trial is stored the moment it ends."""
        if len(started) == 1:
            self._settle(started[0], self._measure(started[0]))
            return
        with ThreadPoolExecutor(max_workers=len(started)) as pool:
            waiting: dict[Future[Trial], StartedTrial] = {pool.submit(self._measure, s): s for s in started}
            try:
                for future in as_completed(tuple(waiting)):
                    self._settle(waiting.pop(future), future.result())
            except BaseException:
                self._stop.set()  # the other trials end at their next sign of progress, and their nodes are released
                for future in wait(waiting).done:
                    if future.exception() is None:  # it had ended by then: paid, so kept
                        self._settle(waiting[future], future.result())
                raise

    def _measure(self, started: StartedTrial) -> Trial:
        leave = started.authorisation
        return measure(
            self.cloud,
            leave.config,
            attempt=leave.attempt,
            policy=self.problem.trial,
            usd_per_hour=started.usd_per_hour,
            cancelled=self._stop.is_set,
        )

    def _settle(self, started: StartedTrial, trial: Trial) -> None:
        self.store.end_trial(self.run_id, started.number, trial)
        row = started.ended(trial)
        self._rows = sorted([*self._rows, row], key=lambda r: r.number)
        ledger = self._ledger()
        self._tell(TrialFinished(row=row, incumbent=ledger.incumbent(), money=self._money(ledger)))

    def _settle_in_flight(self) -> None:
        """After a kill: simulated trials are measured again, real ones are charged for the time that went by."""
        for started in self.store.in_flight(self.run_id):
            if self.cloud.simulated and not self._stop.is_set():
                self._settle(started, self._measure(started))
            elif not self.cloud.simulated:
                self._settle(started, self._lost(started))

    def _lost(self, started: StartedTrial) -> Failure:
        leave = started.authorisation
        seconds = min(max(time.time() - started.started_at, 0.0), leave.seconds)
        return Failure(
            config=leave.config,
            attempt=leave.attempt,
            kind=FailureKind.LOST,
            message="mlcd ended before the trial did",
            seconds=seconds,
            usd=started.usd_per_hour.for_seconds(seconds),
        )

    # ---- verdict and run

    def _conclude(self, stopped: str) -> Plan | None:
        ledger = self._ledger()
        choice = self.strategy.recommend(self.problem, ledger.history, ledger.left())
        if choice is not None and self.strategy.guarded:
            measured = {trial.config for trial in ledger.history.measured}
            if choice.config not in measured or isinstance(ledger.authorise_run(choice), Refusal):
                choice = None
        self.store.set_verdict(
            self.run_id,
            search_seconds=ledger.elapsed_seconds,
            stopped=stopped,
            choice=choice,
            naive=self._compare(ledger.history),
            relaxations=() if choice else relaxations(ledger),
        )
        self._tell(SearchEnded(stopped=stopped, choice=choice, money=self._money(ledger)))
        return choice

    def _finish(self, choice: Plan | None) -> None:
        record = self.store.record(self.run_id)
        if choice is None:
            history = record.history
            status = Status.INFEASIBLE if not len(history) else Status.NOTHING_FITS
            if len(history) and not history.measured:
                status = Status.ALL_FAILED
            self.store.end_run(self.run_id, status, None)
            return
        attempt = self._begin_final(choice)
        if attempt is None:
            self.store.end_run(self.run_id, Status.NOTHING_FITS, None)
            return
        try:
            final = self._train(choice, record)
        except LeaseFailed as failed:
            usd = self.problem.price(choice.config).for_seconds(failed.seconds) if failed.billed else ZERO
            final = FinalRun(seconds=failed.seconds, usd=usd, is_done=False)
            self.store.end_run(self.run_id, Status.RUN_FAILED, final, attempt=attempt)
            return
        goal = self.problem.goal
        paid = self._ledger()
        over_time = goal.deadline_seconds is not None and self._ended_at(record, final) > goal.deadline_seconds
        over_money = goal.budget is not None and paid.spent + final.usd > goal.budget
        status = Status.OVERRAN if over_time or over_money else Status.DONE
        self.store.end_run(self.run_id, status, final, attempt=attempt)

    def _begin_final(self, choice: Plan) -> int | None:
        """The training's attempt, authorised and written down; None when it does not fit any more.

        A training that died with mlcd is charged on a real cloud; a simulated one is simply run again.
        """
        before = self.store.final_in_flight(self.run_id)
        if before is not None and self.cloud.simulated:
            return before.authorisation.attempt
        self._settle_lost_final()
        leave = self._ledger().authorise_run(choice)
        if isinstance(leave, Refusal):
            return None
        attempt = 1 + len(self.store.record(self.run_id).lost)
        self.store.start_final(self.run_id, replace(leave, attempt=attempt), time.time())
        return attempt

    def _settle_lost_final(self) -> None:
        """Charge a real training that is not running any more for the time that went by."""
        before = self.store.final_in_flight(self.run_id)
        if before is None or self.cloud.simulated:
            return
        leave = before.authorisation
        seconds = min(max(time.time() - before.started_at, 0.0), leave.seconds)
        lost = FinalRun(seconds=seconds, usd=self.problem.price(leave.config).for_seconds(seconds), is_done=False)
        self.store.lose_final(self.run_id, leave.attempt, lost)

    def _ended_at(self, record: RunRecord, final: FinalRun) -> float:
        """Seconds from the first start to the training's end."""
        return record.search_seconds + final.seconds if self.cloud.simulated else self._elapsed()

    def _train(self, choice: Plan, record: RunRecord) -> FinalRun:
        """The final run to its end, watched."""
        work, price = self.problem.work_samples, self.problem.price(choice.config)
        before = Progress(0.0, 0.0)
        with self.cloud.lease(choice.config, attempt=1, purpose=Purpose.RUN) as lease:
            self._tell(RunProgress(config=choice.config, fraction=0.0, money=self._run_money(record, ZERO, 0.0)))
            for point in lease.progress():
                if point.samples >= work:
                    share = (work - before.samples) / (point.samples - before.samples)
                    seconds = before.seconds + share * (point.seconds - before.seconds)
                    break
                before = point
                money = self._run_money(record, price.for_seconds(point.seconds), point.seconds)
                self._tell(RunProgress(config=choice.config, fraction=point.samples / work, money=money))
            else:
                raise LeaseFailed(FailureKind.ERROR, "the job ended before its work was done", seconds=before.seconds)
        usd = price.for_seconds(seconds)
        self._tell(RunProgress(config=choice.config, fraction=1.0, money=self._run_money(record, usd, seconds)))
        return FinalRun(seconds=seconds, usd=usd)

    def _compare(self, history: History) -> tuple[Naive, ...]:
        """What the naive choices would have taken: as measured where they were tried, else as the model expects."""
        by_config = {trial.config: trial for trial in history.measured}
        model = speed_model(self.problem, history) if len(history.measured) <= MODEL_TRIALS else None
        answers = []
        for label, config in self.naive:
            trial = by_config.get(config)
            if trial is None and model is None:
                continue
            if trial is None and model is not None:
                row = self.problem.space.index[config]
                speed = self.problem.work_samples / math.exp(model.log_seconds[row])
                trial = Measurement(
                    config=config,
                    attempt=1,
                    samples_per_second=speed * self.problem.stretch_of(config),
                    relative_error=float(model.variance[row]) ** 0.5,
                    iterations=1,
                    startup_seconds=0.0,
                    seconds=0.0,
                    usd=ZERO,
                )
            if trial is not None:
                answers.append(Naive(label=label, plan=Plan.of(self.problem, trial), measured=config in by_config))
        return tuple(answers)

    # ---- accounts

    def _ledger(self) -> Ledger:
        return Ledger(
            problem=self.problem,
            history=History(tuple(row.trial for row in self._rows)),
            spent=Usd(sum(row.trial.usd.micros for row in self._rows)) + self._lost_usd(),
            elapsed_seconds=self._elapsed(),
            guarded=self.strategy.guarded,
        )

    def _lost_usd(self) -> Usd:
        """What trainings cost that died with mlcd; none on a simulated cloud."""
        if self.cloud.simulated:
            return ZERO
        return sum((run.usd for run in self.store.record(self.run_id).lost), ZERO)

    def _elapsed(self) -> float:
        """Since the first start: simulated time, or the wall clock with all downtime."""
        if self.cloud.simulated:
            return simulated_elapsed(tuple(self._rows))
        first = self.store.first_start(self.run_id)
        return 0.0 if first is None else max(time.time() - first, 0.0)

    def _with_open(self, ledger: Ledger, started: Sequence[StartedTrial]) -> Ledger:
        return Ledger(
            problem=ledger.problem,
            history=ledger.history,
            spent=ledger.spent,
            elapsed_seconds=ledger.elapsed_seconds,
            open=tuple(s.authorisation for s in started),
            guarded=ledger.guarded,
        )

    def _money(self, ledger: Ledger) -> Money:
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

    def _run_money(self, record: RunRecord, usd: Usd, seconds: float) -> Money:
        goal, spent = self.problem.goal, self._ledger().spent + usd
        elapsed = record.search_seconds + seconds
        return Money(
            spent=spent,
            reserved=ZERO,
            left=None if goal.budget is None else goal.budget - spent,
            elapsed_seconds=elapsed,
            reserved_seconds=0.0,
            seconds_left=None if goal.deadline_seconds is None else goal.deadline_seconds - elapsed,
        )

    def _tell(self, event: Event) -> None:
        self.observer(event)
