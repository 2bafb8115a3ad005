"""The money of a run at this moment: spent, committed, reserved and remaining, by the ledger's own rule."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from mlcd.deciders.account import Accounts
from mlcd.errors import BadInput
from mlcd.run.kind import Kind
from mlcd.run.run import Run, SearchRun
from mlcd.search.registry import strategy_class
from mlcd.trial.plan import Plan
from mlcd.units import ZERO, Usd


@dataclass(frozen=True, slots=True, kw_only=True)
class MoneyNow:
    """spent + committed + reserved + remaining = budget, where there is a budget.

    committed  the most that the steps in flight may cost
    reserved   the upper bound of the run on the incumbent; $0 once the training has begun, and without an incumbent
    remaining  None without a budget; less than $0 if it was exceeded
    incumbent  what would be trained on, or served with, if the search ended now
    """

    spent: Usd
    committed: Usd
    reserved: Usd
    remaining: Usd | None
    budget: Usd | None
    incumbent: Plan | None = None


def money_now(run: Run[Any]) -> MoneyNow:
    """The account of a run in its current state."""
    budget = run.problem.goal.budget
    spent = run.spent
    committed = Usd(sum(step.authorised_usd.micros for step in run.in_flight))
    reserved, incumbent = ZERO, None
    if run.kind is not Kind.SERVERLESS and not run.status.is_final:
        account = Accounts().at(cast(SearchRun, run), run.step_seconds)
        incumbent = account.incumbent()
        if run.verdict is None and incumbent is not None and _keeps_reserve(run):
            reserved = account.money().reserved
        if run.problem.beside and account.training is not None:  # what is reserved is what it was authorised for
            committed = Usd(sum(each.usd.micros for each in account.open))
    remaining = None if budget is None else budget - spent - committed - reserved
    return MoneyNow(
        spent=spent, committed=committed, reserved=reserved, remaining=remaining, budget=budget, incumbent=incumbent
    )


def _keeps_reserve(run: Run[Any]) -> bool:
    """Whether the run's strategy keeps the limits: only rivals on simulated clouds do not."""
    if not run.simulated:
        return True
    with suppress(BadInput):  # an object, or a plug-in that is not installed
        made = strategy_class(run.strategy.partition(":")[0], serving=run.kind is Kind.SERVE)
        with suppress(TypeError):
            return bool(made().guarded)
    return True
