"""Falcon (SoCC 2022), repaired: a tree of regions by key operator, UCT over it, Bayesian optimisation inside one."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mlcd.known.tables import Known, Target
from mlcd.models.serving.additive import calibrate
from mlcd.models.serving.gaussian import Belief, matern, spread
from mlcd.models.serving.operators import key_operators, operator_seconds, operator_shares
from mlcd.models.serving.pruning import knobs_that_matter, redundant_rows
from mlcd.problem import Problem
from mlcd.search.serving.falcon_tree import grow, select
from mlcd.search.serving.knowing import ById, KnowingStrategy, Need, known_rows, open_rows
from mlcd.search.serving.outlook import Outlook, outlook, seen
from mlcd.search.strategy import at_least
from mlcd.space import Space
from mlcd.trial.plan import Left, Plan
from mlcd.trial.trial import History, Measurement, Suggestion

Floats = NDArray[np.float64]

OFFSET, RIPPLE, QUIRK = 0.4, 0.2, 0.05
"""Deviations of ln(measured / predicted): of the whole model, along the knobs, of one configuration alone."""
LENGTHS = (3.0, 2.0)
"""How far the ripple reaches: in doublings of a count, in deviations of a choice's features."""
UNSEEN_TRIALS = 2
"""What an operator that was never measured costs more."""


@dataclass(frozen=True, kw_only=True)
class Falcon(KnowingStrategy):
    """Regions by key operator and resource curve, searched by UCT and Bayesian optimisation.

    threshold  key operators are the fewest whose time share passes this
    cutoff     configurations are pruned that differ only in knobs outside the principal components that cover this
    explore    cp of UCT
    least      trials before it may end; UNSEEN_TRIALS more where an operator was never measured
    gain       it ends when no region promises a saving of this share of the best
    """

    name: ClassVar[str] = "falcon"
    needs: ClassVar[frozenset[Need]] = frozenset({"known", "target"})
    needs_operators: ClassVar[bool] = True

    threshold: float = 0.9
    cutoff: float = 0.95
    explore: float = 0.1
    least: int = 3
    gain: float = 0.001

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(0, explore=self.explore, gain=self.gain)
        at_least(1, least=self.least)
        if not (0 < self.threshold <= 1 and 0 < self.cutoff <= 1):
            raise ValueError("threshold and cutoff are shares above 0 and at most 1")

    def suggest(self, problem: Problem, history: History, left: Left, count: int) -> tuple[Suggestion, ...]:
        """One after another, each as if those before it had come out as predicted."""
        rows: list[int] = []
        is_open = open_rows(problem, history, left)
        reasons = []
        for _ in range(min(count, self.trials_left(problem, history))):
            found = self._next(problem, history, is_open, tuple(rows))
            if found is None:
                break
            row, reason = found
            rows.append(row)
            reasons.append(reason)
            is_open = is_open.copy()
            is_open[row] = False
        return tuple(
            Suggestion(config=problem.space.configs[row], reason=reason)
            for row, reason in zip(rows, reasons, strict=True)
        )

    def ending(self, problem: Problem, history: History, left: Left) -> str:
        """By count, for want of anything open, or by a small expected gain."""
        if self.trials_left(problem, history) <= 0:
            return f"all {len(history.tried)} trials of {self.name} were made"
        if not open_rows(problem, history, left).any():
            return "nothing is left that may be tried"
        if not any(trial.meets(problem.goal) for trial in history.measured):
            return "nothing that is left is likely to keep the limits"
        return f"no region promises a saving of {self.gain:.1%} of the best"

    def _next(
        self, problem: Problem, history: History, is_open: NDArray[np.bool_], pending: tuple[int, ...]
    ) -> tuple[int, str] | None:
        study = _study(ById(problem), self.tables, self.model, self.threshold, self.cutoff)
        worth = self._outlook(problem, history, study, pending)
        candidates = is_open & ~study.pruned if (is_open & ~study.pruned).any() else is_open
        if not candidates.any():
            return None
        promising = candidates & (worth.gain > self.gain * worth.best) if worth.has_incumbent else candidates
        may_end = len(history.tried) + len(pending) >= self.least + UNSEEN_TRIALS * bool(study.unseen)
        if may_end and (not promising.any() or worth.is_hopeless(candidates)):
            return None
        searched = promising if promising.any() else candidates
        tree = grow(study.by_operator(worth.keeps), worth.likely, np.flatnonzero(candidates | _tried(problem, history)))
        region = select(tree, _values(problem, history, worth), searched, self.explore)
        if region is None:
            return None
        inside = region.rows[searched[region.rows]]
        row = int(inside[int(np.argmax(worth.gain[inside]))])
        return row, f"{region}: {self._why(worth, row)}{study.caveat}"

    def _outlook(self, problem: Problem, history: History, study: "Study", pending: tuple[int, ...]) -> Outlook:
        data = seen(problem, history)
        mean, variance = study.belief.given(data.rows, data.log_seconds, data.errors)
        if pending:
            rows = np.append(data.rows, pending).astype(np.intp)
            values = np.append(data.log_seconds, mean[list(pending)])
            errors = np.append(data.errors, np.full(len(pending), problem.noise))
            mean, variance = study.belief.given(rows, values, errors)
        return outlook(problem, history, mean, variance, study.fits)

    def _why(self, worth: Outlook, row: int) -> str:
        return f"keeps the limits with probability {worth.keeps[row]:.0%}" if np.isfinite(worth.keeps[row]) else ""


