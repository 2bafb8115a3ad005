"""Predicted speed of every configuration after a history: the Gaussian process applied to a problem."""

import math
import re
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from mlcd.models import gp
from mlcd.models.transformer import log_speed
from mlcd.problem import Problem, ProblemKey
from mlcd.trial.trial import Expectation, History

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class SpeedModel:
    """Posterior of ln(samples/s) at every configuration, and of the run's seconds that follows from it.

    If ln speed ~ N(mu, v), ln(S / speed) ~ N(ln S - mu, v). `startup_seconds` is the mean start-up time of the
    measured trials; it is added to every run.
    """

    log_speed: Floats
    variance: Floats
    log_seconds: Floats
    startup_seconds: float
    posterior: gp.Posterior

    def expectation(self, row: int) -> Expectation:
        """What a trial of the configuration in `row` is expected to measure."""
        return Expectation(
            samples_per_second=math.exp(self.log_speed[row]), deviation=math.sqrt(max(self.variance[row], 0.0))
        )


def speed_model(problem: Problem, history: History) -> SpeedModel | None:
    """The model after the measured trials; None before the first."""
    measured = history.measured
    if not measured:
        return None
    rows = tuple(problem.space.index[t.config] for t in measured)
    values = tuple(float(np.log(t.samples_per_second)) for t in measured)
    errors = tuple(t.relative_error for t in measured)
    with one_thread():
        posterior = _posterior(ProblemKey(problem), rows, values, errors)
        mean, variance = posterior.predict()
    startup = float(np.mean([t.startup_seconds for t in measured]))
    log_seconds = np.log(problem.works) - mean + np.log(problem.stretches)
    # Start-up shifts the run time; the log-normal keeps its shape, which is close enough for minutes against hours.
    log_seconds = np.log(np.exp(log_seconds) + startup)
    return SpeedModel(
        log_speed=mean, variance=variance, log_seconds=log_seconds, startup_seconds=startup, posterior=posterior
    )


def as_expected(model: SpeedModel, row: int) -> SpeedModel:
    """The model as if the trial of `row` had measured its mean: the means stay, the variances shrink."""
    before = model.posterior
    data = gp.Data(
        rows=np.append(before.data.rows, row),
        values=np.append(before.data.values, model.log_speed[row]),
        errors=np.append(before.data.errors, float(before.data.errors.mean())),
    )
    after = gp.at(before.inputs, data, before.theta)
    return replace(model, variance=after.predict()[1], posterior=after)


SETTING_EFFECT = (0.0, 0.3)
"""Effect on ln speed of one deviation of a setting's feature: mean and deviation. Two options with equal shares then
differ by a factor of 2.3 at one deviation, as precisions and micro-batches of trainings do."""
SETTING_BEND = (0.0, 0.1)
"""The same of its square: speed rises with a micro-batch and flattens out."""

