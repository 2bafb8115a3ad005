"""Arrow (Hsu et al., ICDCS 2018): extremely randomised trees from one measured machine to another."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mlcd.models import trees
from mlcd.problem import Problem
from mlcd.search.candidates import log_seconds_that_fit, open_rows
from mlcd.search.first_looks import spread_start
from mlcd.search.strategy import MeasuredStrategy, at_least
from mlcd.trial.plan import Remaining, best_fitting
from mlcd.trial.trial import History, Measurement, Suggestion

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

TREES = 30
LEAST_LEAF = 1
"""As in scikit-learn's defaults for extremely randomised trees, with fewer of them: more changed no choice."""


@dataclass(frozen=True, kw_only=True)
class Arrow(MeasuredStrategy):
    """`start` quasi-random trials, then the deployment that the trees predict to be best.

    The trees learn from pairs of measured deployments: features of the one, features and metrics of the other, to the
    ratio of their speeds; a prediction is the mean over all measured ones. Ends when the best prediction is more than
    `delta` times the best measured value.
    """

    name: ClassVar[str] = "arrow"
    start: int = 3
    delta: float = 1.1
    steps: int = 30

    def __post_init__(self) -> None:
        at_least(1, start=self.start, steps=self.steps)
        at_least(0, delta=self.delta)

    def ending(self, problem: Problem, history: History, remaining: Remaining) -> str:
        """The trial limit, nothing allowed, or nothing better predicted."""
        if len(history.tried) >= self.steps:
            return f"all {self.steps} trials of {self.name} were made"
        if not open_rows(problem, history, remaining).any():
            return "no further trial fits in what remains"
        return f"the best prediction is more than {self.delta:g} times the best measured value"

    def suggest(self, problem: Problem, history: History, remaining: Remaining, count: int) -> tuple[Suggestion, ...]:
        """Quasi-random trials first, then the best predictions."""
        candidates = open_rows(problem, history, remaining)
        count = min(count, self.steps - len(history.tried), int(candidates.sum()))
        if count <= 0:
            return ()
        if len(history.tried) < self.start or not history.measured:
            missing = min(count, max(self.start - len(history.tried), 1))
            return spread_start(problem, history, candidates, seed=self.seed, count=missing)
        rows = np.flatnonzero(candidates)
        log_seconds = self._log_seconds(problem, history, rows)
        value = log_seconds + np.log(problem.goal.scale(problem.dollars_per_second))[rows]
        # A run that would not fit is worse by what it lacks; so while nothing fits, the nearest to fitting comes first.
        excess = np.maximum(log_seconds - log_seconds_that_fit(problem, remaining)[rows], 0.0)
        incumbent = best_fitting(problem, history, remaining)
        order = np.lexsort((value, excess))[:count]
        if incumbent is not None:
            most = np.log(max(self.delta, 1e-12) * incumbent.value(problem))
            order = np.array([at for at in order if excess[at] == 0 and value[at] <= most], dtype=np.intp)
        reason = f"best predicted from {len(history.measured)} measured deployments"
        return tuple(Suggestion(config=problem.space.configs[row], reason=reason) for row in rows[order])

    def _log_seconds(self, problem: Problem, history: History, rows: Rows) -> Floats:
        """(len(rows),) ln of the training's time, the mean of the predictions from each measured deployment."""
        measured = history.measured
        features = _features(problem)
        at = np.array([problem.space.index[trial.config] for trial in measured])
        sources = np.hstack([features[at], _metrics(measured)])
        speeds = np.log([trial.samples_per_second for trial in measured])
        size = len(measured)
        from_, to = (part.reshape(-1) for part in np.meshgrid(np.arange(size), np.arange(size), indexing="ij"))
        pairs = np.hstack([sources[from_], features[at[to]]])
        forest = trees.fit(pairs, speeds[to] - speeds[from_], trees=TREES, least_leaf=LEAST_LEAF, seed=self.seed)
        from_, to = (part.reshape(-1) for part in np.meshgrid(np.arange(size), rows, indexing="ij"))
        ratio = forest.predict(np.hstack([sources[from_], features[to]])).reshape(size, len(rows))
        log_speed = (speeds[:, None] + ratio).mean(axis=0)
        seconds = np.exp(np.log(problem.works[rows] * problem.stretches[rows]) - log_speed)
        startup = float(np.mean([trial.startup_seconds for trial in measured]))
        return np.asarray(np.log(seconds + startup))


def _features(problem: Problem) -> Floats:
    """(N, d) what is known of a deployment in advance, the price of a node included."""
    encoding = problem.space.encoding
    node_price = np.log2(problem.node_dollars)[:, None]
    return np.hstack([encoding.features, encoding.settings, encoding.counts, encoding.totals, node_price])


def _metrics(measured: tuple[Measurement, ...]) -> Floats:
    """(n, m) what the trials measured besides the speed, as far as every one of them has it."""
    found = []
    if all(trial.utilisation is not None for trial in measured):
        found.append([trial.utilisation for trial in measured])
    metrics = [trial.node_metrics for trial in measured]
    for name in ("cpu_percent", "received_bytes", "sent_bytes"):
        values = [getattr(each, name) if each is not None else None for each in metrics]
        if all(value is not None for value in values):
            found.append(values)
    return np.array(found, dtype=float).T if found else np.zeros((len(measured), 0))
