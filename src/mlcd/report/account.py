"""The account after each trial, replayed from the record: spent, reserved, and the best deployment so far."""

from dataclasses import dataclass

from mlcd.ledger import Ledger
from mlcd.models.standing import standing
from mlcd.run.run import SearchRun
from mlcd.trial.plan import Plan
from mlcd.trial.trial import History
from mlcd.units import ZERO, Usd


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountStep:
    """The account when trial `number` was paid.

    reserved  the incumbent's upper bound; $0 where nothing measured fits, or where the strategy keeps no reserve
    """

    number: int
    spent: Usd
    reserved: Usd
    elapsed_seconds: float
    reserved_seconds: float
    incumbent: Plan | None


def account(record: SearchRun) -> tuple[AccountStep, ...]:
    """A step a trial, in order. Computed with the ledger's own rule, so that it shows what the ledger saw."""
    return _replayed(record, guarded=keeps_reserve(record))


def keeps_reserve(record: SearchRun) -> bool:
    """Whether every trial left room for training on the incumbent, as a guarded strategy's trials do."""
    goal = record.problem.goal
    before: AccountStep | None = None
    steps = _replayed(record, guarded=True)
    for at, row in enumerate(record.trials):
        if at and row.round != record.trials[at - 1].round:
            before = steps[at - 1]
        usd = row.authorised_usd + (before.spent + before.reserved if before else ZERO)
        seconds = row.started_seconds + row.authorised_seconds + (before.reserved_seconds if before else 0.0)
        if goal.budget is not None and usd > goal.budget:
            return False
        if goal.deadline_seconds is not None and seconds > goal.deadline_seconds * (1 + 1e-9):
            return False
    return True


def _replayed(record: SearchRun, *, guarded: bool) -> tuple[AccountStep, ...]:
    steps = []
    spent, elapsed = ZERO, 0.0
    for count, row in enumerate(record.trials, start=1):
        spent += row.trial.usd
        elapsed = max(elapsed, row.started_seconds + row.trial.seconds)
        history = History(tuple(r.trial for r in record.trials[:count]))
        problem = standing(record.problem, history)
        ledger = Ledger(problem=problem, history=history, spent=spent, elapsed_seconds=elapsed, guarded=guarded)
        best = ledger.incumbent()
        steps.append(
            AccountStep(
                number=row.number,
                spent=spent,
                reserved=best.worst_usd if best and guarded else ZERO,
                elapsed_seconds=elapsed,
                reserved_seconds=best.worst_seconds if best and guarded else 0.0,
                incumbent=best,
            )
        )
    return tuple(steps)