SIMILAR_SHARE = (0.5, 0.5)
"""How much of what other jobs on the same types showed holds for this one: mean and deviation of the coefficient, which
the trials then correct. On 60 pairs of different simulated jobs, ln of total over best changed for heterbo by +0.003
+-0.007, and with the sign of the prior reversed, to mislead it, by -0.002 +-0.005: it does no harm. For auto, as of
November 2026, by -0.32 +-0.09 and -0.23 +-0.10: one that misleads helps nearly as much: not yet knowledge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendPrior:
    """What is believed of any training job before it is measured: (mean, deviation) of effects on ln speed.

    rise     of the first doubling of the nodes (perfect scaling: ln 2 = 0.69)
    bend     of the square of the doublings: each further doubling brings 2 x bend more, so it is negative
    price    of a type at twice the price
    feature  deviation of the effect of one deviation of a type's feature, whose mean is 0
    size     of a type of twice the price of another of its family; None: as `price`, whatever the family
    level    ln samples/s of the smallest configuration at the mean price; wide if nothing is known
    peak     of ln of a node's peak by its data sheet, where nodes have accelerators; None: data sheets say nothing

    The defaults are close to fits to measured tables; their widths were chosen by experiment
    (docs/strategies/heterbo.md says how).
    """

    rise: tuple[float, float] = (0.7, 0.08)
    bend: tuple[float, float] = (-0.06, 0.012)
    price: tuple[float, float] = (0.4, 0.25)
    feature: float = 0.2
    size: tuple[float, float] | None = None
    level: tuple[float, float] = (0.0, 10.0)
    peak: tuple[float, float] | None = None


PHYSICAL_SHARE = (1.0, 0.3)
"""How much of what a described model's sizes and the machines' data sheets say holds: mean and deviation of the
coefficient, which the trials then correct. Effects beyond it have mean 0."""


def trend(problem: Problem, prior: TrendPrior | None = None, *, described: bool = True) -> gp.Trend:
    """The prior as a linear trend in ln speed. A count that is not of nodes (a batch) rises by 0.2 +- 0.3.

    described  whether to use the sizes of the model that is trained, where they are known (mlcd.models.transformer)
    """
    prior = prior or TrendPrior()
    encoding = problem.space.encoding
    counts, features = encoding.counts, encoding.features
    node_price = np.log2(problem.node_dollars)
    rows = len(problem.space)
    family = families(problem)
    sizes = node_price - _least_of(family, node_price) if prior.size is not None else np.zeros(rows)
    base = node_price - sizes
    columns = [np.ones((rows, 1)), counts, counts**2, (base - base.mean()).reshape(-1, 1), features]
    depth = features.shape[1]
    # (rise, bend): nodes are well understood; a batch may matter or not.
    known = [
        (prior.rise, prior.bend) if knob.name == "nodes" else ((0.2, 0.3), (0.0, 0.05))
        for knob in problem.space.knobs
        if not knob.is_choice
    ]
    effects = [
        prior.level,
        *[k[0] for k in known],
        *[k[1] for k in known],
        prior.price,
        *[(0.0, prior.feature)] * depth,
    ]
    settings = encoding.settings
    if settings.shape[1]:
        curved = settings[:, [len(np.unique(column)) > 2 for column in settings.T]]
        columns += [settings, curved**2]
        effects += [SETTING_EFFECT] * settings.shape[1] + [SETTING_BEND] * curved.shape[1]
    if prior.size is not None:
        columns.append(sizes.reshape(-1, 1))
        effects.append(prior.size)
    peaks = problem.space.node_tflops
    if prior.peak is not None and peaks is not None:
        columns.append((np.log(peaks) - np.log(peaks).mean()).reshape(-1, 1))
        effects.append(prior.peak)
    if problem.similar:
        columns.append(np.array(problem.similar).reshape(-1, 1))
        effects.append(SIMILAR_SHARE)
    physical = log_speed(problem) if described else None
    if physical is not None:
        effects = [(0.0, deviation) for _, deviation in effects]
        columns.append((physical - physical.mean()).reshape(-1, 1))
        effects.append(PHYSICAL_SHARE)
    means, deviations = np.array(effects).T
    return gp.Trend(columns=np.hstack(columns), means=means, deviations=deviations)


def families(problem: Problem) -> NDArray[np.intp]:
    """(N,) a number for the family of each configuration's instance type: its name without the last part, the size.

    m5.large and m5.xlarge are of one family, and so are n2-standard-4 and n2-standard-8.
    """
    identity = problem.space.encoding.machine
    seen: dict[str, int] = {}
    firsts = np.unique(identity, return_index=True)[1]
    names = (str(problem.space.configs[row].as_dict().get("instance", row)) for row in firsts)
    return np.array([seen.setdefault(_SIZE.sub("", name), len(seen)) for name in names], dtype=np.intp)[identity]


_SIZE = re.compile(r"[.\-_][^.\-_]*$")
"""The last part of a type's name."""


def _least_of(groups: NDArray[np.intp], values: Floats) -> Floats:
    """(N,) the least value of each one's group."""
    least = np.full(int(groups.max()) + 1, np.inf)
    np.minimum.at(least, groups, values)
    return least[groups]


def one_thread() -> AbstractContextManager[object]:
    """Limits BLAS to one thread: for matrices of about thirty rows, more threads only slow it down."""
    limited: AbstractContextManager[object] = _blas().limit(limits=1, user_api="blas")
    return limited


@lru_cache(maxsize=1)
def _blas() -> ThreadpoolController:
    """Cached: finding the libraries takes milliseconds, limiting their threads microseconds."""
    return ThreadpoolController()


@lru_cache(maxsize=8)
def _inputs(key: ProblemKey) -> gp.Inputs:
    return gp.Inputs.of(key.problem.space.encoding, trend(key.problem))


@lru_cache(maxsize=256)
def _posterior(
    key: ProblemKey, rows: tuple[int, ...], values: tuple[float, ...], errors: tuple[float, ...]
) -> gp.Posterior:
    """The fit, warm-started from one with a trial less or, beyond ten trials, with the last multiple of ten.

    The recursion is part of the definition, so the result is the same whether the earlier fits are cached (the usual
    case) or repeated after a resume.
    """
    size = len(rows)
    earlier = size - 1 if size <= 10 else 10 * ((size - 1) // 10)
    start = _posterior(key, rows[:earlier], values[:earlier], errors[:earlier]).theta if earlier else None
    data = gp.Data(rows=np.array(rows, dtype=np.intp), values=np.array(values), errors=np.array(errors))
    return gp.fit(_inputs(key), data, start=start)
