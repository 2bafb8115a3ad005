"""Random and exhaustive search over ways to serve: what every other strategy has to beat, and the truth."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mlcd.problem import Problem
from mlcd.search.serving.ranked import RankedStrategy
from mlcd.search.serving.table_informed import Floats, Need
from mlcd.search.strategy import at_least
from mlcd.trial.trial import History


@dataclass(frozen=True, kw_only=True)
class ServingRandom(RankedStrategy):
    """Configurations drawn without replacement, as the seed has it. Knows nothing of other models."""

    name: ClassVar[str] = "random"
    needs: ClassVar[frozenset[Need]] = frozenset()

    def scores(self, problem: Problem, history: History) -> Floats:  # noqa: ARG002
        """One order for the whole search."""
        return np.random.default_rng(self.seed).random(len(problem.space))

    def reason(self, problem: Problem, history: History) -> str:  # noqa: ARG002
        """None."""
        return "drawn at random"


@dataclass(frozen=True, kw_only=True)
class ServingExhaustive(RankedStrategy):
    """Every configuration, in the space's order; with `points` only so many, evenly spread."""

    name: ClassVar[str] = "exhaustive"
    needs: ClassVar[frozenset[Need]] = frozenset()
    points: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(0, points=self.points)

    def scores(self, problem: Problem, history: History) -> Floats:  # noqa: ARG002
        """The first of those that are looked at."""
        size = len(problem.space)
        wanted = np.linspace(0, size - 1, min(self.points or size, size)).round().astype(int)
        scores = np.full(size, -np.inf)
        scores[wanted] = -wanted.astype(float)
        return scores

    def reason(self, problem: Problem, history: History) -> str:  # noqa: ARG002
        """None."""
        return "every one is tried"
