"""Speed of every configuration as a mixture: several beliefs about training jobs, weighted by how well each predicted.

Each belief is a Gaussian process in ln speed (mlcd.models.gp) with fixed hyperparameters: a smooth job that scales, a
rough one, and so on. Before the first trial the mixture is the prior, so that first looks are chosen like all others.
After trials, a belief's weight is its prior weight times the likelihood that it gave to what was measured. A mixture
has the wide tails that a single process of few trials lacks, and needs no optimisation: it takes a factorisation per
belief.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from mlcd.models import gp
from mlcd.models.speed import TrendPrior, one_thread, trend
from mlcd.problem import Problem, ProblemKey
from mlcd.trial.trial import Expectation, History

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """One kind of training job: its trend, and how far jobs of this kind are from it. Lengths are as in gp.HyperPrior.

    weight  share of the jobs that are of this kind
    shared  deviation of what similar types share; `own` of a single type's curve; `whole` of what depends on the
            cluster's total memory; `quirk` of a single configuration
    described  whether it believes what the sizes of the model say, where the job describes it
    """

    weight: float
    trend: TrendPrior
    shared: float
    own: float
    whole: float
    quirk: float
    count_length: float
    feature_length: float
    total_length: float
    described: bool = True

    def theta(self, inputs: gp.Inputs) -> Floats:
        """The hyperparameters in the order of mlcd.models.gp."""
        counts, features = (
            [self.count_length] * inputs.counts.shape[1],
            [self.feature_length] * inputs.features.shape[1],
        )
        totals = [self.total_length] * inputs.totals.shape[1]
        usual, columns = gp.HyperPrior(), inputs.settings.shape[1]
        lengths = [usual.setting_length[0]] * columns
        settings = [usual.setting[0], usual.own_setting[0], *lengths] if columns else []
        return np.log([self.shared, self.own, *counts, *features, self.whole, *totals, self.quirk, *settings])


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """What is known of ln(work / speed) before any trial: of the fastest or the cheapest configuration as expected.

    log_seconds  ln seconds of the run on the configuration expected to be fastest; None if there is no deadline
    log_usd      ln USD of the run on the configuration expected to be cheapest; None if there is no budget
    deviation    standard deviation of both
    """

    log_seconds: float | None
    log_usd: float | None
    deviation: float


PEAK = (0.5, 0.25)
"""Effect of ln of a node's peak on ln of its speed where some nodes have accelerators: mean and deviation. In the
ribbon tables (inference in fp32, processors against a T4) it is 0.2 for recommenders to 0.5 for convolutional
networks; between published trainings of one network in mixed precision on a large processor, a V100 and an H100, 0.6 to
0.8. Not chosen on the simulator, whose speeds follow the peaks more closely than real ones do."""

BELIEFS = (
    Belief(
        weight=0.15,
        trend=TrendPrior(
            rise=(0.5, 0.3), bend=(-0.015, 0.015), price=(-0.06, 0.12), feature=0.12, size=(0.2, 0.15), peak=PEAK
        ),
        shared=0.06,
        own=0.06,
        whole=0.06,
        quirk=0.04,
        count_length=4.0,
        feature_length=2.5,
        total_length=2.0,
    ),
    Belief(
        weight=0.45,
        trend=TrendPrior(
            rise=(0.85, 0.1), bend=(-0.075, 0.015), price=(0.35, 0.2), feature=0.18, size=(0.39, 0.13), peak=PEAK
        ),
        shared=0.39,
        own=0.12,
        whole=0.2,
        quirk=0.03,
        count_length=1.7,
        feature_length=2.5,
        total_length=2.8,
    ),
    Belief(
        weight=0.15,
        trend=TrendPrior(
            rise=(0.4, 0.2), bend=(-0.015, 0.03), price=(0.0, 0.2), feature=0.17, size=(0.3, 0.14), peak=PEAK
        ),
        shared=0.36,
        own=0.16,
        whole=0.85,
        quirk=0.19,
        count_length=3.8,
        feature_length=2.9,
        total_length=2.0,
    ),
    Belief(
        weight=0.25,
        trend=TrendPrior(
            rise=(0.85, 0.1), bend=(-0.075, 0.015), price=(-0.05, 0.1), feature=0.13, size=(0.2, 0.1), peak=PEAK
        ),
        shared=0.39,
        own=0.12,
        whole=0.2,
        quirk=0.03,
        count_length=1.7,
        feature_length=2.5,
        total_length=2.8,
    ),
)
"""Four kinds of training jobs: smooth ones that scale badly; the common kind, which is faster on dearer families; rough
ones for which price and nodes say little; and those for which a dearer family is no faster. Fitted to the seen
workloads of scout, multicloud and trimtuner and to the simulator's jobs, each source with the same weight: the mean log
density of the speeds of all other configurations after 1 to 8 random trials, by coordinate search, rounded. Within a
family, twice the price brings a factor of 1.2 (multicloud, trimtuner) to 1.8 (scout); between families, nothing on
these tables, and more on the simulator's accelerators: so both are told apart."""


