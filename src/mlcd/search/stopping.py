"""How the paper's rivals end: by a small expected improvement, and, made to keep limits, when the ledger refuses."""

from collections.abc import Callable

import numpy as np

from mlcd.problem import Problem
from mlcd.trial.plan import Remaining
from mlcd.trial.trial import History, Suggestion

Suggest = Callable[[Problem, History, Remaining, int], tuple[Suggestion, ...]]


def suggest_in_time(
    suggest: Suggest, start: int, *, problem: Problem, history: History, remaining: Remaining, count: int
) -> tuple[Suggestion, ...]:
    """What `suggest` would try without looking at limits, up to the first that the ledger would refuse.

    Its first `start` trials are drawn from what is allowed: they are not choices yet.
    """
    if len(history.tried) < start or not history.measured:
        return suggest(problem, history, remaining, count)
    kept = []
    for suggestion in suggest(problem, history, _everything(remaining), count):
        if not remaining.allowed[problem.space.index[suggestion.config]]:
            break
        kept.append(suggestion)
    return tuple(kept)


def ledger_ended_it(suggest: Suggest, problem: Problem, history: History, remaining: Remaining) -> bool:
    """Whether `suggest` would go on if the ledger let it."""
    return not remaining.allowed.any() or bool(suggest(problem, history, _everything(remaining), 1))


def small_gain_ending(name: str, history: History, *, steps: int, threshold: float) -> str:
    """The words for a strategy that counts its trials and watches its expected improvement."""
    if len(history.tried) >= steps:
        return f"all {steps} trials of {name} were made"
    return f"the expected improvement is under {threshold:.0%} of the best"


def _everything(remaining: Remaining) -> Remaining:
    """The same limits with every trial allowed: what a strategy sees that does not look at the ledger."""
    return Remaining(
        usd=remaining.usd, seconds=remaining.seconds, allowed=np.ones_like(remaining.allowed), guarded=remaining.guarded
    )
