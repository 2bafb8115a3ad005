"""CP_imprd of the paper: CherryPick that stops before a trial would break the reserve."""

from dataclasses import dataclass
from typing import ClassVar

from mlcd.problem import Problem
from mlcd.search.cherrypick import CherryPick
from mlcd.search.stopping import everything, within
from mlcd.trial.plan import Left
from mlcd.trial.trial import History, Suggestion


@dataclass(frozen=True, kw_only=True)
class CherryPickBudget(CherryPick):
    """CherryPick that ends when the ledger refuses its choice; its quasi-random start is drawn from what is allowed."""

    name: ClassVar[str] = "cherrypick-budget"

    @property
    def guarded(self) -> bool:
        """Stops in time."""
        return True

    def ending(self, problem: Problem, history: History, left: Left) -> str:
        """As its parent's, unless the ledger is the reason."""
        if not left.allowed.any() or super().suggest(problem, history, everything(left), 1):
            return f"what {self.name} would try next does not fit in what is left"
        return super().ending(problem, history, left)

    def suggest(self, problem: Problem, history: History, left: Left, count: int) -> tuple[Suggestion, ...]:
        """What CherryPick would try, as far as the ledger allows it."""
        if len(history.tried) < self.start or not history.measured:
            return super().suggest(problem, history, left, count)
        return within(super().suggest(problem, history, everything(left), count), problem, left)
