"""The only loop: ask the strategy, authorise, measure, store; then choose and train.

Only this room starts a trial, and only after the ledger has authorised its worst case and the store has written that
down. Killed at any instant, a run goes on from the store: on a simulated cloud trials in flight are measured again
(they give the same answer), on a real one they are charged for their elapsed time as failed.
"""

import math
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from dataclasses import dataclass, field, replace
from queue import SimpleQueue

from mlcd.clouds.provider import Cloud
from mlcd.engine.accounts import Accounts
from mlcd.engine.training import Training
from mlcd.errors import BadInput, Interrupted
from mlcd.events import Observer, SearchEnded, TrialFinished, TrialStarted, Warned, ignore
from mlcd.ledger import Authorisation, Ledger, Refusal
from mlcd.models.speed import speed_model
from mlcd.problem import Problem
from mlcd.profiler.measure import measure
from mlcd.relaxation import relaxations
from mlcd.search.strategy import Elastic, Strategy
from mlcd.space import Config
from mlcd.store.store import StartedTrial, Store
from mlcd.trial.outcome import Status
from mlcd.trial.plan import Plan
from mlcd.trial.record import Naive, RunRecord
from mlcd.trial.trial import Failure, FailureKind, History, Measurement, Suggestion, Trial
from mlcd.units import ZERO

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
    _said: SimpleQueue[str] = field(default_factory=SimpleQueue, init=False)
    _accounts: Accounts = field(init=False)

    def __post_init__(self) -> None:
        self._accounts = Accounts(
            run_id=self.run_id,
            problem=self.problem,
            cloud=self.cloud,
            guarded=self.strategy.guarded,
            store=self.store,
        )

    def run(self) -> RunRecord:
        """Search, choose, train. Raises Interrupted on Ctrl-C; the run can then be resumed."""
        with self.store.lock(self.run_id):
            record = self.store.record(self.run_id)
            if record.status.is_final:
                return record
            self._accounts.rows = list(record.rows)
            self._accounts.earlier = list(record.earlier)
            try:
                if record.status is Status.INTERRUPTED:
                    self.store.set_status(self.run_id, Status.RUNNING)
                choice = record.choice if record.stopped else self._search()
                self._finish(choice)
            except KeyboardInterrupt as error:
                self._stop.set()
                self._settle_in_flight()
                self._training(record).settle_lost()
                self.store.set_status(self.run_id, Status.INTERRUPTED)
                raise Interrupted(
                    f"interrupted; nothing paid for is lost: `mlcd resume {self.run_id}` goes on"
                ) from error
            return self.store.record(self.run_id)

    # ---- search

    def _search(self) -> Plan | None:
        self._settle_in_flight()
        while True:
            ledger = self._accounts.ledger()
            round_number = 1 + max((row.round for row in self._accounts.rows), default=0)
            started, stopped = self._next_round(ledger, round_number)
            if not started:
                return self._conclude(stopped)
            self._run_round(started)

    def _next_round(self, ledger: Ledger, round_number: int) -> tuple[list[StartedTrial], str]:
        """The trials to run side by side now, authorised and written down; or none, and why."""
        history, problem = ledger.history, ledger.problem
        # Where trials are part of the training, each goes on from the last: one at a time.
        one = not problem.work_known or problem.batching is not None
        room = min(1 if one else self.parallel, problem.max_trials - len(history))
        if room <= 0:
            return [], f"the limit of {problem.max_trials} trials is reached"
        if not problem.work_known and history.measured and problem.target is None:
            raise BadInput(
                "the job did not say how much work there is: give job.samples, or mlcd.steps(loader, total=...)"
            )
        if _is_met(problem, history):
            return [], "the target was met in a trial"
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
            answer = _beside(ledger, started).authorise(suggestion.config)
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
            money = self._accounts.money(_beside(ledger, started[:count]))
            config = trial.authorisation.config
            self.observer(TrialStarted(number=trial.number, config=config, reason=trial.reason, money=money))

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
            run_id=self.run_id,
            metric=self.problem.target.metric if self.problem.target else "",
            known_noise=self._accounts.history.noise_scale,
            cancelled=self._stop.is_set,
            warned=self._said.put,
        )

    def _settle(self, started: StartedTrial, trial: Trial) -> None:
        self.store.end_trial(self.run_id, started.number, trial)
        row = started.ended(trial)
        self._accounts.rows = sorted([*self._accounts.rows, row], key=lambda r: r.number)
        ledger = self._accounts.ledger()
        self.observer(TrialFinished(row=row, incumbent=ledger.incumbent(), money=self._accounts.money(ledger)))
        while not self._said.empty():
            self.observer(Warned(text=self._said.get()))

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
            reached_samples=self._accounts.saved_samples,
        )

    # ---- verdict and run

    def _conclude(self, stopped: str) -> Plan | None:
        accounts = self._accounts
        ledger = accounts.ledger()
        choice = self.strategy.recommend(ledger.problem, ledger.history, ledger.left())
        if choice is not None and not ledger.problem.work_known and ledger.problem.goal.is_limited:
            choice, stopped = None, f"{stopped}; {untold(ledger.problem)}"
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
            relaxations=() if choice or not ledger.problem.work_known else relaxations(ledger),
        )
        self.observer(SearchEnded(stopped=stopped, choice=choice, money=accounts.money(ledger)))
        return choice

    def _finish(self, choice: Plan | None) -> None:
        record = self.store.record(self.run_id)
        if choice is not None:
            self._training(record).run(choice)
            return
        history = record.history
        status = Status.INFEASIBLE if not len(history) else Status.NOTHING_FITS
        if len(history) and not history.measured:
            status = Status.ALL_FAILED
        self.store.end_run(self.run_id, status, None)

    def _training(self, record: RunRecord) -> Training:
        elastic = self.strategy if isinstance(self.strategy, Elastic) else None
        return Training(
            accounts=self._accounts, record=record, observer=self.observer, stop=self._stop, elastic=elastic
        )

    def _compare(self, history: History) -> tuple[Naive, ...]:
        """What the naive choices would have taken: as measured where they were tried, else as the model expects."""
        by_config = {trial.config: trial for trial in history.measured}
        problem = self._accounts.problem
        model = speed_model(problem, history) if len(history.measured) <= MODEL_TRIALS else None
        answers = []
        for label, config in self.naive:
            trial = by_config.get(config)
            if trial is None and model is None:
                continue
            if trial is None and model is not None:
                row = problem.space.index[config]
                speed = problem.work_of(config) / math.exp(model.log_seconds[row])
                trial = Measurement(
                    config=config,
                    attempt=1,
                    samples_per_second=speed * problem.stretch_of(config),
                    relative_error=float(model.variance[row]) ** 0.5,
                    iterations=1,
                    startup_seconds=0.0,
                    seconds=0.0,
                    usd=ZERO,
                )
            if trial is not None:
                answers.append(Naive(label=label, plan=Plan.of(problem, trial), measured=config in by_config))
        return tuple(answers)


def untold(problem: Problem) -> str:
    """Why the end of a training cannot be promised."""
    metric = problem.target.metric if problem.target else "metric"
    return (
        f"when the target will be met cannot be told from how the {metric} went in the trials: give job.epochs, the"
        " most it may take, or longer trials (search.trial.minutes)"
    )


def _is_met(problem: Problem, history: History) -> bool:
    target = problem.target
    return target is not None and any(target.is_met_by(p.metric) for trial in history.measured for p in trial.learned)


def _beside(ledger: Ledger, started: Sequence[StartedTrial]) -> Ledger:
    """The ledger with these trials on their way."""
    return replace(ledger, open=tuple(s.authorisation for s in started))
