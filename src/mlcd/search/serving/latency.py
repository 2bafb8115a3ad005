"""Latencies of known models and of trials in the configurations of a problem, and what a latency is worth."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from mlcd.known.tables import Known
from mlcd.problem import Problem
from mlcd.search.serving.table_informed import Floats
from mlcd.search.serving.table_worth import Rows, held
from mlcd.trial.trial import History


@dataclass(frozen=True, kw_only=True, eq=False)
class LatencyTable:
    """ln seconds of a batch (models, N), nan where memory ran out or nothing was measured; the share that ran (N,)."""

    log_seconds: Floats
    ran: Floats


def known_latency(known: Known, rows: Rows) -> LatencyTable:
    """The latencies of all known models; `rows` are the known configurations that match the problem's."""
    return _known_latency(known, tuple(rows.tolist()))


@lru_cache(maxsize=32)
def _known_latency(known: Known, rows: tuple[int, ...]) -> LatencyTable:
    seconds = np.array([model.latency_seconds[list(rows)] for model in known.models])
    measured = ~np.isnan(seconds)
    ran = np.isfinite(seconds).sum(axis=0) / np.maximum(measured.sum(axis=0), 1)
    return LatencyTable(log_seconds=np.where(np.isfinite(seconds), np.log(seconds), np.nan), ran=ran)


def tried_latency(problem: Problem, history: History) -> tuple[Rows, Floats]:
    """(n,) the rows that gave a speed, and ln seconds of a batch there: batch x replicas / speed."""
    last = {problem.space.index[trial.config]: trial.samples_per_second for trial in history.measured}
    rows = np.array(list(last), dtype=np.intp)
    speeds = np.array(list(last.values()), dtype=np.float64)
    return rows, np.log(items(problem)[rows] / speeds)


def latency_worth(problem: Problem, log_seconds: Floats) -> Floats:
    """(N,) what serving with these latencies is worth to the goal, ignoring the latency limit."""
    seconds = 1.0 / np.maximum(held(problem.goal, items(problem) / np.exp(log_seconds)), 1e-300)
    return np.asarray(1.0 / problem.goal.values(seconds, seconds * problem.dollars_per_second))


def items(problem: Problem) -> Floats:
    """(N,) items in flight at a time: batch x replicas."""
    configs = [dict(config.values) for config in problem.space.configs]
    return np.array([float(c.get("batch", 1)) * float(c.get("replicas", 1)) for c in configs])
