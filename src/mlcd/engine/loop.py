"""The only loop: ask the decider, record, start, settle; until the decider ends the run.

A step starts only after the ledger has authorised it and the journal has recorded it. A run that is killed at any
instant continues from the journal: simulated steps in flight are run again with the same outcome; real ones are charged
for the time that has passed, or adopted if they ended while mlcd was down.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from typing import Generic

from mlcd.deciders.decision import Conclude, Decider, End, P
from mlcd.engine.clock import Clock, Moments, SimulatedClock, WallClock, read_moment
from mlcd.engine.journal import Journal, NoJournal
from mlcd.engine.performer import Performer, Situation
from mlcd.engine.trials import cancelled
from mlcd.errors import Interrupted
from mlcd.events import Event, Observer, SearchEnded, StepEnded, StepStarted, Warned, ignore
from mlcd.run.attempt import Attempt, Ending
from mlcd.run.findings import Findings
from mlcd.run.kind import Kind
from mlcd.run.run import Run
from mlcd.run.step import Outcome, Request, Role, Step
from mlcd.trial.outcome import Status
from mlcd.units import ZERO


@dataclass(kw_only=True)
class Engine(Generic[P]):
    """Drives one run from its current state to its end.

    run       its current state; always up to date
    findings  what reports will say of the ended run, computed once and stored with it
    clock     None: real time, or simulated time where the performer is simulated
    moments   reads the clocks of this machine
    search_only  whether to stop when a search has chosen, before the training: the run is then SEARCHED
    """

    run: Run[P]
    decider: Decider[P]
    performer: Performer[P]
    journal: Journal = field(default_factory=NoJournal)
    observer: Observer = ignore
    findings: Callable[[Run[P]], Findings | None] = lambda _run: None
    clock: Clock | None = None
    moments: Moments = read_moment
    search_only: bool = False
    _stop: threading.Event = field(default_factory=threading.Event, init=False)
    _pending_events: SimpleQueue[Event] = field(default_factory=SimpleQueue, init=False)
    _clock: Clock = field(init=False)

    def __post_init__(self) -> None:
        real = WallClock(moments=self.moments)
        self._clock = self.clock or (SimulatedClock() if self.performer.simulated else real)

    def drive(self) -> Run[P]:
        """Continue until the run has ended. A run that has already ended is only returned.

        Raises Interrupted on Ctrl-C, after recording everything paid for; and what the decider and performer raise.
        """
        if self.run.status.is_final:
            return self.run
        try:
            if self._has_searched():
                return self.run
            if self.run.status in (Status.INTERRUPTED, Status.SEARCHED):
                self._set_status(Status.RUNNING)
            self._report_clocks()
            self.performer.restore(self.run)
            self._record_held()
            self._settle_in_flight(interrupted=False)
            while not self.run.status.is_final:
                self.advance()
                if self._has_searched():
                    self._set_status(Status.SEARCHED)
                    break
        except KeyboardInterrupt as error:
            self._stop.set()
            self.run = self.journal.reread(self.run)  # Ctrl-C may have come between a write and its copy in memory
            if self.run.status.is_final:
                return self.run
            self._record_held()
            self._settle_in_flight(interrupted=True)
            self._set_status(Status.INTERRUPTED)
            raise Interrupted(
                f"interrupted; {self._kept()}: `mlcd resume {self.run.run_id}` continues the run"
            ) from error
        return self.run

    def _kept(self) -> str:
        """What is kept of a run that was interrupted, and what has to be done again."""
        last = self.run.attempts[-1] if self.run.attempts else None
        if last is not None and last.ending is Ending.INTERRUPTED:
            if self.run.kind is Kind.SERVE:
                return "every load test that has ended is kept, and the verification is repeated"
            if last.reached_samples <= 0:
                return "what the trials measured is kept, but the training saved no checkpoint and starts again"
            return "what the trials measured is kept, and the training continues from its checkpoint"
        return "every step that has ended is kept, and what ran is repeated"

    def _has_searched(self) -> bool:
        """Whether only the training is left, and not asked for."""
        verdict = self.run.verdict
        if not self.search_only or verdict is None or verdict.choice is None:
            return False
        return not self.run.attempts and self.run.finished_trial is None

    def advance(self) -> None:
        """Make and carry out one decision. For drivers that stop between decisions; otherwise call `drive`."""
        decision = self.decider.next(self.run, self._elapsed())
        if isinstance(decision, End):
            self._end(decision)
        elif isinstance(decision, Conclude):
            verdict = decision.verdict
            self.journal.conclude(self.run.run_id, verdict)
            self.run = replace(self.run, verdict=verdict)
            money = self.decider.money(self.run, self._elapsed())
            is_done = self.run.finished_trial is not None
            self.observer(
                SearchEnded(
                    stopped=verdict.stopped, choice=verdict.choice, money=money, is_done=is_done, watch=verdict.watch
                )
            )
        else:
            self._run_round(self._recorded(decision.requests))

    # ---- starting

    def _recorded(self, requests: Sequence[Request]) -> tuple[Step, ...]:
        """Record the whole round at once, so that a run that is killed and resumed has the same rounds as any other."""
        steps = self.run.steps
        elapsed, now = self._elapsed(), self.moments()
        round_number = 1 + max((step.round for step in steps), default=0)
        started = tuple(
            Step(
                number=number,
                round=round_number,
                role=request.role,
                authorisation=request.authorisation,
                reason=request.reason,
                usd_per_hour=request.usd_per_hour,
                watch=request.watch,
                started_seconds=elapsed,
                started_at=now.wall_seconds,
                started_moment=now,
            )
            for number, request in enumerate(requests, start=len(steps) + 1)
        )
        self.journal.start(self.run.run_id, started)
        for step in started:
            self.run = self.run.with_started([step])
            self.observer(StepStarted(step=step, money=self.decider.money(self.run, elapsed)))
        return started

    def _run_round(self, started: Sequence[Step]) -> None:
        """Run the steps in parallel; record each as soon as it ends."""
        situation = self._situation()
        if len(started) == 1:
            self._settle(started[0], self.performer.perform(started[0], situation))
            return
        if self.performer.simulated and any(step.role is Role.TRAINING for step in started):
            self._run_simulated_beside(started, situation)
            return
        with ThreadPoolExecutor(max_workers=len(started)) as pool:
            waiting: dict[Future[Outcome], Step] = {
                pool.submit(self.performer.perform, step, situation): step for step in started
            }
            try:
                for future in as_completed(tuple(waiting)):
                    outcome = future.result()
                    self._settle(waiting.pop(future), outcome)
                    if isinstance(outcome, Attempt) and not outcome.ending.is_begun_again:
                        situation.useless.set()
            except BaseException:
                self._stop.set()  # the other steps end at their next progress report and release their nodes
                for future in wait(waiting).done:
                    if future.exception() is None:  # it had ended by then and was paid for, so it is kept
                        self._settle(waiting[future], future.result())
                raise

    def _run_simulated_beside(self, started: Sequence[Step], situation: Situation[P]) -> None:
        """Trials, then the training beside them for as long as they took; all are recorded once that is known."""
        trials = [step for step in started if step.role is not Role.TRAINING]
        outcomes = {step.number: self.performer.perform(step, situation) for step in trials}
        run = self.run
        for number, outcome in outcomes.items():
            run = run.with_ended(number, outcome)
        training = next(step for step in started if step.role is Role.TRAINING)
        stretch = self.performer.perform(training, replace(situation, latest=lambda: run))
        for step in trials:
            outcome = outcomes[step.number]
            over = isinstance(stretch, Attempt) and not stretch.ending.is_begun_again
            if over and outcome.seconds > stretch.seconds:
                moved_usd = max(outcome.usd - step.price.for_seconds(outcome.seconds), ZERO)
                outcome = cancelled(step, stretch.seconds, moved_usd)
            self._settle(step, outcome)
        self._settle(training, stretch)

    def _situation(self) -> Situation[P]:
        """What steps that start now know. Events of parallel steps and trials are passed on once a step has ended."""
        in_flight = self.run.in_flight
        has_trials = any(step.role is Role.TRIAL for step in in_flight)
        return Situation(
            run=replace(self.run, steps=self.run.ended),
            elapsed_seconds=lambda: self._clock.elapsed_seconds(self.run),
            tell=self._pending_events.put if has_trials or len(in_flight) > 1 else self.observer,
            stop=self._stop,
            moment=self.moments,
            latest=lambda: self.run,
        )

    # ---- settling

    def _settle(self, step: Step, outcome: Outcome, *, at_least: float = 0.0) -> None:
        """Record the outcome, with when: not before `at_least` seconds of the run's clock."""
        now = self.moments()
        at = step.started_seconds + outcome.seconds if self.performer.simulated else max(self._elapsed(), at_least)
        ended = step.ended(outcome, seconds=at, moment=now)
        self.journal.end(self.run.run_id, ended, self.performer.calls() if step.role is Role.EPOCH else ())
        self.run = self.run.with_ended(step.number, outcome, seconds=at, moment=now)
        elapsed = self._elapsed()
        self.observer(
            StepEnded(
                step=ended,
                incumbent=self.decider.incumbent(self.run, elapsed),
                money=self.decider.money(self.run, elapsed),
            )
        )
        while not self._pending_events.empty():
            self.observer(self._pending_events.get())

    def _settle_in_flight(self, *, interrupted: bool) -> None:
        """Run simulated steps again, or leave them to the next session if interrupted; charge or adopt real ones."""
        if self.performer.simulated:
            if self.run.in_flight and not interrupted:
                self._run_round(self.run.in_flight)
            return
        for step in self.run.in_flight:
            situation = replace(self._situation(), stop=threading.Event())  # the run's own is set after Ctrl-C
            outcome = self.performer.lost(step, situation, interrupted=interrupted)
            # What is charged for counts as time too, where the clocks cannot tell how much passed.
            self._settle(step, outcome, at_least=step.started_seconds + outcome.seconds)

    def _record_held(self) -> None:
        """Record that a training still held its nodes after its last stretch, so that this time is charged too.

        mlcd ends between two rounds: the next stretch was not decided, and the nodes are given back.
        """
        held = self.run.open_stretch
        if self.performer.simulated or held is None or held.usd_per_hour is None or self.run.in_flight:
            return
        spent, ended = held.final, held.ended_moment or self.moments()
        most = replace(
            held.authorisation,
            usd=max(held.authorised_usd - spent.usd, ZERO),
            seconds=max(held.authorised_seconds - spent.seconds, 0.0),
        )
        step = Step(
            number=1 + len(self.run.steps),
            round=1 + max(step.round for step in self.run.steps),
            role=Role.TRAINING,
            authorisation=most,
            reason="",
            usd_per_hour=held.usd_per_hour,
            started_seconds=self._elapsed() if held.ended_seconds is None else held.ended_seconds,
            started_at=ended.wall_seconds,
            started_moment=ended,
        )
        self.journal.start(self.run.run_id, (step,))
        self.run = self.run.with_started([step])

    def _report_clocks(self) -> None:
        """Tell the user what is assumed about the time since the run was last worked on, where clocks disagree."""
        note = self._clock.note(self.run) if isinstance(self._clock, WallClock) else ""
        if note:
            self.observer(Warned(text=note))

    # ---- the end

    def _end(self, end: End) -> None:
        verdict = end.verdict or self.run.verdict
        if end.verdict is not None:
            self.journal.conclude(self.run.run_id, end.verdict)
        over = replace(self.run, verdict=verdict, status=end.status)
        findings = self.findings(over)
        self.journal.finish(over.run_id, end.status, findings)
        self.run = replace(over, findings=findings)

    def _set_status(self, status: Status) -> None:
        self.journal.set_status(self.run.run_id, status)
        self.run = replace(self.run, status=status)

    def _elapsed(self) -> float:
        return self._clock.elapsed_seconds(self.run)
