"""What it took, what is left, and what not searching would have taken; and how sure a prediction is."""

import math
from dataclasses import dataclass

from mlcd.models.standing import standing
from mlcd.run.attempt import Attempt
from mlcd.run.run import SearchRun
from mlcd.run.verdict import Naive
from mlcd.trial.outcome import Status
from mlcd.trial.plan import Plan, margin_sigmas
from mlcd.units import ZERO, Usd

Z95 = 1.96

EXACT = 1e-6
"""Times that differ by less are one time: what a table without noise gives, rounding aside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """Search and run together against a naive deployment's run alone; negative where the naive one takes less.

    breaks     the limits that the naive run alone would break: "budget", "deadline"
    intervals  of what the naive run takes, where it is predicted and its spread is known
    """

    naive: Naive
    usd: Usd
    seconds: float
    breaks: tuple[str, ...] = ()
    intervals: "Intervals | None" = None

    @property
    def warning(self) -> str:
        """`would break the deadline`; empty where it would keep the limits."""
        if not self.breaks:
            return ""
        return f"would {'' if self.naive.measured else 'probably '}break the {' and the '.join(self.breaks)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The accounts of a run, None where there is nothing to say.

    earlier           attempts at the training that were begun again: paid, and in the totals
    run_is_predicted  True where the training has not ended: the run and the totals are then the prediction
    run_failed        True where it ended before its work was done
    cap, left         the goal's limits, and what the total leaves of them (negative: broken)
    """

    trials: int
    failed: int
    search_seconds: float
    search_usd: Usd
    earlier: tuple[Attempt, ...]
    run_seconds: float | None
    run_usd: Usd | None
    run_is_predicted: bool
    run_failed: bool
    total_seconds: float
    total_usd: Usd
    cap_seconds: float | None
    cap_usd: Usd | None
    left_seconds: float | None
    left_usd: Usd | None
    savings: tuple[Saving, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """The 95% intervals of a plan's mean time and money, (low, high)."""

    seconds: tuple[float, float]
    usd: tuple[Usd, Usd]

    @property
    def is_exact(self) -> bool:
        """Whether there is nothing between the ends that anyone could read."""
        return self.seconds[1] <= self.seconds[0] * (1 + EXACT)


def receipt(record: SearchRun) -> Receipt:
    """The receipt; the run is the one that was trained, else the one predicted for the choice, else none.

    A choice that was given up (nothing fits any more after a training was lost) is not predicted.
    """
    done: tuple[float, Usd] | None = None
    if record.final is not None:
        done = (record.final.seconds, record.final.usd)
    elif record.choice is not None and record.status is not Status.NOTHING_FITS:
        done = (record.choice.seconds, record.choice.usd)
    failed = record.final is not None and not record.final.is_done
    total_seconds = gone_seconds(record) + (done[0] if done else 0.0)
    total_usd = gone_usd(record) + (done[1] if done else ZERO)
    goal = record.problem.goal
    return Receipt(
        trials=len(record.trials),
        failed=len(record.history.failures),
        search_seconds=record.search_seconds,
        search_usd=record.search_usd,
        earlier=record.earlier,
        run_seconds=done[0] if done else None,
        run_usd=done[1] if done else None,
        run_is_predicted=record.final is None and done is not None,
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
                breaks=broken_limits(record, naive.plan),
                intervals=None if naive.measured else intervals(record, naive.plan),
            )
            for naive in (record.naive if done and not failed else ())
        ),
    )


def gone_usd(record: SearchRun) -> Usd:
    """What the search and the lost trainings cost: no longer there for the training."""
    return sum((run.usd for run in record.earlier), record.search_usd)


def gone_seconds(record: SearchRun) -> float:
    """What the search and the lost trainings took."""
    return record.search_seconds + sum(run.seconds for run in record.earlier)


def broken_limits(record: SearchRun, plan: Plan) -> tuple[str, ...]:
    """The limits that a run of `plan` alone, without a search, would break as expected."""
    goal = record.problem.goal
    broken = ["budget"] if goal.budget is not None and plan.usd > goal.budget else []
    if goal.deadline_seconds is not None and plan.seconds > goal.deadline_seconds:
        broken.append("deadline")
    return tuple(broken)


def intervals(record: SearchRun, plan: Plan) -> Intervals | None:
    """The plan's 95% intervals, from its trial's error; for an untried plan from its upper bound, else None.

    seconds x exp(-+ 1.96 x relative error): the speed's interval, as the upper bound at the assurance is.
    """
    error = _relative_error(record, plan)
    if error is None:
        return None
    factor = math.exp(Z95 * error)
    low, high = plan.seconds / factor, plan.seconds * factor
    price = record.problem.price(plan.config)
    return Intervals(seconds=(low, high), usd=(price.for_seconds(low), price.for_seconds(high)))


def _relative_error(record: SearchRun, plan: Plan) -> float | None:
    for trial in reversed(record.history.measured):
        if trial.config == plan.config:
            return math.hypot(trial.relative_error, standing(record.problem, record.history).work_error)
    sigmas = margin_sigmas(record.problem.assurance)
    if sigmas <= 0 or plan.worst_seconds <= plan.seconds:
        return None
    return math.log(plan.worst_seconds / plan.seconds) / sigmas
