"""The account after each trial, replayed from the run: spent, reserved, and the best configuration so far."""

from collections.abc import Sequence
from dataclasses import replace

from mlcd.deciders.account import Accounts
from mlcd.findings.outlook import skipped_texts
from mlcd.ledger import Ledger
from mlcd.models.remaining import remaining_problem
from mlcd.run.findings import AccountStep
from mlcd.run.run import SearchRun
from mlcd.run.step import Role, Step
from mlcd.trial.trial import History
from mlcd.units import ZERO


def keeps_reserve(run: SearchRun, steps: Sequence[AccountStep]) -> bool:
    """Whether every trial left room for training on the incumbent, as a guarded strategy's trials do.

    steps  the account with a reserve
    """
    if run.problem.beside:  # the reserve changes with the training, within a round too
        return not run.has_overrun
    goal = run.problem.goal
    before: AccountStep | None = None
    rows = run.trials
    for at, row in enumerate(rows):
        if at and row.round != rows[at - 1].round:
            before = steps[at - 1]
        usd = row.authorised_usd + (before.spent + before.reserved if before else ZERO)
        seconds = row.started_seconds + row.authorised_seconds + (before.reserved_seconds if before else 0.0)
        if goal.budget is not None and usd > goal.budget:
            return False
        if goal.deadline_seconds is not None and seconds > goal.deadline_seconds * (1 + 1e-9):
            return False
    return True


def account(run: SearchRun, *, guarded: bool) -> tuple[AccountStep, ...]:
    """A step for each trial, in order. Computed with the ledger's own rule, so that it shows what the ledger saw.

    guarded  whether the strategy kept a reserve
    """
    if run.problem.beside:
        return tuple(_beside(run, row, guarded=guarded) for row in run.trials)
    steps = []
    spent, elapsed = ZERO, 0.0
    rows = run.trials
    before = Ledger(problem=run.problem, history=History(), guarded=guarded).remaining().allowed
    reused = tuple(each.trial for each in run.header.reused)
    trials = tuple(row.trial for row in rows)
    for count, row in enumerate(rows, start=1):
        spent += row.trial.usd
        elapsed = max(elapsed, row.started_seconds + row.trial.seconds)
        history = History((*reused, *trials[:count]))
        problem = remaining_problem(run.problem, history)
        ledger = Ledger(problem=problem, history=history, spent=spent, elapsed_seconds=elapsed, guarded=guarded)
        best = ledger.incumbent()
        allowed = ledger.remaining().allowed
        skipped = skipped_texts(ledger, before & ~allowed) if guarded else ()
        before = allowed
        steps.append(
            AccountStep(
                trial=row.number,
                spent=spent,
                reserved=best.worst_usd if best and guarded else ZERO,
                elapsed_seconds=elapsed,
                reserved_seconds=best.worst_seconds if best and guarded else 0.0,
                incumbent=best,
                skipped=skipped,
            )
        )
    return tuple(steps)


def _beside(run: SearchRun, row: Step, *, guarded: bool) -> AccountStep:
    """The account after one trial of a run whose training runs beside its trials."""
    steps = tuple(
        step if step.round < row.round or step.role is Role.TRIAL else replace(step, outcome=None)
        for step in run.steps
        if step.round < row.round
        or (step.round == row.round and (step.role is not Role.TRIAL or step.number <= row.number))
    )
    then = replace(run, steps=steps, verdict=None)
    found = Accounts(guarded=guarded).at(then, then.step_seconds)
    money = found.money()
    return AccountStep(
        trial=row.number,
        spent=money.spent,
        reserved=money.reserved,
        elapsed_seconds=money.elapsed_seconds,
        reserved_seconds=money.reserved_seconds,
        incumbent=found.incumbent(),
    )
