"""Morphling (Wang et al., SoCC 2021): a network meta-learned over known models and adapted to the trials."""

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np
from scipy.special import ndtr

from mlcd.known.tables import Known
from mlcd.models.serving.meta_net import MetaNet, meta_train
from mlcd.models.serving.residual import residual
from mlcd.problem import Problem
from mlcd.search.serving.latency import known_latency, latency_worth, tried_latency
from mlcd.search.serving.ranked import RankedStrategy
from mlcd.search.serving.table_informed import ById, Floats
from mlcd.search.serving.table_worth import known_worth, tried_worth
from mlcd.search.strategy import at_least
from mlcd.space import Space
from mlcd.trial.trial import History

NETWORK_SEED = 0
"""The network is trained once, offline, independently of the search's seed."""

VALUE_DEVIATION, LATENCY_DEVIATION = 0.25, 0.3
"""Errors of an adapted network: of a share of the best; of ln latency, in units of its deviation over configurations.
Unmeasured."""
RESIDUAL_LENGTH = 2.0
"""Length scale over which a trial informs others, in deviations of the knobs. Unmeasured."""


@dataclass(frozen=True, kw_only=True)
class Morphling(RankedStrategy):
    """Bayesian optimisation whose mean is a network, after `gradient_steps` gradient steps on the trials so far.

    The error of the adapted network is modelled by a Gaussian process; the next trial has the largest mean + `explore`
    x deviation.

    learns  value: the network predicts the worth of a configuration as a share of the best, 0 where the latency limit
            is broken; latency: it predicts ln latency, and the limit is applied to the prediction
    """

    name: ClassVar[str] = "morphling"
    gradient_steps: int = 20
    rate: float = 0.2
    explore: float = 1.0
    learns: Literal["value", "latency"] = "value"

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(1, gradient_steps=self.gradient_steps)
        at_least(0, rate=self.rate, explore=self.explore)

    def scores(self, problem: Problem, history: History) -> Floats:
        """The adapted network's prediction plus `explore` deviations."""
        return self._by_latency(problem, history) if self.learns == "latency" else self._by_value(problem, history)

    def reason(self, problem: Problem, history: History) -> str:  # noqa: ARG002
        """Best by the known models alone, or after the trials."""
        if not history.tried:
            return f"best by a network that learnt from {len(self.tables.models)} known models"
        return f"best by a network adapted to {len(history.tried)} load tests"

    def _by_value(self, problem: Problem, history: History) -> Floats:
        rows = tuple(self.rows(problem).tolist())
        net = _value_net(ById(problem), self.tables, rows, self.gradient_steps, self.rate)
        at, values = tried_worth(problem, history)
        expected = net.predict()
        if not len(at):
            return expected
        for _ in range(2):  # unit and adapted network depend on each other: iterate
            adapted = net.adapted(at, values / _unit(values, expected[at]), steps=self.gradient_steps, rate=self.rate)
            expected = adapted.predict()
        errors = values / _unit(values, expected[at]) - expected[at]
        off, deviation = residual(net.inputs, at, errors, amplitude=VALUE_DEVIATION, length=RESIDUAL_LENGTH)
        return np.asarray(expected + off + self.explore * deviation)

    def _by_latency(self, problem: Problem, history: History) -> Floats:
        rows = tuple(self.rows(problem).tolist())
        table = known_latency(self.tables, self.rows(problem))
        net, centre, spread = _latency_net(ById(problem.space), self.tables, rows, self.gradient_steps, self.rate)
        at, log_seconds = tried_latency(problem, history)
        values = (log_seconds - centre) / spread
        if len(at):
            # The level first: the work of the model shifts all predictions equally.
            shift = float((values - net.predict()[at]).mean())
            values = values - shift
            net = net.adapted(at, values, steps=self.gradient_steps, rate=self.rate)
            centre += shift * spread
        expected = net.predict()
        off, deviation = residual(
            net.inputs, at, values - expected[at], amplitude=LATENCY_DEVIATION, length=RESIDUAL_LENGTH
        )
        mean = (expected + off) * spread + centre
        limit = np.log(problem.goal.slo.seconds) if problem.goal.slo is not None else np.inf
        keeps = ndtr((limit - mean) / np.maximum(deviation * spread, 1e-9))
        return latency_worth(problem, mean) * keeps * table.ran


def _unit(values: Floats, expected: Floats) -> float:
    """The divisor that makes the values fit the expected ones best, within limits."""
    largest = float(values.max())
    if largest <= 0:
        return 1.0
    likely = np.maximum(expected, 0.0)
    fitted = float(values @ likely / (likely @ likely)) if likely.any() else largest
    return float(np.clip(fitted, largest / 1.2, largest / 0.1))


def _inputs(space: Space) -> Floats:
    """(N, d) the knobs: log2 of numbers, scaled to deviation 1; a column for each option of a choice."""
    encoding = space.encoding
    choices = [knob for knob in space.knobs if knob.is_choice]
    options = [(knob.name, value) for knob in choices for value in knob.values]
    chosen = np.array([[float(config[name] == value) for name, value in options] for config in space.configs])
    every = np.hstack([encoding.counts, chosen.reshape(len(space), len(options))])
    spread = every.std(axis=0)
    return np.asarray((every - every.mean(axis=0))[:, spread > 0] / spread[spread > 0])


@lru_cache(maxsize=64)
def _value_net(problem: ById[Problem], known: Known, rows: tuple[int, ...], steps: int, rate: float) -> MetaNet:
    worth = known_worth(problem.value, known, np.array(rows, dtype=np.intp))
    return meta_train(_inputs(problem.value.space), worth, steps=steps, rate=rate, seed=NETWORK_SEED)


@lru_cache(maxsize=64)
def _latency_net(
    space: ById[Space], known: Known, rows: tuple[int, ...], steps: int, rate: float
) -> tuple[MetaNet, float, float]:
    log_seconds = known_latency(known, np.array(rows, dtype=np.intp)).log_seconds
    centre = float(np.nanmean(log_seconds))
    level = np.nanmean(log_seconds, axis=1, keepdims=True)
    spread = float(np.nanstd(log_seconds - level))
    net = meta_train(_inputs(space.value), (log_seconds - level) / spread, steps=steps, rate=rate, seed=NETWORK_SEED)
    return net, centre, spread
