"""Falcon (SoCC 2022), repaired: a tree of regions by key operator, UCT over it, Bayesian optimisation inside one."""

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mlcd.known.tables import Known, TargetModel
from mlcd.models.serving.additive import calibrate, deviation_of_sum
from mlcd.models.serving.gaussian import Belief, matern, spread
from mlcd.models.serving.operators import key_operators, operator_seconds, operator_shares
from mlcd.models.serving.pruning import knobs_that_matter, redundant_rows
from mlcd.problem import Problem
from mlcd.search.serving.falcon_settings import FalconSettings
from mlcd.search.serving.falcon_tree import grow, select
from mlcd.search.serving.posterior import PosteriorStrategy, ServingPrior
from mlcd.search.serving.serving_forecast import ServingForecast, items_of
from mlcd.search.serving.table_informed import ById, known_rows
from mlcd.space import Space
from mlcd.trial.plan import Plan
from mlcd.trial.trial import History, Measurement
from mlcd.units import chance_text

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

RESIDUAL_LENGTHS = (3.0, 2.0)
"""Length scales of a residual: in doublings of a count, in deviations of a choice's features. Chosen on made-up models
and on the H200 targets that may be tuned on."""
DEFAULTS = FalconSettings()


@dataclass(frozen=True, kw_only=True)
class Falcon(PosteriorStrategy):
    """Regions by key operator and resource curve, searched by UCT and Bayesian optimisation.

    Its options are `steps` and the fields of FalconSettings.
    """

    name: ClassVar[str] = "falcon"

    settings: FalconSettings = DEFAULTS

    def prior(self, problem: Problem) -> ServingPrior:
        """The prior from the key operators."""
        return self._study(problem).prior

    def pick(self, problem: Problem, history: History, worth: ServingForecast, candidates: Mask) -> tuple[int, str]:
        """The largest expected gain in the region chosen by UCT. Redundant configurations come last."""
        study = self._study(problem)
        wanted = candidates & ~study.pruned
        wanted = wanted if wanted.any() else candidates
        rows = np.flatnonzero(~study.pruned | wanted | _tried(problem, history))
        region = select(
            grow(study.by_operator(worth.keeps), worth.likely, rows, smallest=self.settings.smallest_region),
            _values(problem, history, worth),
            wanted,
            self.settings.explore,
        )
        inside = rows[wanted[rows]] if region is None else region.rows[wanted[region.rows]]
        row = int(inside[int(np.argmax(worth.gain[inside]))])
        return row, f"{region or 'anywhere'}: keeps the limits with probability {chance_text(worth.keeps[row])}"

    def _study(self, problem: Problem) -> "Study":
        return _study(ById(problem), self.tables, self.model, self.settings)


@dataclass(frozen=True, kw_only=True, eq=False)
class Study:
    """Everything computed before the first trial, for the configurations of the problem.

    operators  (name, (N,) ln value by this operator alone) of each key operator, the largest share first
    pruned     (N,) whether each is redundant
    """

    prior: ServingPrior
    operators: tuple[tuple[str, Floats], ...]
    pruned: Mask

    def by_operator(self, keeps: Floats) -> list[tuple[str, Floats]]:
        """The levels of the tree: value by each operator alone, times the probability that the limits are kept."""
        return [(name, np.exp(value - value.max()) * keeps) for name, value in self.operators]


@lru_cache(maxsize=16)
def _study(problem: ById[Problem], known: Known, target: TargetModel, settings: FalconSettings) -> Study:
    space, goal = problem.value.space, problem.value.goal
    at = known_rows(known, space)
    shares, keys = operator_shares(target), key_operators(target, settings.threshold)
    found = {of.operator: of for of in operator_seconds(known, target)}
    weight = calibrate(known).weight
    parts = {name: weight(name) * found[name].seconds for name in keys}
    seconds = np.sum(list(parts.values()), axis=0) / max(sum(shares[name] for name in keys), 1e-9)
    limit = goal.slo.seconds if goal.slo is not None else np.inf
    value = known.batches * known.replicas / (known.usd_per_hour * seconds)
    knobs = knobs_that_matter(known, [(name, shares[name], parts[name]) for name in keys], settings.cutoff)
    unknown = deviation_of_sum(parts, [found[name] for name in keys])[:, at]
    pruned = redundant_rows(known, knobs, np.where(seconds <= limit, value, -seconds))
    scale = np.log(items_of(space) / goal.scale(problem.value.dollars_per_second))
    return Study(
        prior=ServingPrior(
            belief=Belief(
                mean=np.log(seconds[at]), covariance=prior_covariance(ById(space), settings) + unknown.T @ unknown
            ),
            fits=memory_fits(known)[at],
            unseen={name: of.like for name, of in found.items() if of.like},
        ),
        operators=tuple((name, scale - np.log(parts[name][at])) for name in keys),
        pruned=pruned[at],
    )


def memory_fits(known: Known) -> Floats:
    """(N,) the share of models measured in a configuration that had enough memory; 1 where none was measured."""
    latencies = np.array([model.latency_seconds for model in known.models]).reshape(-1, len(known.configs))
    measured = (~np.isnan(latencies)).sum(axis=0)
    return np.asarray(np.where(measured, np.isfinite(latencies).sum(axis=0) / np.maximum(measured, 1), 1.0))


@lru_cache(maxsize=8)
def prior_covariance(space: ById[Space], settings: FalconSettings) -> Floats:
    """(N, N) of ln(measured / predicted): variances of the model, along the knobs (Matern), of each configuration."""
    encoding = space.value.encoding
    points = np.hstack([encoding.counts / RESIDUAL_LENGTHS[0], encoding.features / RESIDUAL_LENGTHS[1]])
    along = settings.knob_deviation**2 * matern(spread(points))
    return np.asarray(settings.model_deviation**2 + along + settings.own_deviation**2 * np.eye(len(points)))


def _tried(problem: Problem, history: History) -> Mask:
    mask = np.zeros(len(problem.space), dtype=bool)
    mask[[problem.space.index[config] for config in history.tried]] = True
    return mask


def _values(problem: Problem, history: History, worth: ServingForecast) -> dict[int, float]:
    """Row -> measured value as a share of the best known; 0 where a limit was broken or the trial failed."""
    least = min(float(np.exp(worth.log_value[worth.keeps > 0.5].min(initial=np.inf))), worth.best)
    found = {}
    for trial in history:
        kept = isinstance(trial, Measurement) and trial.meets(problem.goal)
        value = Plan.of(problem, trial).value(problem) if kept and isinstance(trial, Measurement) else np.inf
        found[problem.space.index[trial.config]] = float(least / value)
    return found
