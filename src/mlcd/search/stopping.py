"""How the paper's rivals stop: at a small expected improvement or, if they keep limits, when the ledger refuses."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from mlcd.problem import Problem
from mlcd.trial.plan import Remaining
from mlcd.trial.trial import History, Suggestion

Suggest = Callable[[Problem, History, Remaining, int], tuple[Suggestion, ...]]


def suggest_in_time(
    suggest: Suggest, start: int, *, problem: Problem, history: History, remaining: Remaining, count: int
) -> tuple[Suggestion, ...]:
    """What `suggest` would try if it ignored limits, up to the first trial that the ledger would refuse.

    The first `start` trials come from the allowed ones: they are not choices yet.
    """
    if len(history.tried) < start or not history.measured:
        return suggest(problem, history, remaining, count)
    kept = []
    for suggestion in suggest(problem, history, _with_all_allowed(remaining), count):
        if not remaining.allowed[problem.space.index[suggestion.config]]:
            break
        kept.append(suggestion)
    return tuple(kept)


def ledger_ended_it(suggest: Suggest, problem: Problem, history: History, remaining: Remaining) -> bool:
    """Whether `suggest` would continue if the ledger allowed it."""
    return not remaining.allowed.any() or bool(suggest(problem, history, _with_all_allowed(remaining), 1))


def small_gain_ending(name: str, history: History, *, steps: int, threshold: float) -> str:
    """The ending of a strategy that stops after `steps` trials or at a small expected improvement."""
    if len(history.tried) >= steps:
        return f"all {steps} trials of {name} were made"
    return f"the expected improvement is under {threshold:.0%} of the best"


def _with_all_allowed(remaining: Remaining) -> Remaining:
    """The same limits with every trial allowed, for a strategy that ignores the ledger."""
    return replace(remaining, allowed=np.ones_like(remaining.allowed))
