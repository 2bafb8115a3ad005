"""What $20 more would bring, of a run that has ended: in a sentence, with nothing tried and nothing spent.

Also what a whole training on other functions would take: both ask the model what it expects after the run's epochs.
"""

from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from mlcd.deciders.account import Accounts
from mlcd.epoch_ledger import EpochLedger
from mlcd.findings.what_if import MORE_USD, NOTHING_BETTER, WhatIf, more_budget, what_if
from mlcd.goal import Objective
from mlcd.models.experience import prior_from_runs
from mlcd.run.kind import Kind
from mlcd.run.run import EpochRun, Run, SearchRun
from mlcd.run.step import Role
from mlcd.schedulers.epoch_forecast import EpochForecast
from mlcd.schedulers.planning import PLANNING
from mlcd.trial.epoch import LEAST_SHARE, Fleet
from mlcd.trial.plan import Plan, tie
from mlcd.units import Usd, format_seconds, percent_text

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
    found = what_if(run, budget=budget, deadline_seconds=deadline, next_trial=False)
    told, equal = more_budget(found), _equal_text(run, choice, found)
    if equal:
        told = told.replace(NOTHING_BETTER, equal)
    more, _ = _more_startable(run, budget)
    if not told or not more:
        return told
    told = told.replace(NOTHING_BETTER, f"of what was measured, nothing would be better than {choice.config}.")
    what = "one more configuration" if more == 1 else f"{more} more configurations"
    return f"{told} The search could try {what}; what they would bring is not known."


def _equal_text(run: SearchRun, choice: Plan, found: WhatIf) -> str:
    """Which one that does not fit is a little better than the choice, so little that it counts as equal; "" if none."""
    problem, value = run.problem, choice.value(run.problem)
    plans = [each.plan for each in found.options if not each.fits and each.plan.value(problem) < value]
    best = min(plans, key=lambda plan: plan.value(problem), default=None)
    if best is None or best.value(problem) * (1 + tie(problem)) < value:
        return ""
    better = {Objective.TIME: "faster", Objective.COST: "cheaper", Objective.KNEE: "better"}[problem.goal.minimize]
    noise = f"differences below {percent_text(tie(problem))} count as equal"
    return f"nothing. {best.config} would be only {percent_text(1 - best.value(problem) / value)} {better}: {noise}."


def _of_server(run: SearchRun, budget: Usd) -> str:
    """A budget pays for load tests and verifications: whether it kept some from being made."""
    more, untried = _more_startable(run, budget)
    if not untried:
        return f"{MORE_USD} more: nothing. Every configuration was load-tested."
    if not more:
        return (
            f"{MORE_USD} more: nothing. The budget kept no load test from being made; the search ended: {run.stopped}."
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

    def __str__(self) -> str:
        return f"{format_seconds(self.seconds)} for {self.usd} on {self.fleet}"


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
        faster = "no more expensive choice of functions and memory is expected to be faster"
        return f"{MORE_USD} more: nothing. {left} of the budget remain, and {faster}."
    return f"{MORE_USD} more: about {with_more}, instead of {now}, as the model expects after these epochs."


def fleet_choices(run: EpochRun) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(numbers of functions, memory sizes) that `fleet_text` knows of, smallest first; none without epochs."""
    if not run.status.is_final or not run.epochs:
        return (), ()
    fleets = _forecast(run, run.problem.goal.budget).fleets
    functions, memory_mb = (sorted({int(each) for each in of}) for of in (fleets.functions, fleets.memory_mb))
    return tuple(functions), tuple(memory_mb)


def fleet_text(run: EpochRun, *, functions: int | None = None, memory_mb: int | None = None) -> str:
    """What a whole training would take on fleets with this many functions, or this much memory, beside the best of all.

    As the model expects it after this run's epochs, within the run's limits. "" before the end, and without epochs.
    """
    if not run.status.is_final or not run.epochs:
        return ""
    best, here = _best(run, run.problem.goal.budget), _best(run, run.problem.goal.budget, functions, memory_mb)
    least_mb = _forecast(run, run.problem.goal.budget).smallest_mb
    if here is None and memory_mb is not None and memory_mb < least_mb:
        known = "how much memory a training needs is known only after its first epoch"
        return f"No training starts with less than {least_mb:,.0f} MB, half of the largest size: {known}."
    if here is None or best is None:
        return "The model expects none of them to reach the target within the limits."
    if here.fleet == best.fleet:
        return f"It is the best that the model expects: {here} for a whole training."
    return f"For a whole training, the model expects {here}, against {best}."


def _fastest(run: EpochRun, budget: Usd) -> _Training | None:
    """The fastest whole training on one fleet, whatever the goal is; None if there is none within the budget."""
    goal = replace(run.problem.goal, minimize=Objective.TIME)
    return _best(replace(run, problem=replace(run.problem, goal=goal)), budget)


def _best(
    run: EpochRun, budget: Usd | None, functions: int | None = None, memory_mb: int | None = None
) -> _Training | None:
    """The best whole training on one fleet whose expected cost, with its last epoch's margin, is within the budget.

    functions, memory_mb  only fleets with these; None: all
    None if there is none.
    """
    forecast, goal = _forecast(run, budget), run.problem.goal
    fleets, model = forecast.fleets, forecast.model
    epochs = np.maximum(model.epochs_left / model.usual_gain(fleets.functions), LEAST_SHARE)
    usd = fleets.usd * (epochs - 1 + PLANNING.last_price)
    seconds = fleets.seconds * epochs
    can = fleets.payable & (epochs <= run.problem.max_epochs)
    can &= usd <= (np.inf if budget is None else budget.dollars)
    can &= seconds <= (np.inf if goal.deadline_seconds is None else goal.deadline_seconds)
    can &= True if functions is None else fleets.functions == functions
    can &= True if memory_mb is None else fleets.memory_mb == memory_mb
    if not can.any():
        return None
    best = int(np.where(can, goal.values(seconds, fleets.usd * epochs), np.inf).argmin())
    return _Training(
        fleet=fleets.fleet(best),
        seconds=float(fleets.seconds[best] * epochs[best]),
        usd=Usd.of(f"{float(fleets.usd[best] * epochs[best]):.6f}"),
    )


def _forecast(run: EpochRun, budget: Usd | None) -> EpochForecast:
    """What is expected of a whole training on each fleet, from this run's epochs."""
    problem = replace(run.problem, goal=replace(run.problem.goal, budget=budget))
    prior = prior_from_runs(
        [run.epochs],
        samples=problem.samples,
        puts=problem.puts_per_function,
        target_loss=problem.target_loss,
        first_loss=problem.first_loss,
    )
    remaining = EpochLedger(problem=problem).remaining()
    return EpochForecast.of(problem, (), remaining, prior, least_share=LEAST_SHARE)
