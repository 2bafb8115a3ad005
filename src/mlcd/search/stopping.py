"""What makes a rival of the paper keep its limits: it chooses as before and ends when the ledger refuses."""

import numpy as np

from mlcd.problem import Problem
from mlcd.trial.plan import Left
from mlcd.trial.trial import Suggestion


def everything(left: Left) -> Left:
    """The same limits with every trial allowed: what a strategy sees that does not look at the ledger."""
    return Left(usd=left.usd, seconds=left.seconds, allowed=np.ones_like(left.allowed), guarded=left.guarded)


def within(suggestions: tuple[Suggestion, ...], problem: Problem, left: Left) -> tuple[Suggestion, ...]:
    """The suggestions up to the first that the ledger would refuse."""
    kept = []
    for suggestion in suggestions:
        if not left.allowed[problem.space.index[suggestion.config]]:
            break
        kept.append(suggestion)
    return tuple(kept)
