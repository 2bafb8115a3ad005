"""Beyond Falcon: a Gaussian process over models and configurations, the operators' additive latency as its mean."""

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mlcd.goal import Objective
from mlcd.known.tables import Known, Target
from mlcd.models.serving.gaussian import Belief
from mlcd.models.serving.operators import operator_seconds
from mlcd.models.serving.transfer import transfer_belief
from mlcd.problem import Problem
from mlcd.search.serving.falcon import LENGTHS, UNSEEN_TRIALS, memory_fits
from mlcd.search.serving.knowing import ById, KnowingStrategy, Need, known_rows, open_rows
from mlcd.search.serving.outlook import Outlook, outlook, seen
from mlcd.search.strategy import at_least
from mlcd.space import Config, Space
from mlcd.trial.plan import Left
from mlcd.trial.trial import History, Suggestion

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class FalconTransfer(KnowingStrategy):
    """The largest expected saving under the limits, until it no longer pays for its trial.

    requests  how many will be served: where money is minimised, a trial pays when the expected saving on all of them is
              more than its price
    gain      where time is minimised: it ends when the expected saving is under this share of the best
    least     trials before it may end; UNSEEN_TRIALS more where an operator was never measured
    """

    name: ClassVar[str] = "falcon-transfer"
    needs: ClassVar[frozenset[Need]] = frozenset({"known", "target"})
    needs_operators: ClassVar[bool] = True

    requests: float = 1e9
    gain: float = 0.001
    least: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(0, requests=self.requests, gain=self.gain)
        at_least(1, least=self.least)

    def suggest(self, problem: Problem, history: History, left: Left, count: int) -> tuple[Suggestion, ...]:
        """One after another, each as if those before it had come out as predicted."""
        is_open = open_rows(problem, history, left)
        rows: list[int] = []
        unseen = _unseen(self.tables, self.model)
        found = []
        for _ in range(min(count, self.trials_left(problem, history))):
            worth = self._outlook(problem, history, tuple(rows))
            candidates = is_open.copy()
            candidates[rows] = False
            if not candidates.any():
                break
            paying = candidates & (worth.gain > self._price(problem, worth)) if worth.has_incumbent else candidates
            may_end = len(history.tried) + len(rows) >= self.least + UNSEEN_TRIALS * bool(unseen)
            if may_end and (not paying.any() or worth.is_hopeless(candidates)):
                break
            wanted = np.where(paying if paying.any() else candidates, worth.gain, -1.0)
            row = int(wanted.argmax())
            rows.append(row)
            found.append(Suggestion(config=problem.space.configs[row], reason=self._reason(worth, row, unseen)))
        return tuple(found)

    def ending(self, problem: Problem, history: History, left: Left) -> str:
        """By count, for want of anything open, or by net gain."""
        if self.trials_left(problem, history) <= 0:
            return f"all {len(history.tried)} trials of {self.name} were made"
        if not open_rows(problem, history, left).any():
            return "nothing is left that may be tried"
        if not any(trial.meets(problem.goal) for trial in history.measured):
            return "nothing that is left is likely to keep the limits"
        if problem.goal.minimize is Objective.COST:
            return f"no trial is expected to save its price over {self.requests:g} requests"
        return f"no trial is expected to save {self.gain:.1%} of the best"

    def _price(self, problem: Problem, worth: Outlook) -> Floats:
        """(N,) the saving on the problem's requests at which a trial just pays."""
        if problem.goal.minimize is not Objective.COST:
            return np.full(len(problem.space), self.gain * worth.best)
        usd = problem.planned_trial_seconds * problem.dollars_per_second
        return np.asarray(usd * problem.work_samples / max(self.requests, 1e-9))

    def _outlook(self, problem: Problem, history: History, pending: tuple[int, ...]) -> Outlook:
        belief, fits = _prior(ById(problem.space), self.tables, self.model)
        data = seen(problem, history)
        mean, variance = belief.given(data.rows, data.log_seconds, data.errors)
        if pending:
            rows = np.append(data.rows, pending).astype(np.intp)
            values = np.append(data.log_seconds, mean[list(pending)])
            errors = np.append(data.errors, np.full(len(pending), problem.noise))
            mean, variance = belief.given(rows, values, errors)
        return outlook(problem, history, mean, variance, fits)

    def _reason(self, worth: Outlook, row: int, unseen: tuple[str, ...]) -> str:
        saving = f"expected saving {worth.gain[row] / worth.best:.0%} of the best so far" if worth.has_incumbent else ""
        likely = f"keeps the limits with probability {worth.keeps[row]:.0%}"
        named = f"never measured before: {', '.join(unseen)}" if unseen else ""
        return "; ".join(part for part in (saving, likely, named) if part)


def _unseen(known: Known, target: Target) -> tuple[str, ...]:
    return tuple(f"{of.operator} (taken for {of.like})" for of in operator_seconds(known, target) if of.like)


@lru_cache(maxsize=8)
def _prior(space: ById[Space], known: Known, target: Target) -> tuple[Belief, Floats]:
    at = known_rows(known, space.value)
    belief = transfer_belief(known, target, known_points(known.configs))
    if not np.array_equal(at, np.arange(len(known.configs))):
        belief = Belief(mean=belief.mean[at], covariance=belief.covariance[np.ix_(at, at)])
    return belief, memory_fits(known)[at]


@lru_cache(maxsize=16)
def known_points(configs: tuple[Config, ...]) -> Floats:
    """(N, d) known configurations as numbers: log2 of sizes and one column an option, in the units of LENGTHS."""
    columns: list[Floats] = []
    for name, _ in configs[0].values:
        values = [config[name] for config in configs]
        if any(isinstance(value, str) for value in values):
            columns += [np.array([float(v == o) for v in values]) * 2 / LENGTHS[1] for o in dict.fromkeys(values)]
        else:
            columns.append(np.log2(np.array(values, dtype=float)) / LENGTHS[0])
    return np.stack(columns, axis=1)
