"""Exhaustive search: every configuration, or an even selection of them (paper, Fig. 2: 180 of 3,100)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mlcd.problem import Problem
from mlcd.search.candidates import open_rows
from mlcd.search.strategy import MeasuredStrategy, at_least
from mlcd.trial.plan import Remaining
from mlcd.trial.trial import History, Suggestion


@dataclass(frozen=True, kw_only=True)
class Exhaustive(MeasuredStrategy):
    """Tries all configurations in the space's order, or `points` of them, evenly spread. Ignores limits."""

    name: ClassVar[str] = "exhaustive"
    points: int = 0

    def __post_init__(self) -> None:
        at_least(0, points=self.points)

    @property
    def guarded(self) -> bool:
        """False: it ignores limits."""
        return False

    def ending(self, problem: Problem, history: History, remaining: Remaining) -> str:  # noqa: ARG002
        """Everything was tried."""
        return f"all {len(history.tried)} selected configurations were tried"

    def suggest(self, problem: Problem, history: History, remaining: Remaining, count: int) -> tuple[Suggestion, ...]:
        """The next in order."""
        size = len(problem.space)
        wanted = np.zeros(size, dtype=bool)
        wanted[np.linspace(0, size - 1, min(self.points or size, size)).round().astype(int)] = True
        rows = np.flatnonzero(wanted & open_rows(problem, history, remaining))[:count]
        return tuple(
            Suggestion(config=problem.space.configs[row], reason="every configuration is tried") for row in rows
        )
