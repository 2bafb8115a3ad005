"""What a trial was worth: what came of it, against the best before it, in the goal's unit."""

from mlcd.goal import Objective
from mlcd.problem import Problem
from mlcd.trial.plan import Plan, tie
from mlcd.trial.trial import Measurement
from mlcd.units import ZERO, Usd, format_seconds


def worth(
    problem: Problem,
    trial: Measurement,
    before: Plan | None,
    after: Plan | None,
    best: Measurement | None,
    *,
    spent: Usd,
    elapsed_seconds: float,
) -> str:
    """What came of the trial, and what that was worth for its price: in words, in the goal's unit.

    before, after  the best that fits, before and after it
    best           the trial of the latter, if it is known
    spent, elapsed_seconds  after it
    """
    plan = Plan.of(problem, trial)
    taken = f"in {format_seconds(trial.seconds)}" if problem.goal.minimize is Objective.TIME else f"for {trial.usd}"
    found = f"measured {taken}"
    if problem.work_known:
        found += f": {format_seconds(plan.seconds)} and {plan.usd} to train"
    if after is None:
        return f"{found}; does not fit the limits"
    if after.config != trial.config:
        rival = after if best is None else Plan.of(problem, best)
        if problem.work_known and plan.value(problem) < rival.value(problem) * (1 - tie(problem)):
            fit = _misfit(problem, plan, spent, elapsed_seconds)
            return f"{found}; {_BETTER[problem.goal.minimize]} than {after.config}, but {fit}"
        return f"{found}; no better than {after.config}"
    if before is None:
        return f"{found}; the first that fits the limits"
    if before is after:
        return f"{found}; the best so far"
    if problem.goal.minimize is Objective.TIME:
        saved = format_seconds(max(before.seconds - after.seconds, 0.0))
    elif problem.goal.minimize is Objective.COST:
        saved = str(max(before.usd - after.usd, ZERO))
    else:
        saved = f"{max(1 - after.value(problem) / before.value(problem), 0.0):.0%} of time x cost"
    return f"{found}; saves {saved} of the training"


def _misfit(problem: Problem, plan: Plan, spent: Usd, elapsed_seconds: float) -> str:
    """Why a plan is not the best that fits, though better: it breaks a limit, or is not certain to keep it."""
    goal = problem.goal
    if not problem.keeps_work and not problem.beside:  # else a part of it is done, and less is needed
        if goal.budget is not None and spent + plan.usd > goal.budget:
            return f"would cost {spent + plan.usd} with the search: over the budget"
        if goal.deadline_seconds is not None and elapsed_seconds + plan.seconds > goal.deadline_seconds:
            return "would end after the deadline"
    return "not certain to fit the limits"


_BETTER = {Objective.TIME: "faster", Objective.COST: "cheaper", Objective.KNEE: "better"}
