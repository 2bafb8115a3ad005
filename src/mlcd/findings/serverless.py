"""What a training on functions took, and whether a plain instance would have been better."""

import numpy as np

from mlcd.epoch_ledger import EpochLedger
from mlcd.goal import Objective
from mlcd.run.findings import EpochTotal, FunctionReceipt, ServerlessFindings
from mlcd.run.run import EpochRun
from mlcd.run.verdict import PlainInstance
from mlcd.units import ZERO, Usd

MOST_REFUSED = 400
"""Fleets that are stored as refused: a picture does not tell more apart."""


def serverless_findings(run: EpochRun) -> ServerlessFindings:
    """All that reports say of a training on functions beyond its epochs and verdict."""
    return ServerlessFindings(
        receipt=_receipt(run),
        is_target_reached=run.is_target_reached,
        totals=_totals(run),
        better_instance=_better_instance(run),
        refused=_refused(run),
    )


def _receipt(run: EpochRun) -> FunctionReceipt:
    budget = run.problem.goal.budget
    return FunctionReceipt(
        training_seconds=run.epoch_seconds,
        elapsed_seconds=run.wall_seconds,
        total_usd=run.total_usd,
        failed_seconds=sum(epoch.seconds for epoch in run.failed_epochs),
        failed_usd=Usd(sum(epoch.usd.micros for epoch in run.failed_epochs)),
        cap_usd=budget,
        left_usd=None if budget is None else budget - run.total_usd,
        calls=sum(epoch.calls for epoch in run.epochs),
        repeated_calls=sum(epoch.failed for epoch in run.epochs),
    )


def _totals(run: EpochRun) -> tuple[EpochTotal, ...]:
    totals, seconds, usd = [], 0.0, ZERO
    for step in run.epoch_steps:
        seconds, usd = seconds + step.epoch.seconds, usd + step.epoch.usd
        totals.append(EpochTotal(step=step.number, seconds=seconds, usd=usd))
    return tuple(totals)


def _refused(run: EpochRun) -> tuple[tuple[int, int], ...]:
    """Fleets whose epochs no longer fit what is left, if there are limits: at most MOST_REFUSED of them."""
    ledger = EpochLedger(
        problem=run.problem, epochs=run.epochs, failed=run.failed_epochs, elapsed_seconds=run.step_seconds
    )
    rows, columns = np.nonzero(~ledger.remaining().allowed)
    found = [(run.problem.functions[f], run.problem.memory_mb[m]) for f, m in zip(rows, columns, strict=True)]
    return tuple(found[:MOST_REFUSED])


def _better_instance(run: EpochRun) -> PlainInstance | None:
    """Cheaper and no slower; if time is minimised, faster and no more expensive."""
    if not run.is_target_reached:
        return None
    usd, seconds = run.total_usd, run.epoch_seconds
    if run.problem.goal.minimize is Objective.TIME:
        faster = [plan for plan in run.instances if plan.usd <= usd and plan.seconds < seconds]
        return min(faster, key=lambda plan: plan.seconds, default=None)
    cheaper = [plan for plan in run.instances if plan.usd < usd and plan.seconds <= seconds]
    return min(cheaper, key=lambda plan: plan.usd.dollars, default=None)
