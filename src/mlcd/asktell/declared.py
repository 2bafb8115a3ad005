"""A problem from declared knobs, and the strategies that search it."""

from datetime import timedelta

import numpy as np

from mlcd.asktell.arguments import positive, share, whole
from mlcd.asktell.bounds import check_problem
from mlcd.asktell.objective import SearchObjective
from mlcd.asktell.prices import Prices, prices_of
from mlcd.errors import BadInput, SpecError
from mlcd.goal import Goal
from mlcd.jobs.resolved_job import DEFAULT_NOISE
from mlcd.problem import Problem, TrialPolicy
from mlcd.search.registry import KNOBS
from mlcd.search.registry import strategy as strategy_by_name
from mlcd.search.strategy import Strategy
from mlcd.space.declared import Knobs, Where, space_of
from mlcd.spec.mapping import tree
from mlcd.spec.quantity import budget as read_budget
from mlcd.spec.quantity import deadline as read_deadline
from mlcd.units import Usd

DEFAULT_TRIALS = 30
MOST_HETERBO_ROWS = 2000
"""HeterBO stores the distances of all pairs of counts, and of all pairs of choices."""


def declared_problem(
    *,
    knobs: Knobs,
    objective: SearchObjective,
    where: Where | None,
    work_samples: float | None,
    usd_per_hour: Prices,
    trial_seconds: float | None,
    budget: Usd | str | float | None,
    deadline: str | timedelta | None,
    max_trials: int | None,
    noise: float | None,
) -> tuple[Problem, bool]:
    """The problem, and whether money is counted. Raises BadInput naming the argument."""
    limits = {"budget": budget, "deadline": deadline}
    goal = Goal(
        minimize=objective.goal,
        budget=None if budget is None else read_budget(tree(budget, path="budget")),
        deadline_seconds=None if deadline is None else read_deadline(None)(tree(deadline, path="deadline")),
    )
    custom = objective.is_custom_value
    for name, given in (("work_samples", work_samples), ("noise", noise)):
        if custom and given is not None:
            raise BadInput(f"{name}: only for objective time, cost or knee, not {objective}")
    if not custom and work_samples is None:
        raise BadInput(f"work_samples: objective {objective} needs the number of samples to process")
    limited = [name for name, given in limits.items() if given is not None]
    if trial_seconds is None and (limited or not custom):
        asked_by = limited[0] if limited else f"objective {objective}"
        raise BadInput(f"trial_seconds: {asked_by} needs the longest time that a trial may take")
    seconds = 1.0 if trial_seconds is None else positive("trial_seconds", trial_seconds)
    work = 1.0 if work_samples is None else positive("work_samples", work_samples)
    trials = DEFAULT_TRIALS if max_trials is None else whole("max_trials", max_trials)
    deviation = DEFAULT_NOISE if noise is None else share("noise", noise)
    space = space_of(knobs, where)
    prices, counts_money = prices_of(space, usd_per_hour)
    if not counts_money and (budget is not None or objective in (SearchObjective.COST, SearchObjective.KNEE)):
        asked_by = "budget" if budget is not None else f"objective: {objective}"
        raise BadInput(f"{asked_by}: needs usd_per_hour: without prices, money is not counted")
    problem = _in_bounds(
        Problem(
            name="search",
            work_samples=work,
            space=space,
            goal=goal,
            usd_per_hour=prices,
            trial=TrialPolicy(seconds=seconds, extra_seconds_per_3_nodes=0.0, extension=0.0, watchdog_seconds=0.0),
            max_trials=trials,
            noise=0.0 if custom else deviation,
            verify_seconds=0.0 if custom else None,
        )
    )
    return problem, counts_money


def _in_bounds(problem: Problem) -> Problem:
    try:
        check_problem(problem)
    except ValueError as error:
        raise BadInput(str(error)) from error
    return problem


def declared_strategy(text: str | None, *, seed: int, problem: Problem, objective: SearchObjective) -> Strategy:
    """The strategy of a search over declared knobs. Raises BadInput for one that cannot search them."""
    if text is not None and (not isinstance(text, str) or not text.strip()):
        raise SpecError("must be a strategy's name", field="strategy", value=text, allowed=", ".join(KNOBS))
    try:
        made = strategy_by_name(text or default_strategy(problem, objective), seed=seed, own_knobs=True)
    except BadInput as error:
        raise BadInput(str(error).replace("search.strategy", "strategy", 1)) from error
    if not made.guarded:
        raise SpecError("ignores the limits, so it cannot be asked", field="strategy", value=text)
    if made.name == "heterbo" and objective.is_custom_value:
        raise BadInput(f"strategy: heterbo predicts throughput; with objective {objective} use bayesian")
    if made.name == "heterbo" and not _is_small(problem):
        size = f"{len(problem.space):,} configurations"
        raise BadInput(f"strategy: heterbo takes too much memory for {size} of these knobs; use bayesian")
    return made


def default_strategy(problem: Problem, objective: SearchObjective) -> str:
    """HeterBO for throughput, which it models, unless the space is too large for it; else bayesian."""
    return "bayesian" if objective.is_custom_value or not _is_small(problem) else "heterbo"


def _is_small(problem: Problem) -> bool:
    encoding = problem.space.encoding
    choices, counts = int(encoding.identity.max()) + 1, len(np.unique(encoding.counts, axis=0))
    return max(choices, counts) <= MOST_HETERBO_ROWS
