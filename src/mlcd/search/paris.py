"""PARIS (Yadwadkar et al., SoCC 2017): two reference trials, and a forest that learnt from other jobs."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mlcd.errors import BadInput
from mlcd.known.measured_jobs import MeasuredJob
from mlcd.models import trees
from mlcd.problem import Problem
from mlcd.search.candidates import log_seconds_that_fit, open_rows
from mlcd.search.serving.table_informed import ById
from mlcd.search.strategy import MeasuredStrategy, at_least
from mlcd.space import Space
from mlcd.trial.plan import Remaining, best_fitting
from mlcd.trial.trial import History, Suggestion

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

TREES, LEAST_LEAF = 30, 3
"""Of the forest over all other jobs: a leaf is a mean over a few jobs or deployments, not one measurement."""
LEAST_JOBS = 3
"""Other jobs that a reference deployment must have measured, for a fingerprint to tell jobs apart."""


@dataclass(frozen=True, kw_only=True)
class Paris(MeasuredStrategy):
    """Trials of two reference deployments, then of the best predicted ones until one fits and `confirm` were made.

    The forest predicts the speed of a deployment relative to the first reference, from the deployment's features and
    the job's fingerprint: how much faster the second reference is than the first. It learnt from other jobs only.
    """

    name: ClassVar[str] = "paris"
    given: ClassVar[tuple[str, ...]] = ("others",)
    confirm: int = 2
    steps: int = 30
    others: tuple[MeasuredJob, ...] = ()

    def __post_init__(self) -> None:
        at_least(1, confirm=self.confirm, steps=self.steps)

    def ending(self, problem: Problem, history: History, remaining: Remaining) -> str:
        """The trial limit, nothing allowed, or the predictions were followed."""
        if len(history.tried) >= self.steps:
            return f"all {self.steps} trials of {self.name} were made"
        if not open_rows(problem, history, remaining).any():
            return "no further trial fits in what remains"
        return "the references and the best predictions were tried"

    def suggest(self, problem: Problem, history: History, remaining: Remaining, count: int) -> tuple[Suggestion, ...]:
        """The references first, then the best predictions. Raises BadInput where too few other jobs are known."""
        candidates = open_rows(problem, history, remaining)
        count = min(count, self.steps - len(history.tried), int(candidates.sum()))
        if count <= 0:
            return ()
        known = _known(self.others, ById(problem.space))
        if len(known) < LEAST_JOBS:
            raise BadInput(
                f"search.strategy: paris needs {LEAST_JOBS} other jobs that were measured on these deployments, which"
                " only `mlcd bench train` has; choose heterbo"
            )
        measured = [problem.space.index[t.config] for t in history.measured]
        references = _references(problem, known, measured, candidates)
        waiting = [row for row in references if row not in measured]
        if waiting:
            reason = "a reference that tells jobs apart"
            return tuple(Suggestion(config=problem.space.configs[row], reason=reason) for row in waiting[:count])
        if not references:
            return ()
        rows = self._predicted_best(problem, history, remaining, references, np.flatnonzero(candidates))
        if best_fitting(problem, history, remaining) is not None:
            rows = rows[: max(self.confirm - len(measured) + len(references), 0)]
        reason = "best predicted from its fingerprint and other jobs"
        return tuple(Suggestion(config=problem.space.configs[row], reason=reason) for row in rows[:count])

    def _predicted_best(
        self,
        problem: Problem,
        history: History,
        remaining: Remaining,
        references: Sequence[int],
        rows: Rows,
    ) -> list[int]:
        """Rows predicted to fit and to beat the best measured one, best first; while none fits, the nearest to it."""
        speeds = {problem.space.index[t.config]: float(np.log(t.samples_per_second)) for t in history.measured}
        first, second = references[0], references[-1]
        forest = _forest(self.others, ById(problem.space), first, second, self.seed)
        fingerprint = np.full((len(rows), 1), speeds[second] - speeds[first])
        log_speed = speeds[first] + forest.predict(np.hstack([fingerprint, _features(problem.space)[rows]]))
        log_seconds = np.log(problem.works[rows] * problem.stretches[rows]) - log_speed
        value = log_seconds + np.log(problem.goal.scale(problem.dollars_per_second))[rows]
        excess = np.maximum(log_seconds - log_seconds_that_fit(problem, remaining)[rows], 0.0)
        order = np.lexsort((value, excess))
        incumbent = best_fitting(problem, history, remaining)
        if incumbent is not None:
            most = np.log(incumbent.value(problem))
            order = np.array([at for at in order if excess[at] == 0 and value[at] < most], dtype=np.intp)
        return [int(row) for row in rows[order]]


def _references(problem: Problem, known: Floats, measured: Sequence[int], candidates: NDArray[np.bool_]) -> list[int]:
    """Two deployments that other jobs ran on: the cheapest trial, and the one that tells the jobs apart most."""
    usable = np.isfinite(known).sum(axis=0) >= LEAST_JOBS
    found = list(measured[:2])
    is_open = usable & candidates
    if not found and is_open.any():
        prices = problem.planned_trial_seconds * problem.dollars_per_second
        found.append(int(np.where(is_open, prices, np.inf).argmin()))
    if len(found) == 1:
        is_open[found[0]] = False
        ratios = known - known[:, found]
        both = np.isfinite(ratios).sum(axis=0) >= LEAST_JOBS
        apart = [
            float(np.nanstd(ratios[:, row])) if both[row] and is_open[row] else -np.inf for row in range(len(both))
        ]
        found += [int(np.argmax(apart))] if max(apart) > -np.inf else []
    return found


@lru_cache(maxsize=16)
def _known(others: tuple[MeasuredJob, ...], space: ById[Space]) -> Floats:
    """(jobs, N) ln speed of the other jobs; nan where one did not run. Jobs without any of these are left out."""
    speeds = [[job.speeds.get(config, np.nan) for config in space.value] for job in others]
    table = np.log(np.array(speeds).reshape(len(others), len(space.value)))
    return np.asarray(table[np.isfinite(table).any(axis=1)]) if len(others) else table


@lru_cache(maxsize=16)
def _forest(others: tuple[MeasuredJob, ...], space: ById[Space], first: int, second: int, seed: int) -> trees.Forest:
    known, features = _known(others, space), _features(space.value)
    usable = known[np.isfinite(known[:, first]) & np.isfinite(known[:, second])]
    fingerprints = usable[:, second] - usable[:, first]
    job, row = np.nonzero(np.isfinite(usable))
    inputs = np.hstack([fingerprints[job, None], features[row]])
    return trees.fit(inputs, usable[job, row] - usable[job, first], trees=TREES, least_leaf=LEAST_LEAF, seed=seed)


def _features(space: Space) -> Floats:
    """(N, d) what is known of a deployment in advance."""
    return np.hstack([space.encoding.features, space.encoding.settings, space.encoding.counts, space.encoding.totals])
