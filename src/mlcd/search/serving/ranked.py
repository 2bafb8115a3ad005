"""The base class of the rivals: every configuration has a score, and the best is tried next."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from mlcd.problem import Problem
from mlcd.search.serving.table_informed import Floats, TableInformedStrategy, open_rows
from mlcd.trial.plan import Remaining
from mlcd.trial.trial import History, Suggestion


@dataclass(frozen=True, kw_only=True)
class RankedStrategy(TableInformedStrategy, ABC):
    """Tries the open configuration with the highest score; of equal ones, the first in the space."""

    @abstractmethod
    def scores(self, problem: Problem, history: History) -> Floats:
        """(N,) larger is better; -inf for what must not be tried."""

    @abstractmethod
    def reason(self, problem: Problem, history: History) -> str:
        """Why the configuration with the best score is worth a trial, for the user."""

    def suggest(self, problem: Problem, history: History, remaining: Remaining, count: int) -> tuple[Suggestion, ...]:
        """The `count` best scores among those that may be tried."""
        count = min(count, self.trials_left(problem, history))
        is_open = open_rows(problem, history, remaining)
        if count <= 0 or not is_open.any():
            return ()
        scores = np.where(is_open, self.scores(problem, history), -np.inf)
        rows = [row for row in np.argsort(-scores, kind="stable")[:count] if np.isfinite(scores[row])]
        reason = self.reason(problem, history)
        return tuple(Suggestion(config=problem.space.configs[row], reason=reason) for row in rows)

    def ending(self, problem: Problem, history: History, remaining: Remaining) -> str:
        """The trial limit, or nothing more to try."""
        if self.trials_left(problem, history) <= 0:
            return f"all {len(history.tried)} load tests of {self.name} were made"
        if not open_rows(problem, history, remaining).any():
            return "nothing more may be tried"
        return "nothing that may still be tried is expected to keep the limits"
