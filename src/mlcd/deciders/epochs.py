"""A serverless run: before every epoch ask the scheduler, authorise, start; until the target loss is reached."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mlcd.deciders.decision import Decision, End, Start
from mlcd.epoch_ledger import EpochLedger
from mlcd.functions import FunctionProblem
from mlcd.models.epochs import PRIOR, EpochPrior
from mlcd.models.loss_trend import epochs_at_best
from mlcd.run.authorisation import Authorisation, Refusal
from mlcd.run.money import Money
from mlcd.run.run import EpochRun
from mlcd.run.step import Request, Role
from mlcd.run.verdict import PlainInstance, Relaxation, Verdict
from mlcd.schedulers.epoch_forecast import EpochForecast, relaxation
from mlcd.schedulers.scheduler import Scheduler
from mlcd.trial.epoch import LEAST_SHARE, Epoch, FailedEpoch, Fleet
from mlcd.trial.outcome import Status
from mlcd.trial.plan import Plan
from mlcd.units import ZERO, Usd

TIMEOUT_FACTOR = 6.0
"""An epoch is stopped when it takes this many times as long as the slowest so far, scaled to its fleet ..."""
LEAST_TIMEOUT_SECONDS = 60.0
"""... but never before this."""
MOST_FAILURES = 3
"""After this many failed epochs in a row the run ends: more money would not help."""


def no_comparison(epochs: tuple[Epoch, ...]) -> Sequence[PlainInstance]:  # noqa: ARG001 - the signature of `compare`
    """No comparison, for drivers that need none."""
    return ()


@dataclass(frozen=True, kw_only=True)
class EpochDecider:
    """One epoch after another, each on the functions that the scheduler chooses.

    compare  predicts what the same training would take on plain instances, for the verdict
    prior    what earlier runs showed: for the limits that would have sufficed where nothing fits
    explains  whether each epoch is stored with what is expected of it and of the rest, which takes one more fit
    """

    scheduler: Scheduler
    compare: Callable[[tuple[Epoch, ...]], Sequence[PlainInstance]] = no_comparison
    prior: EpochPrior = PRIOR
    explains: bool = False

    def next(self, run: EpochRun, elapsed_seconds: float) -> Decision:
        """See Decider."""
        ledger = epoch_ledger(run, elapsed_seconds)
        over = self._end_if_over(run, ledger)
        if over is not None:
            return over
        remaining = ledger.remaining()
        fleet = self.scheduler.decide(run.problem, ledger.epochs, remaining)
        if fleet is None:
            return self._end_before_target(run, ledger, self.scheduler.ending(run.problem, ledger.epochs, remaining))
        answer = _authorised(ledger, fleet)
        if isinstance(answer, Refusal):
            return self._end_before_target(run, ledger, f"an epoch of {fleet} was refused: {answer.reason}")
        reason = ""
        if self.explains:
            forecast = EpochForecast.of(run.problem, ledger.epochs, remaining, self.prior, least_share=LEAST_SHARE)
            reason = forecast.expected_text(run.problem, ledger.epochs, fleet)
        return Start(requests=(Request(role=Role.EPOCH, authorisation=answer, reason=reason),))

    def money(self, run: EpochRun, elapsed_seconds: float) -> Money:
        """See Decider; nothing is reserved."""
        ledger = epoch_ledger(run, elapsed_seconds)
        return Money(
            spent=ledger.spent,
            reserved=ZERO,
            left=ledger.usd_left,
            elapsed_seconds=ledger.seconds,
            reserved_seconds=0.0,
            seconds_left=ledger.seconds_left,
        )

    def incumbent(self, run: EpochRun, elapsed_seconds: float) -> Plan | None:  # noqa: ARG002 - see Decider
        """None: every epoch makes a new choice."""
        return None

    # ---- the end

    def _end_if_over(self, run: EpochRun, ledger: EpochLedger) -> End | None:
        """The end of the run if its target is reached or can no longer be reached; else None."""
        problem, epochs = run.problem, ledger.epochs
        if epochs and epochs[-1].loss <= problem.target_loss:
            # A deadline also counts the time between epochs, which needs no authorisation.
            # Time after the last epoch, such as until a resume, does not.
            deadline, ended = run.problem.goal.deadline_seconds, run.epoch_steps[-1].ended_seconds
            late = deadline is not None and min(ledger.seconds, ledger.seconds if ended is None else ended) > deadline
            stopped = f"the loss of {epochs[-1].loss:.4g} has reached {problem.target_loss:.4g}"
            return self._end(run, Status.OVERRAN if late else Status.DONE, stopped)
        if not ledger.epochs_left:
            lowest = min(epoch.loss for epoch in epochs)
            most = "1 epoch" if problem.max_epochs == 1 else f"{problem.max_epochs} epochs"
            stopped = f"the limit of {most} is reached; the lowest loss was {lowest:.4g}"
            return self._end(run, Status.NOTHING_FITS, stopped)
        stopped = _out_of_reach(problem, ledger)
        if stopped:
            lowest = min(epoch.loss for epoch in epochs)
            way = Relaxation(text=f"workload.target_loss: {lowest:.4g} was reached")
            return self._end(run, Status.NOTHING_FITS, stopped, relaxations=(way,))
        failures = _failures_in_a_row(run)
        if failures and failures[-1].hopeless:
            return self._end(run, Status.RUN_FAILED, f"the model cannot be trained: {failures[-1].message}")
        if len(failures) >= MOST_FAILURES:
            status = Status.NOTHING_FITS if epochs else Status.ALL_FAILED
            stopped = f"{len(failures)} epochs failed one after another; the last: {failures[-1].message}"
            return self._end(run, status, stopped)
        return None

    def _end_before_target(self, run: EpochRun, ledger: EpochLedger, stopped: str) -> End:
        """The end before the target: nothing was ever started, or what remains does not suffice."""
        status = Status.NOTHING_FITS if ledger.epochs or ledger.failed else Status.INFEASIBLE
        if ledger.failed and not ledger.epochs:
            status = Status.ALL_FAILED
        remaining = ledger.remaining()
        smallest = self.scheduler.smallest_budget(run.problem, ledger.epochs, remaining)
        budget = run.problem.goal.budget
        told = smallest if smallest is not None and budget is not None and smallest > budget else None
        forecast = EpochForecast.of(run.problem, ledger.epochs, remaining, self.prior, least_share=LEAST_SHARE)
        relaxations = forecast.relaxations(run.problem, ledger.epochs, remaining)
        if told is not None and all(way.deadline_seconds is None for way in relaxations):
            relaxations = (relaxation(budget=told.dollars),)
        return self._end(run, status, stopped, told, relaxations)

    def _end(
        self,
        run: EpochRun,
        status: Status,
        stopped: str,
        smallest_budget: Usd | None = None,
        relaxations: tuple[Relaxation, ...] = (),
    ) -> End:
        epochs = run.epochs
        if run.has_overrun:  # a cloud did not keep what was authorised
            status = Status.OVERRAN
        instances = tuple(self.compare(epochs)) if epochs else ()
        return End(
            status=status,
            verdict=Verdict(
                stopped=stopped, smallest_budget=smallest_budget, relaxations=relaxations, instances=instances
            ),
        )


def _out_of_reach(problem: FunctionProblem, ledger: EpochLedger) -> str:
    """Why the loss will not reach its target within `max_epochs`; empty while it may."""
    done, points = 0.0, []
    for epoch in ledger.epochs:
        done += epoch.fleet.share
        points.append((done, epoch.loss))
    needed = epochs_at_best(points, problem.target_loss, limit=problem.max_epochs)
    if needed is None or needed <= ledger.epochs_left:
        return ""
    lowest, allowed = min(epoch.loss for epoch in ledger.epochs), f"max_epochs allows {ledger.epochs_left:.3g}"
    if needed == math.inf:
        return f"the loss of {lowest:.4g} falls no more: {problem.target_loss:.4g} is out of reach"
    fall = (lowest - problem.target_loss) / needed
    return (
        f"the loss of {lowest:.4g} falls by at most {fall:.2g} an epoch now: {problem.target_loss:.4g} would take at"
        f" least {needed:,.0f} more epochs, and {allowed}"
    )


def epoch_ledger(run: EpochRun, elapsed_seconds: float) -> EpochLedger:
    """The ledger between two epochs."""
    return EpochLedger(
        problem=run.problem, epochs=run.epochs, failed=run.failed_epochs, elapsed_seconds=elapsed_seconds
    )


def first_fleet(problem: FunctionProblem, scheduler: Scheduler) -> Fleet | None:
    """The fleet of the first epoch; None if nothing fits. Raises BadInput if the scheduler cannot serve the goal."""
    return scheduler.decide(problem, (), EpochLedger(problem=problem).remaining())


def _authorised(ledger: EpochLedger, fleet: Fleet) -> Authorisation | Refusal:
    """Authorisation for as long as the budget pays for, or until the timeout if that is shorter."""
    answer = ledger.authorise(fleet)
    if isinstance(answer, Refusal) or not ledger.epochs:
        return answer
    usual = max(
        epoch.seconds
        * max(1.0, fleet.share / epoch.fleet.share)
        * max(1.0, epoch.fleet.functions / fleet.functions)
        * max(1.0, epoch.fleet.memory_mb / fleet.memory_mb)
        for epoch in ledger.epochs
    )
    timeout = max(TIMEOUT_FACTOR * usual, LEAST_TIMEOUT_SECONDS)
    return answer if timeout >= answer.seconds else ledger.authorise(fleet, timeout)


def _failures_in_a_row(run: EpochRun) -> tuple[FailedEpoch, ...]:
    """The epochs that failed since the last one that completed or that mlcd itself lost."""
    failures: list[FailedEpoch] = []
    for step in run.epoch_steps:
        outcome = step.epoch
        if isinstance(outcome, FailedEpoch) and not outcome.lost:
            failures.append(outcome)
        else:
            failures.clear()
    return tuple(failures)
