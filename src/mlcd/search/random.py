"""Random search: a fixed number of configurations drawn at random (paper, Fig. 12)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mlcd.problem import Problem
from mlcd.search.candidates import open_rows
from mlcd.search.strategy import MeasuredStrategy, at_least
from mlcd.trial.plan import Remaining
from mlcd.trial.trial import History, Suggestion


@dataclass(frozen=True, kw_only=True)
class Random(MeasuredStrategy):
    """`steps` trials, drawn without replacement. Ignores limits."""

    name: ClassVar[str] = "random"
    steps: int = 8

    def __post_init__(self) -> None:
        at_least(1, steps=self.steps)

    @property
    def guarded(self) -> bool:
        """False: it ignores limits."""
        return False

    def ending(self, problem: Problem, history: History, remaining: Remaining) -> str:  # noqa: ARG002
        """All `steps` were made."""
        return f"all {len(history.tried)} random trials were made"

    def suggest(self, problem: Problem, history: History, remaining: Remaining, count: int) -> tuple[Suggestion, ...]:
        """The next in the seed's random order."""
        rows = np.flatnonzero(open_rows(problem, history, remaining))
        count = min(count, self.steps - len(history.tried), len(rows))
        if count <= 0:
            return ()
        chosen = np.random.default_rng([self.seed, len(history)]).choice(rows, size=count, replace=False)
        return tuple(Suggestion(config=problem.space.configs[row], reason="drawn at random") for row in chosen)
