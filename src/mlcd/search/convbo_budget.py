"""BO_imprd of the paper: conventional Bayesian optimisation that stops before a trial would break the reserve."""

from dataclasses import dataclass
from typing import ClassVar

from mlcd.problem import Problem
from mlcd.search.convbo import ConvBO
from mlcd.search.stopping import ledger_ended_it, suggest_in_time
from mlcd.trial.plan import Remaining
from mlcd.trial.trial import History, Suggestion


@dataclass(frozen=True, kw_only=True)
class ConvBOBudget(ConvBO):
    """ConvBO that ends when the ledger refuses its choice; its random start uses only allowed trials."""

    name: ClassVar[str] = "convbo-budget"

    @property
    def guarded(self) -> bool:
        """True: it stops before a limit is broken."""
        return True

    def ending(self, problem: Problem, history: History, remaining: Remaining) -> str:
        """The reason of ConvBO, unless the ledger refused its choice."""
        if ledger_ended_it(super().suggest, problem, history, remaining):
            return f"what {self.name} would try next does not fit in what remains"
        return super().ending(problem, history, remaining)

    def suggest(self, problem: Problem, history: History, remaining: Remaining, count: int) -> tuple[Suggestion, ...]:
        """What ConvBO would try, as far as the ledger allows it."""
        return suggest_in_time(
            super().suggest, self.start, problem=problem, history=history, remaining=remaining, count=count
        )