@dataclass(frozen=True, kw_only=True)
class MixedModel:
    """Posterior of ln seconds of the run on each of N configurations, as a mixture of M normal distributions.

    weights (M,); log_speed, log_seconds and variance (M, N); data are the measured trials, each with its error
    """

    weights: Floats
    log_speed: Floats
    log_seconds: Floats
    variance: Floats
    startup_seconds: float
    data: gp.Data
    processes: tuple[tuple[gp.Inputs, Floats], ...]

    @property
    def mean(self) -> Floats:
        """(N,) the mixture's mean of ln seconds."""
        return np.asarray(self.weights @ self.log_seconds)

    def expectation(self, row: int) -> Expectation | None:
        """What a trial of the configuration in `row` is expected to measure; None before the first trial."""
        if not len(self.data.rows):
            return None
        speeds = self.log_speed[:, row]
        mean = float(self.weights @ speeds)
        variance = float(self.weights @ (self.variance[:, row] + (speeds - mean) ** 2))
        return Expectation(samples_per_second=math.exp(mean), deviation=math.sqrt(variance))


def mixed_model(
    problem: Problem, history: History, beliefs: tuple[Belief, ...] = BELIEFS, level: Level | None = None
) -> MixedModel:
    """The mixture after the measured trials; before the first one, the prior."""
    measured = history.measured
    data = gp.Data(
        rows=np.array([problem.space.index[t.config] for t in measured], dtype=np.intp),
        values=np.log([t.samples_per_second for t in measured]),
        errors=np.array([t.relative_error for t in measured]),
    )
    beliefs = _with_doubt(problem, beliefs)
    inputs = _inputs(ProblemKey(problem), beliefs, level)
    processes = tuple((each, belief.theta(each)) for each, belief in zip(inputs, beliefs, strict=True))
    weights = np.log([belief.weight for belief in beliefs])
    if measured:
        with one_thread():
            posteriors = [gp.at(process[0], data, process[1]) for process in processes]
            moments = [posterior.predict() for posterior in posteriors]
        weights = weights + [posterior.log_likelihood for posterior in posteriors]
    else:
        moments = [gp.prior_moments(*process) for process in processes]
    weights = np.exp(weights - weights.max())
    speed = np.array([mean for mean, _ in moments])
    startup = float(np.mean([t.startup_seconds for t in measured])) if measured else 0.0
    return MixedModel(
        weights=weights / weights.sum(),
        log_speed=speed,
        log_seconds=np.log(np.exp(np.log(problem.works * problem.stretches) - speed) + startup),
        variance=np.array([variance for _, variance in moments]),
        startup_seconds=startup,
        data=data,
        processes=processes,
    )


def as_expected(model: MixedModel, row: int, error: float) -> MixedModel:
    """The model as if the trial of `row` had measured its mean with this error: only the variances change."""
    variances = []
    data = replace(model.data, rows=np.append(model.data.rows, row), errors=np.append(model.data.errors, error))
    with one_thread():
        for process, speed in zip(model.processes, model.log_speed, strict=True):
            after = gp.at(process[0], replace(data, values=np.append(model.data.values, speed[row])), process[1])
            variances.append(after.predict()[1])
    return replace(
        model,
        variance=np.array(variances),
        data=replace(data, values=np.append(model.data.values, float(model.weights @ model.log_speed[:, row]))),
    )


@lru_cache(maxsize=8)
def _inputs(key: ProblemKey, beliefs: tuple[Belief, ...], level: Level | None) -> tuple[gp.Inputs, ...]:
    """The space as each belief sees it."""
    problem = key.problem
    shape = gp.Inputs.of(problem.space.encoding, trend(problem))
    trends = (trend(problem, belief.trend, described=belief.described) for belief in beliefs)
    return tuple(replace(shape, trend=_levelled(problem, each, level)) for each in trends)


DESCRIPTION_WEIGHT = 0.5
"""Before any trial, the probability that a description of the model helps: sizes may be mistyped by factors."""


def _with_doubt(problem: Problem, beliefs: tuple[Belief, ...]) -> tuple[Belief, ...]:
    """The beliefs, and where the job describes its model the same again without the description."""
    if problem.transformer is None:
        return beliefs
    doubting = (replace(each, weight=(1 - DESCRIPTION_WEIGHT) * each.weight, described=False) for each in beliefs)
    return (*(replace(each, weight=DESCRIPTION_WEIGHT * each.weight) for each in beliefs), *doubting)


def _levelled(problem: Problem, free: gp.Trend, level: Level | None) -> gp.Trend:
    """The trend with the constant that makes its fastest or cheapest configuration take what `level` expects."""
    if level is None:
        return free
    expected = free.columns @ free.means - np.log(problem.works * problem.stretches)
    constants = []
    if level.log_seconds is not None:
        constants.append(-level.log_seconds - float(expected.max()))
    if level.log_usd is not None:
        constants.append(float((np.log(problem.dollars_per_second) - expected).min()) - level.log_usd)
    means, deviations = free.means.copy(), free.deviations.copy()
    means[0], deviations[0] = float(np.mean(constants)), level.deviation
    return replace(free, means=means, deviations=deviations)
