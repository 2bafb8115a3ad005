"""The scheduler `doubling`: twice as many functions every epoch, as far as the budget pays for them."""

from dataclasses import dataclass
from typing import ClassVar

from mlcd.interfaces import Epoch, Fleet, FunctionProblem, RemainingEpochs, Usd

SPARE = 2.0
"""A fleet is affordable when the ledger would let it run this many times as long as it should take."""


@dataclass(frozen=True, kw_only=True)
class Doubling:
    """Starts with `first` functions of the allowed memory size nearest to `memory` MB, and doubles them each epoch."""

    name: ClassVar[str] = "doubling"
    first: int = 4
    memory: int = 1769
    seed: int = 0

    def __post_init__(self) -> None:
        if self.first < 1 or self.memory < 1:
            raise ValueError("first and memory must be at least 1")

    def decide(self, problem: FunctionProblem, history: tuple[Epoch, ...], remaining: RemainingEpochs) -> Fleet | None:
        """The largest allowed number of functions up to the one wanted; None when no fleet is affordable."""
        wanted = self.first * 2 ** len(history)
        sizes = sorted(range(len(problem.memory_mb)), key=lambda i: abs(problem.memory_mb[i] - self.memory))
        rows = [row for row, number in enumerate(problem.functions) if number <= wanted] or [0]
        share = min(1.0, remaining.epochs)
        for column in sizes:
            for row in reversed(rows):
                fleet = Fleet(problem.functions[row], problem.memory_mb[column], share)
                if remaining.cap_seconds[row, column] > SPARE * _expected_seconds(fleet, history):
                    return fleet
        return None

    def ending(self, problem: FunctionProblem, history: tuple[Epoch, ...], remaining: RemainingEpochs) -> str:
        """Why it stopped."""
        return f"not even one more epoch of {problem.functions[0]} functions is affordable"

    def smallest_budget(
        self, problem: FunctionProblem, history: tuple[Epoch, ...], remaining: RemainingEpochs
    ) -> Usd | None:
        """It makes no model of the training, so that it cannot tell."""
        return None


def _expected_seconds(fleet: Fleet, history: tuple[Epoch, ...]) -> float:
    """As the last epoch, scaled by functions and memory; 0 (anything is affordable) before the first."""
    if not history:
        return 0.0
    last = history[-1]
    power = last.fleet.functions * last.fleet.memory_mb / (fleet.functions * fleet.memory_mb)
    return last.seconds * power * fleet.share / last.fleet.share