@dataclass(frozen=True, kw_only=True, eq=False)
class Study:
    """All that is worked out before the first trial, for the configurations of the problem.

    belief     of ln seconds of a batch
    operators  (name, share, (N,) ln value by this operator alone) of each key operator, the largest share first
    pruned     (N,) redundant
    fits       (N,) the share of known models whose memory sufficed
    unseen     operators that were never measured, each with the one that stands for it
    """

    belief: Belief
    operators: tuple[tuple[str, float, Floats], ...]
    pruned: NDArray[np.bool_]
    fits: Floats
    unseen: Mapping[str, str]

    def by_operator(self, keeps: Floats) -> list[tuple[str, Floats]]:
        """The levels of the tree: value by each operator alone, times the probability that the limits are kept."""
        return [(name, np.exp(value - value.max()) * keeps) for name, _, value in self.operators]

    @property
    def caveat(self) -> str:
        """Names what was never measured."""
        if not self.unseen:
            return ""
        named = ", ".join(f"{name} (taken for {like})" for name, like in self.unseen.items())
        return f"; never measured before: {named}"


@lru_cache(maxsize=16)
def _study(problem: ById[Problem], known: Known, target: Target, threshold: float, cutoff: float) -> Study:
    space = problem.value.space
    at = known_rows(known, space)
    shares = operator_shares(target)
    keys = key_operators(target, threshold)
    found = {of.operator: of for of in operator_seconds(known, target)}
    weight = calibrate(known).weight
    parts = {name: weight(name) * found[name].seconds for name in keys}
    seconds = np.sum(list(parts.values()), axis=0) / max(sum(shares[name] for name in keys), 1e-9)
    price = known.usd_per_hour
    value = known.batches * known.replicas / (price * seconds)
    limit = problem.value.goal.slo.seconds if problem.value.goal.slo else np.inf
    knobs = knobs_that_matter(known, [(name, shares[name], parts[name]) for name in keys], cutoff)
    pruned = redundant_rows(known, knobs, np.where(seconds <= limit, value, -seconds))
    scale = np.log(problem.value.goal.scale(problem.value.dollars_per_second))
    items = np.log(known.batches * known.replicas)[at]
    operators = tuple((name, shares[name], items - scale - np.log(parts[name][at])) for name in keys)
    return Study(
        belief=Belief(mean=np.log(seconds[at]), covariance=prior_covariance(ById(space))),
        operators=operators,
        pruned=pruned[at],
        fits=memory_fits(known)[at],
        unseen={name: found[name].like for name in found if found[name].like},
    )


def memory_fits(known: Known) -> Floats:
    """(N,) of the models that were measured in a configuration, the share whose memory sufficed; 1 where none was."""
    latencies = np.array([model.latency_seconds for model in known.models]).reshape(-1, len(known.configs))
    measured = (~np.isnan(latencies)).sum(axis=0)
    return np.asarray(np.where(measured, np.isfinite(latencies).sum(axis=0) / np.maximum(measured, 1), 1.0))


@lru_cache(maxsize=8)
def prior_covariance(space: ById[Space]) -> Floats:
    """(N, N) of ln(measured / predicted): OFFSET^2 + RIPPLE^2 Matern + QUIRK^2 [same]."""
    encoding = space.value.encoding
    points = np.hstack([encoding.counts / LENGTHS[0], encoding.features / LENGTHS[1]])
    return np.asarray(OFFSET**2 + RIPPLE**2 * matern(spread(points)) + QUIRK**2 * np.eye(len(points)))


def _tried(problem: Problem, history: History) -> NDArray[np.bool_]:
    mask = np.zeros(len(problem.space), dtype=bool)
    mask[[problem.space.index[config] for config in history.tried]] = True
    return mask


def _values(problem: Problem, history: History, worth: Outlook) -> dict[int, float]:
    """Row -> measured value in parts of the best known: 0 where a limit was broken or the trial failed."""
    least = min(float(np.exp(worth.log_value[worth.keeps > 0.5].min(initial=np.inf))), worth.best)
    found = {}
    for trial in history:
        kept = isinstance(trial, Measurement) and trial.meets(problem.goal)
        value = Plan.of(problem, trial).value(problem) if kept and isinstance(trial, Measurement) else np.inf
        found[problem.space.index[trial.config]] = float(least / value)
    return found
