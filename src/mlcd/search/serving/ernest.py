"""Ernest (Venkataraman et al., NSDI 2016) for serving: a few designed trials, a physical curve, and its optimum."""

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from mlcd.known.tables import Known
from mlcd.models.physical_terms import Terms
from mlcd.models.serving.latency_law import capacities, latency_terms
from mlcd.problem import Problem
from mlcd.search.serving.latency import items, known_latency, latency_worth, tried_latency
from mlcd.search.serving.ranked import RankedStrategy
from mlcd.search.serving.table_informed import ById, Floats
from mlcd.search.serving.table_worth import Rows
from mlcd.search.strategy import at_least
from mlcd.space import Space
from mlcd.trial.trial import History

LEAST_RAN_SHARE = 0.5
"""Designed trials use configurations where at least this share of known models had enough memory. Unmeasured."""


@dataclass(frozen=True, kw_only=True)
class Ernest(RankedStrategy):
    """`design` trials that are most informative about the curve, then the curve's optimum, refitted after each trial.

    Ernest fits a curve for each instance type and learns nothing from other jobs; with dozens of settings that would
    take hundreds of trials. Here the curve has one number for each setting, its capacity, averaged over the known
    models: the pattern that Falcon's paper says Ernest reuses.
    """

    name: ClassVar[str] = "ernest"
    design: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(1, design=self.design)

    def scores(self, problem: Problem, history: History) -> Floats:
        """1 for the next point of the design; then the worth of each by the curve, 0 where the limit is broken.

        While the curve predicts that nothing keeps the limit, the lowest latency scores best.
        """
        at, log_seconds = tried_latency(problem, history)
        if self._is_designing(history):
            return self._designed(problem, history, at)
        seconds = np.maximum(self._terms(problem).fit(at, np.exp(log_seconds)), 1e-9)
        limit = problem.goal.slo.seconds if problem.goal.slo is not None else np.inf
        worth = np.where(seconds <= limit, latency_worth(problem, np.log(seconds)), 0.0)
        return worth if worth.max() > 0 else -seconds

    def reason(self, problem: Problem, history: History) -> str:  # noqa: ARG002
        """Part of the design, or best by the curve."""
        if self._is_designing(history):
            return "most informative about the curve for its price"
        return f"best by the curve fitted to {len(history.measured)} load tests"

    def _is_designing(self, history: History) -> bool:
        return len(history.measured) < self.design

    def _designed(self, problem: Problem, history: History, at: Rows) -> Floats:
        ran = known_latency(self.tables, self.rows(problem)).ran
        candidates = ran >= min(LEAST_RAN_SHARE, float(ran.max()))
        candidates[[problem.space.index[config] for config in history.tried]] = False
        order = ran.copy() - 1.0
        usd = problem.planned_trial_seconds * problem.dollars_per_second
        if candidates.any():
            order[self._terms(problem).next_point(at, candidates, usd)] = 1.0
        return order

    def _terms(self, problem: Problem) -> Terms:
        return _terms(self.tables, tuple(self.rows(problem).tolist()), ById(problem))


@lru_cache(maxsize=32)
def _terms(known: Known, rows: tuple[int, ...], problem: ById[Problem]) -> Terms:
    table = known_latency(known, np.array(rows, dtype=np.intp))
    under_way = items(problem.value)
    return latency_terms(under_way, capacities(table.log_seconds, _settings(problem.value.space), under_way))


def _settings(space: Space) -> Rows:
    """(N,) group numbers; configurations of one group differ only in their batch."""
    seen: dict[tuple[object, ...], int] = {}
    keys = [tuple(pair for pair in config.values if pair[0] != "batch") for config in space.configs]
    return np.array([seen.setdefault(key, len(seen)) for key in keys], dtype=np.intp)
