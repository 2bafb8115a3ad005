"""Vesta (Wu et al., ICPP 2021), as a factorisation: the table of known models, completed for the new one."""

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np
from scipy.special import ndtr

from mlcd.known.tables import Known
from mlcd.models.serving.factors import Factors, factorise, fit_scale
from mlcd.problem import Problem
from mlcd.search.serving.latency import known_latency, latency_worth, tried_latency
from mlcd.search.serving.ranked import RankedStrategy
from mlcd.search.serving.table_informed import ById, Floats
from mlcd.search.serving.table_worth import known_worth, tried_worth
from mlcd.search.strategy import at_least
from mlcd.trial.trial import History


@dataclass(frozen=True, kw_only=True)
class Vesta(RankedStrategy):
    """Factorises the table models x configurations into `rank` directions; trials fit the new model's share of each.

    learns  value: the table holds the worth of each cell, 0 where the latency limit is broken, by a trial as well;
            latency: it holds ln latency, and the limit is applied to the prediction
    """

    name: ClassVar[str] = "vesta"
    rank: int = 3
    explore: float = 1.0
    learns: Literal["value", "latency"] = "value"

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(1, rank=self.rank)
        at_least(0, explore=self.explore)

    def scores(self, problem: Problem, history: History) -> Floats:
        """The expected worth of each cell of the new row."""
        if self.learns == "latency":
            return self._by_latency(problem, history)
        factors = _value_factors(ById(problem), self.tables, tuple(self.rows(problem).tolist()), self.rank)
        at, values = tried_worth(problem, history)
        if not len(at):
            return factors.mean
        mean, variance = factors.row(at, values / fit_scale(factors, at, values))
        return np.asarray(mean + self.explore * np.sqrt(variance))

    def _by_latency(self, problem: Problem, history: History) -> Floats:
        table = known_latency(self.tables, self.rows(problem))
        factors = _latency_factors(self.tables, tuple(self.rows(problem).tolist()), self.rank)
        at, values = tried_latency(problem, history)
        mean, variance = factors.row(at, values)
        limit = np.log(problem.goal.slo.seconds) if problem.goal.slo is not None else np.inf
        keeps = ndtr((limit - mean) / np.sqrt(variance))
        return latency_worth(problem, mean) * keeps * table.ran

    def reason(self, problem: Problem, history: History) -> str:  # noqa: ARG002
        """Best by the known models alone, or after the trials."""
        if not history.tried:
            return f"best on average for {len(self.tables.models)} known models"
        return f"best by {self.rank} directions that known models differ in, fitted to {len(history.tried)} load tests"


@lru_cache(maxsize=32)
def _value_factors(problem: ById[Problem], known: Known, rows: tuple[int, ...], rank: int) -> Factors:
    return factorise(known_worth(problem.value, known, np.array(rows, dtype=np.intp)), rank)


@lru_cache(maxsize=32)
def _latency_factors(known: Known, rows: tuple[int, ...], rank: int) -> Factors:
    table = known_latency(known, np.array(rows, dtype=np.intp))
    return with_level(table.log_seconds, rank)


def with_level(log_seconds: Floats, rank: int) -> Factors:
    """Factors with an extra direction for each row's own level: the model's work over all configurations."""
    level = np.nanmean(log_seconds, axis=1, keepdims=True)
    shape = factorise(log_seconds - level, rank)
    loadings = np.hstack([shape.loadings, np.full((log_seconds.shape[1], 1), 2.0 * float(level.std()) + 0.5)])
    return Factors(mean=shape.mean + float(level.mean()), loadings=loadings, noise=shape.noise)
