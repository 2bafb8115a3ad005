"""Random and exhaustive search over serving configurations: the baseline and the ground truth."""

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
    """Configurations drawn without replacement, ordered by the seed. Uses no other models."""

    name: ClassVar[str] = "random"
    needs: ClassVar[frozenset[Need]] = frozenset()

    def scores(self, problem: Problem, history: History) -> Floats:  # noqa: ARG002
        """A random order, the same for the whole search."""
        return np.random.default_rng(self.seed).random(len(problem.space))

    def reason(self, problem: Problem, history: History) -> str:  # noqa: ARG002
        """None."""
        return "drawn at random"


@dataclass(frozen=True, kw_only=True)
class ServingExhaustive(RankedStrategy):
    """Every configuration in the space's order, or `points` of them, evenly spread."""

    name: ClassVar[str] = "exhaustive"
    needs: ClassVar[frozenset[Need]] = frozenset()
    points: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(0, points=self.points)

    def scores(self, problem: Problem, history: History) -> Floats:  # noqa: ARG002
        """Selected configurations in order; -inf for the others."""
        size = len(problem.space)
        wanted = np.linspace(0, size - 1, min(self.points or size, size)).round().astype(int)
        scores = np.full(size, -np.inf)
        scores[wanted] = -wanted.astype(float)
        return scores

    def reason(self, problem: Problem, history: History) -> str:  # noqa: ARG002
        """None."""
        return "every configuration is tried"
