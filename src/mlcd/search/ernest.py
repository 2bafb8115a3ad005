"""Ernest (Venkataraman et al., NSDI 2016) for training: a designed curve over the nodes of a type, and its optimum."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mlcd.models.physical_terms import Terms
from mlcd.problem import Problem
from mlcd.search.candidates import log_seconds_that_fit, open_rows
from mlcd.search.strategy import MeasuredStrategy, at_least
from mlcd.trial.plan import Remaining, best_fitting
from mlcd.trial.trial import History, Measurement, Suggestion

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Ernest(MeasuredStrategy):
    """`design` trials of each of `types` instance types, then the best by their curves until it is measured.

    Ernest predicts one type; it says nothing about a type that was not tried. Of many types it is given some, spread
    over the price of a node: the cheapest, the dearest, and those between.
    """

    name: ClassVar[str] = "ernest"
    design: int = 3
    types: int = 3
    steps: int = 30

    def __post_init__(self) -> None:
        at_least(1, design=self.design, types=self.types, steps=self.steps)

    def ending(self, problem: Problem, history: History, remaining: Remaining) -> str:
        """The trial limit, nothing allowed, or a best by the curves that is measured already."""
        if len(history.tried) >= self.steps:
            return f"all {self.steps} trials of {self.name} were made"
        if not open_rows(problem, history, remaining).any():
            return "no further trial fits in what remains"
        if best_fitting(problem, history, remaining) is None:
            return "by the curves, nothing that may still be tried fits"
        return "by the curves, nothing is better than what was measured"

    def suggest(self, problem: Problem, history: History, remaining: Remaining, count: int) -> tuple[Suggestion, ...]:
        """The next points of the design, of as many types at once; then the best by the curves."""
        candidates = open_rows(problem, history, remaining)
        count = min(count, self.steps - len(history.tried), int(candidates.sum()))
        if count <= 0:
            return ()
        types = self._types(problem, history, candidates)
        designed = [row for each in types if (row := self._designed(problem, history, candidates, each)) is not None]
        if designed:
            reason = "most informative about its type's curve for its price"
            return tuple(Suggestion(config=problem.space.configs[row], reason=reason) for row in designed[:count])
        best = self._best(problem, history, remaining, candidates)[:count]
        return tuple(Suggestion(config=problem.space.configs[row], reason="best by its type's curve") for row in best)

    def _types(self, problem: Problem, history: History, candidates: Mask) -> list[int]:
        """The types to fit, by Encoding.identity: measured ones first, then evenly spread over the price of a node."""
        identity = problem.space.encoding.identity
        measured = list(dict.fromkeys(int(identity[problem.space.index[t.config]]) for t in history.measured))
        node_price = problem.node_dollars
        offered = np.unique(identity[candidates])
        ordered = sorted(offered.tolist(), key=lambda each: (float(node_price[identity == each].min()), each))
        spread = [ordered[at] for at in np.linspace(0, len(ordered) - 1, self.types).round().astype(int)]
        return list(dict.fromkeys([*measured, *spread]))[: self.types]

    def _designed(self, problem: Problem, history: History, candidates: Mask, each: int) -> int | None:
        """The next point of a type's design; None if it has enough or none is left."""
        of_type = problem.space.encoding.identity == each
        measured = self._measured(problem, history, of_type)
        rows = np.flatnonzero(of_type)
        if len(measured) >= self.design or not candidates[rows].any():
            return None
        at = np.array([int(np.flatnonzero(rows == problem.space.index[t.config])[0]) for t in measured], dtype=np.intp)
        usd = (problem.planned_trial_seconds * problem.dollars_per_second)[rows]
        return int(rows[Terms.of_nodes(problem.nodes[rows].astype(float)).next_point(at, candidates[rows], usd)])

    def _best(self, problem: Problem, history: History, remaining: Remaining, candidates: Mask) -> list[int]:
        """Untried rows that fit and beat the best measured one by their curves, the best first."""
        seconds = self._seconds(problem, history)
        with np.errstate(divide="ignore"):
            fits = candidates & (np.log(seconds) <= log_seconds_that_fit(problem, remaining))
        value = problem.goal.values(seconds, seconds * problem.dollars_per_second)
        incumbent = best_fitting(problem, history, remaining)
        if incumbent is not None:
            fits &= value < incumbent.value(problem)
        order = np.argsort(np.where(fits, value, np.inf), kind="stable")
        return [int(row) for row in order if fits[row]]

    def _seconds(self, problem: Problem, history: History) -> Floats:
        """(N,) seconds of the training by the curves; infinite for types that were not measured."""
        identity = problem.space.encoding.identity
        seconds = np.full(len(problem.space), np.inf)
        for each in np.unique(identity).tolist():
            of_type = identity == each
            measured = self._measured(problem, history, of_type)
            if measured:
                rows = np.flatnonzero(of_type)
                at = np.array([int(np.flatnonzero(rows == problem.space.index[t.config])[0]) for t in measured])
                taken = np.array([1.0 / t.samples_per_second for t in measured])
                curve = Terms.of_nodes(problem.nodes[rows].astype(float)).fit(at, taken)
                seconds[rows] = curve * problem.works[rows] * problem.stretches[rows]
        return seconds

    @staticmethod
    def _measured(problem: Problem, history: History, of_type: Mask) -> list[Measurement]:
        return [t for t in history.measured if of_type[problem.space.index[t.config]]]
