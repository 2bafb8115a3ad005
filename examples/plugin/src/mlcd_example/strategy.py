"""The strategy `cheapest-first`: from the cheapest configuration up, until dearer ones bring nothing better."""

from dataclasses import dataclass
from typing import ClassVar

from mlcd.interfaces import History, MeasuredStrategy, Plan, Problem, Remaining, Suggestion, best_fitting


@dataclass(frozen=True, kw_only=True)
class CheapestFirst(MeasuredStrategy):
    """Tries configurations in the order of their price per hour; stops after `patience` trials without a better plan.

    MeasuredStrategy adds the seed, and recommends the best measured configuration that fits the limits.
    """

    name: ClassVar[str] = "cheapest-first"
    patience: int = 3

    def __post_init__(self) -> None:
        if self.patience < 1:
            raise ValueError(f"patience must be at least 1 (got {self.patience})")

    def suggest(self, problem: Problem, history: History, remaining: Remaining, count: int) -> tuple[Suggestion, ...]:
        """The cheapest configurations that were not tried and that the budget and the deadline allow."""
        if self._waited(problem, history, remaining) >= self.patience:
            return ()
        untried = [
            (price, row)
            for row, (config, price) in enumerate(zip(problem.space.configs, problem.usd_per_hour, strict=True))
            if remaining.allowed[row] and config not in history.tried
        ]
        return tuple(
            Suggestion(config=problem.space.configs[row], reason=f"the cheapest left, at {price} per hour")
            for price, row in sorted(untried)[:count]
        )

    def ending(self, problem: Problem, history: History, remaining: Remaining) -> str:
        """Why it stopped."""
        if self._waited(problem, history, remaining) >= self.patience:
            return f"{self.patience} dearer configurations in a row were no better"
        return "nothing untried fits the limits"

    def _waited(self, problem: Problem, history: History, remaining: Remaining) -> int:
        """Trials since the best plan so far was measured; 0 while there is none."""
        best: Plan | None = best_fitting(problem, history, remaining)
        if best is None:
            return 0
        tried = [trial.config for trial in history]
        return len(tried) - 1 - tried.index(best.config)
