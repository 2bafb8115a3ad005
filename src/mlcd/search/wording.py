"""What strategies that weigh a trial against its price tell the user."""

import numpy as np

from mlcd.problem import Problem
from mlcd.search.candidates import open_rows
from mlcd.search.memory_rules import MemoryRules
from mlcd.trial.plan import Plan, Remaining, best_fitting
from mlcd.trial.trial import History
from mlcd.units import Usd, format_seconds


def ending(problem: Problem, history: History, remaining: Remaining, *, memory: MemoryRules = "named") -> str:
    """Why no trial is suggested: the limits, what is kept for the best so far, or no trial that pays for itself."""
    incumbent = remaining.training or best_fitting(problem, history, remaining)
    if len(history.tried) == len(problem.space):
        return "every configuration was tried"
    if not open_rows(problem, history, remaining, memory=memory).any():
        if incumbent is None:
            return "no further trial fits in what remains"
        more = _more_for_a_trial(problem, history, remaining, incumbent)
        return f"what is kept to train on {incumbent.config} leaves no room for another trial{more}"
    if incumbent is None:
        return "nothing that may still be tried is likely to fit"
    within = " within the limits" if remaining.is_limited else ""
    return f"no further trial is expected to pay for itself{within}"


def amount(problem: Problem, value: float) -> str:
    """A value in the goal's unit, as text."""
    if problem.goal.unit == "s":
        return format_seconds(value)
    return f"${value:.2f}" if problem.goal.unit == "USD" else f"{value:.3g} {problem.goal.unit}"


def _more_for_a_trial(problem: Problem, history: History, remaining: Remaining, incumbent: Plan) -> str:
    """How much of each limit is missing for the smallest trial not made yet, as text."""
    untried = np.array([config not in history.tried for config in problem.space])
    missing = []
    if remaining.usd is not None:
        short = int(problem.worst_trial_micros[untried].min()) - (remaining.usd - incumbent.worst_usd).micros
        missing += [f"{Usd(short)}"] if short > 0 else []
    if remaining.seconds is not None:
        short_seconds = float(problem.worst_trial_seconds[untried].min()) - (
            remaining.seconds - incumbent.worst_seconds
        )
        missing += [format_seconds(short_seconds)] if short_seconds > 0 else []
    return f": {' and '.join(missing)} more would let the search continue" if missing else ""
