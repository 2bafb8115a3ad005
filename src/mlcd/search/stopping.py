"""How the paper's rivals end: by a small expected improvement, and, made to keep limits, when the ledger refuses."""

from collections.abc import Callable

import numpy as np

from mlcd.problem import Problem
from mlcd.trial.plan import Left
from mlcd.trial.trial import History, Suggestion

Suggest = Callable[[Problem, History, Left, int], tuple[Suggestion, ...]]


def suggest_in_time(
    suggest: Suggest, start: int, *, problem: Problem, history: History, left: Left, count: int
) -> tuple[Suggestion, ...]:
    """What `suggest` would try without looking at limits, up to the first that the ledger would refuse.

    Its first `start` trials are drawn from what is allowed: they are not choices yet.
    """
    if len(history.tried) < start or not history.measured:
        return suggest(problem, history, left, count)
    kept = []
    for suggestion in suggest(problem, history, _everything(left), count):
        if not left.allowed[problem.space.index[suggestion.config]]:
            break
        kept.append(suggestion)
    return tuple(kept)


def ledger_ended_it(suggest: Suggest, problem: Problem, history: History, left: Left) -> bool:
    """Whether `suggest` would go on if the ledger let it."""
    return not left.allowed.any() or bool(suggest(problem, history, _everything(left), 1))


def small_gain_ending(name: str, history: History, *, steps: int, threshold: float) -> str:
    """The words for a strategy that counts its trials and watches its expected improvement."""
    if len(history.tried) >= steps:
        return f"all {steps} trials of {name} were made"
    return f"the expected improvement is under {threshold:.0%} of the best"


def _everything(left: Left) -> Left:
    """The same limits with every trial allowed: what a strategy sees that does not look at the ledger."""
    return Left(usd=left.usd, seconds=left.seconds, allowed=np.ones_like(left.allowed), guarded=left.guarded)
