"""What it took, what is left, and what not searching would have taken; and how sure a prediction is."""

import math
from dataclasses import dataclass

from mlcd.trial.plan import Plan, margin_sigmas
from mlcd.trial.record import Naive, RunRecord
from mlcd.units import ZERO, Usd

Z95 = 1.96

EXACT = 1e-6
"""Times that differ by less are one time: what a table without noise gives, rounding aside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """Search and run together against a naive deployment's run alone; negative where the naive one takes less."""

    naive: Naive
    usd: Usd
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The accounts of a run, None where there is nothing to say.

    run_is_predicted  True where the training has not ended: the run and the totals are then the prediction
    cap, left         the goal's limits, and what the total leaves of them (negative: broken)
    """

    trials: int
    failed: int
    search_seconds: float
    search_usd: Usd
    run_seconds: float | None
    run_usd: Usd | None
    run_is_predicted: bool
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


def receipt(record: RunRecord) -> Receipt:
    """The receipt; the run is the one that was trained, else the one predicted for the choice, else none."""
    done: tuple[float, Usd] | None = None
    if record.final is not None:
        done = (record.final.seconds, record.final.usd)
    elif record.choice is not None:
        done = (record.choice.seconds, record.choice.usd)
    total_seconds = record.search_seconds + (done[0] if done else 0.0)
    total_usd = record.search_usd + (done[1] if done else ZERO)
    goal = record.problem.goal
    return Receipt(
        trials=len(record.rows),
        failed=len(record.history.failures),
        search_seconds=record.search_seconds,
        search_usd=record.search_usd,
        run_seconds=done[0] if done else None,
        run_usd=done[1] if done else None,
        run_is_predicted=record.final is None and done is not None,
        total_seconds=total_seconds,
        total_usd=total_usd,
        cap_seconds=goal.deadline_seconds,
        cap_usd=goal.budget,
        left_seconds=None if goal.deadline_seconds is None else goal.deadline_seconds - total_seconds,
        left_usd=None if goal.budget is None else goal.budget - total_usd,
        savings=tuple(
            Saving(naive=naive, usd=naive.plan.usd - total_usd, seconds=naive.plan.seconds - total_seconds)
            for naive in (record.naive if done else ())
        ),
    )


def intervals(record: RunRecord, plan: Plan) -> Intervals | None:
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


def _relative_error(record: RunRecord, plan: Plan) -> float | None:
    for trial in reversed(record.history.measured):
        if trial.config == plan.config:
            return trial.relative_error
    sigmas = margin_sigmas(record.problem.assurance)
    if sigmas <= 0 or plan.worst_seconds <= plan.seconds:
        return None
    return math.log(plan.worst_seconds / plan.seconds) / sigmas
