"""What the rivals share: a score for every configuration, and the best scored is tried next."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from mlcd.problem import Problem
from mlcd.search.serving.table_informed import Floats, TableInformedStrategy, open_rows
from mlcd.trial.plan import Remaining
from mlcd.trial.trial import History, Suggestion


@dataclass(frozen=True, kw_only=True)
class RankedStrategy(TableInformedStrategy, ABC):
    """Tries the open configuration of the highest score; of equal ones, the first of the space."""

    @abstractmethod
    def scores(self, problem: Problem, history: History) -> Floats:
        """(N,) the more the better; -inf for what shall not be tried."""

    @abstractmethod
    def reason(self, problem: Problem, history: History) -> str:
        """Why the best scored is worth a trial, for the user."""

    def suggest(self, problem: Problem, history: History, remaining: Remaining, count: int) -> tuple[Suggestion, ...]:
        """The best scored of those that may be tried; several at once are the best few."""
        count = min(count, self.trials_left(problem, history))
        is_open = open_rows(problem, history, remaining)
        if count <= 0 or not is_open.any():
            return ()
        scores = np.where(is_open, self.scores(problem, history), -np.inf)
        rows = [row for row in np.argsort(-scores, kind="stable")[:count] if np.isfinite(scores[row])]
        reason = self.reason(problem, history)
        return tuple(Suggestion(config=problem.space.configs[row], reason=reason) for row in rows)

    def ending(self, problem: Problem, history: History, remaining: Remaining) -> str:
        """By count, or since nothing is left to try."""
        if self.trials_left(problem, history) <= 0:
            return f"all {len(history.tried)} trials of {self.name} were made"
        if not open_rows(problem, history, remaining).any():
            return "nothing is left that may be tried"
        return "nothing that is left is expected to keep the limits"
