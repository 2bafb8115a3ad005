"""What a run took, what remains, what it would have taken without a search, and how certain a prediction is."""

import math

from mlcd.findings.spot import spot_use
from mlcd.problem import Problem
from mlcd.run.findings import Z95, Intervals, Receipt, Saving
from mlcd.run.kind import Kind
from mlcd.run.run import SearchRun
from mlcd.trial.outcome import Status
from mlcd.trial.plan import Plan, error_within, margin_sigmas
from mlcd.trial.trial import Failure, FailureKind
from mlcd.units import ZERO, Usd


def receipt(run: SearchRun, remaining: Problem) -> Receipt:
    """The receipt. Its training is the last attempt, else the one predicted for the choice, else none.

    Where a trial did all of the work there is none either, and nothing is predicted.

    No training is predicted for a choice that was given up because nothing fits after a lost training.

    remaining  the problem with the work that remains after the trials
    """
    done: tuple[float, Usd] | None = None
    if run.final is not None:
        done = (run.final.seconds, run.final.usd)
    elif run.finished_trial is not None:
        done = (0.0, ZERO)
    elif run.choice is not None and run.kind is Kind.TRAIN and run.status not in (Status.NOTHING_FITS, Status.OVERRAN):
        done = (run.choice.seconds, run.choice.usd)
    failed = run.final is not None and not run.final.is_done
    total_seconds = run.search_seconds + sum(a.seconds for a in run.earlier) + (done[0] if done else 0.0)
    total_seconds -= run.beside_seconds
    total_usd = sum((a.usd for a in run.earlier), run.search_usd) + (done[1] if done else ZERO)
    goal = run.problem.goal
    return Receipt(
        trials=len(run.trials),
        failed=sum(isinstance(step.trial, Failure) for step in run.trials) - _interrupted(run),
        search_seconds=run.search_seconds,
        search_usd=run.search_usd,
        earlier=run.earlier,
        run_seconds=done[0] if done and run.finished_trial is None else None,
        run_usd=done[1] if done and run.finished_trial is None else None,
        run_is_predicted=run.final is None and done is not None and run.finished_trial is None,
        run_failed=failed,
        total_seconds=total_seconds,
        total_usd=total_usd,
        cap_seconds=goal.deadline_seconds,
        cap_usd=goal.budget,
        left_seconds=None if goal.deadline_seconds is None else goal.deadline_seconds - total_seconds,
        left_usd=None if goal.budget is None else goal.budget - total_usd,
        savings=tuple(
            Saving(
                naive=naive,
                usd=naive.plan.usd - total_usd,
                seconds=naive.plan.seconds - total_seconds,
                breaks=_broken_limits(run, naive.plan),
                intervals=None if naive.measured else intervals(run, remaining, naive.plan),
            )
            for naive in (run.naive if done and not failed else ())
        ),
        beside_seconds=run.beside_seconds,
        interrupted=_interrupted(run),
        data_usd=data_usd(run),
        spot=spot_use(run),
    )


def data_usd(run: SearchRun) -> Usd:
    """What the leases of a run were charged for their data: each that had nodes, once."""
    problem = run.problem
    if not problem.moves:
        return ZERO
    trials = (step.trial for step in run.trials)
    paid = [problem.move_to(trial.config).trial_usd for trial in trials if trial.usd > ZERO]
    return sum((problem.move_to(a.config).usd for a in run.attempts if a.usd > ZERO), sum(paid, ZERO))


def _interrupted(run: SearchRun) -> int:
    """How many trials the user interrupted: they are repeated, and failed at nothing."""
    trials = (step.trial for step in run.trials)
    return sum(isinstance(trial, Failure) and trial.kind is FailureKind.STOPPED for trial in trials)


def _broken_limits(run: SearchRun, plan: Plan) -> tuple[str, ...]:
    """The limits that training on `plan` without a search is expected to break."""
    goal = run.problem.goal
    broken = ["budget"] if goal.budget is not None and plan.usd > goal.budget else []
    if goal.deadline_seconds is not None and plan.seconds > goal.deadline_seconds:
        broken.append("deadline")
    return tuple(broken)


def intervals(run: SearchRun, remaining: Problem, plan: Plan) -> Intervals | None:
    """The plan's 95% intervals, from its trial's error, or from the upper bound of an untried plan; else None.

    seconds x exp(-+ 1.96 x relative error): the interval of the speed, computed like the upper bound at the assurance.
    """
    error = _relative_error(run, remaining, plan)
    if error is None:
        return None
    factor = math.exp(Z95 * error)
    low, high = plan.seconds / factor, plan.seconds * factor
    price = run.problem.price(plan.config)
    moved = plan.moved_usd
    return Intervals(seconds=(low, high), usd=(price.for_seconds(low) + moved, price.for_seconds(high) + moved))


def _relative_error(run: SearchRun, remaining: Problem, plan: Plan) -> float | None:
    for trial in reversed(run.history.measured):
        if trial.config.machine == plan.config.machine and not plan.config.is_spot:
            return math.hypot(trial.relative_error, remaining.work_error_of(plan.config))
    if margin_sigmas(run.problem.assurance) <= 0 or plan.worst_seconds <= plan.seconds:
        return None
    return error_within(run.problem, math.log(plan.worst_seconds / plan.seconds))
