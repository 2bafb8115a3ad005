"""What $20 more would bring, of a run that has ended: in a sentence, with nothing tried and nothing spent."""

from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from mlcd.deciders.account import Accounts
from mlcd.epoch_ledger import EpochLedger
from mlcd.findings.what_if import MORE_USD, NOTHING_BETTER, more_budget, what_if
from mlcd.goal import Objective
from mlcd.models.experience import prior_from_runs
from mlcd.run.kind import Kind
from mlcd.run.run import EpochRun, Run, SearchRun
from mlcd.run.step import Role
from mlcd.schedulers.epoch_forecast import EpochForecast
from mlcd.schedulers.planning import PLANNING
from mlcd.trial.epoch import LEAST_SHARE, Fleet
from mlcd.trial.plan import Plan
from mlcd.units import Usd, format_seconds

NO_BUDGET = f"{MORE_USD} more: nothing. The goal has no budget, so that money limited nothing."


def more_budget_text(run: Run[Any]) -> str:
    """`$20 more: ...`; "" while a search goes on, and of a training without a choice."""
    goal = run.problem.goal
    if goal.budget is None:
        return NO_BUDGET if run.status.is_final else ""
    if run.kind is Kind.SERVERLESS:
        epochs = cast(EpochRun, run)
        return _of_functions(epochs, goal.budget) if run.status.is_final and epochs.epochs else ""
    if run.kind is Kind.SERVE:
        return _of_server(cast(SearchRun, run), goal.budget) if run.verdict is not None else ""
    if run.choice is None:
        return ""
    return _of_training(cast(SearchRun, run), run.choice, goal.budget)


def _of_training(run: SearchRun, choice: Plan, budget: Usd) -> str:
    """What would be chosen of what was measured, and whether the search could go on."""
    deadline = run.problem.goal.deadline_seconds
    told = more_budget(what_if(run, budget=budget, deadline_seconds=deadline, next_trial=False))
    more, _ = _more_startable(run, budget)
    if not told or not more:
        return told
    told = told.replace(NOTHING_BETTER, f"of what was measured, nothing would be better than {choice.config}.")
    what = "one more configuration" if more == 1 else f"{more} more configurations"
    return f"{told} The search could try {what}; what they would bring is not known."


def _of_server(run: SearchRun, budget: Usd) -> str:
    """A budget pays for load tests and verifications: whether it kept some from being made."""
    more, untried = _more_startable(run, budget)
    if not untried:
        return f"{MORE_USD} more: nothing. Every configuration was load-tested."
    if not more:
        return (
            f"{MORE_USD} more: nothing. Money kept no configuration from a load test; the search ended: {run.stopped}."
        )
    return (
        f"{MORE_USD} more: load tests of {more} of {untried} untried configurations, which the budget does not pay"
        " for. What they would show is not known."
    )


def _more_startable(run: SearchRun, budget: Usd) -> tuple[int, int]:
    """(untried configurations that only the larger budget lets try, all untried ones)."""
    untried = np.array([config not in run.history.tried for config in run.problem.space])
    more = _startable(run, budget + MORE_USD) & ~_startable(run, budget) & untried
    return int(more.sum()), int(untried.sum())


def _startable(run: SearchRun, budget: Usd) -> NDArray[np.bool_]:
    """Which trials might have started when the search ended, under this budget."""
    trials = tuple(step for step in run.steps if step.role is Role.TRIAL and step.outcome is not None)
    problem = replace(run.problem, goal=replace(run.problem.goal, budget=budget))
    then = replace(run, problem=problem, steps=trials, verdict=None, findings=None)
    ended = max((step.started_seconds + step.trial.seconds for step in trials), default=0.0)
    return Accounts().at(then, ended).ledger.remaining().allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class _Training:
    """A whole training on one fleet, as the model expects it after this run's epochs."""

    fleet: Fleet
    seconds: float
    usd: Usd


def _of_functions(run: EpochRun, budget: Usd) -> str:
    """What another fleet would take with more money, or whether the money would then suffice."""
    with_more = _fastest(run, budget + MORE_USD)
    if not run.is_target_reached:
        needed = run.verdict.smallest_budget if run.verdict is not None else None
        if needed is not None and needed > budget + MORE_USD:
            return f"{MORE_USD} more: not the target. A budget of about {needed} would probably suffice."
        if needed is None or with_more is None:
            return f"{MORE_USD} more: nothing. Money did not end it: {run.stopped}."
        return f"{MORE_USD} more: the target, probably. A budget of about {needed} would suffice."
    left = budget - run.total_usd
    if run.problem.goal.minimize is Objective.COST:
        return f"{MORE_USD} more: nothing. The least cost was the goal, and {left} of the budget remain."
    now = _fastest(run, budget)
    if with_more is None or now is None or with_more.seconds >= now.seconds:
        return f"{MORE_USD} more: nothing. {left} of the budget remain, and no dearer fleet is expected to be faster."
    before = f"{format_seconds(now.seconds)} for {now.usd} on {now.fleet}"
    after = f"{format_seconds(with_more.seconds)} for {with_more.usd} on {with_more.fleet}"
    return f"{MORE_USD} more: about {after}, instead of {before}, as the model expects after these epochs."


def _fastest(run: EpochRun, budget: Usd) -> _Training | None:
    """The fastest whole training on one fleet whose expected cost, with its last epoch's margin, is within the budget.

    None if there is none.
    """
    problem = replace(run.problem, goal=replace(run.problem.goal, budget=budget))
    prior = prior_from_runs(
        [run.epochs],
        samples=problem.samples,
        puts=problem.puts_per_function,
        target_loss=problem.target_loss,
        first_loss=problem.first_loss,
    )
    remaining = EpochLedger(problem=problem).remaining()
    forecast = EpochForecast.of(problem, (), remaining, prior, least_share=LEAST_SHARE)
    fleets, model = forecast.fleets, forecast.model
    epochs = np.maximum(model.epochs_left / model.usual_gain(fleets.functions), LEAST_SHARE)
    usd = fleets.usd * (epochs - 1 + PLANNING.last_price)
    can = fleets.payable & (usd <= budget.dollars) & (epochs <= problem.max_epochs)
    if not can.any():
        return None
    best = int(np.where(can, fleets.seconds * epochs, np.inf).argmin())
    return _Training(
        fleet=fleets.fleet(best),
        seconds=float(fleets.seconds[best] * epochs[best]),
        usd=Usd.of(f"{float(fleets.usd[best] * epochs[best]):.6f}"),
    )
