"""How much memory a worker of the job needs, as far as trials and the model's name tell.

A worker needs f = R + V x (its share of a step's samples) GiB. R is what every worker holds (weights, gradients and
optimiser where they are replicated); V is what the workers split (activations, and sharded states). So f does not grow
with the number of workers. Out of memory on w workers with m GiB means f(w) > m; a measured speed means f(w) <= m.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from mlcd.models.transformer import memory_gib
from mlcd.problem import Problem, ProblemKey
from mlcd.space import WorkerMemory
from mlcd.trial.trial import Failure, FailureKind, History, Measurement, Trial

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

GIB = 1024.0**3

TOTAL_GIB = (0.25, 4096.0)
"""Without a name, one worker alone needs between these, each order of magnitude equally likely: from a small CNN to
a model of 70e9 parameters with its activations."""
SPLIT_SHARES = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)
"""Without a name, the share of it that workers split, all equally likely."""
STATE_BYTES = (8.0, 12.0, 16.0, 20.0)
"""Bytes per parameter of weights, gradients and optimiser, all equally likely: SGD in fp32 (8), with momentum (12),
Adam in fp32 or in mixed precision (16; Rajbhandari et al., ZeRO, SC 2020), with a copy for averaging (20)."""
SHARDED = 0.5
"""Probability that the states are split over the workers. With 0.3, large sharded models were kept away from all
accelerators (one of 12 random simulated jobs ended at 57 times the best)."""
ACTIVATIONS_GIB = (0.1, 2048.0)
"""Activations of a whole step, each order of magnitude equally likely."""
PROCESSOR_FACTORS = ((0.7, 0.15), (1.0, 0.35), (1.4, 0.35), (2.0, 0.15))
"""Memory of a node whose processors train over that of an accelerator, with probabilities: full instead of mixed
precision, and the operating system, against an accelerator's own context."""
EDGE = 0.1
"""Deviation of log f between two equal workers: fragmentation, and what else the node runs."""
ROWS_AT_ONCE = 4096
"""Configurations times hypotheses in one array: 32 MiB, whatever the size of the space."""
LEAST_WEIGHT = 1e-6
"""Hypotheses with less of the largest weight are ignored."""


@dataclass(frozen=True, kw_only=True)
class _Hypotheses:
    """(P,) each: R, V, the factor of processors, and the logarithm of the weight."""

    replicated_gib: Floats
    split_gib: Floats
    processor_factor: Floats
    log_weight: Floats


def too_small(space_memory: WorkerMemory, rows: list[int]) -> Mask:
    """(N,) whether each configuration must run out of memory because one of `rows` did.

    It has no more memory per worker, no more workers, and no smaller share of the samples on each; and like the failed
    one it trains on accelerators, or does not. Its settings need no less memory, where they say so, and are the same
    where they do not. Nothing is assumed but that f does not grow with the workers.
    """
    at = space_memory
    out = np.zeros(len(at.gib), dtype=bool)
    for row in rows:
        out |= (
            (at.accelerated == at.accelerated[row])
            & (at.gib <= at.gib[row])
            & (at.count <= at.count[row])
            & (at.split >= at.split[row])
            & (at.needs >= at.needs[row]).all(axis=1)
            & (at.others == at.others[row])
        )
    return out


def chance_to_fit(problem: Problem, history: History, *, use_name: bool = True) -> Floats | None:
    """(N,) the probability that the job fits the memory of each configuration.

    None if nothing is known: no workers, or neither a failure for lack of memory nor, with `use_name`, the number of
    parameters of the model that the job names. A trial says nothing about other settings, but for those that only
    change how many samples a worker holds.
    """
    at = problem.space.worker_memory
    failures = [f for f in history.failures if f.kind is FailureKind.OUT_OF_MEMORY]
    described = _described(ProblemKey(problem)) if use_name else None
    if at is not None and described is not None:
        return _chances_described(*described, at, problem, history)
    parameters = problem.parameters if use_name else None
    if at is None or not (failures or parameters):
        return None
    prior = _unnamed() if parameters is None else _named(parameters)
    tried = {int(at.group[problem.space.index[trial.config]]) for trial in history}
    chances = np.empty(len(at.gib))
    for group in (*sorted(tried), None):  # None: all settings without a trial, of which nothing is known
        rows = np.flatnonzero(~np.isin(at.group, list(tried)) if group is None else at.group == group)
        if not len(rows):
            continue
        own = tuple(t for t in history if group is not None and at.group[problem.space.index[t.config]] == group)
        chances[rows] = _chances(_posterior(prior, problem, at, own), at, rows)
    return chances


DESCRIBED_FACTORS = ((0.6, 0.3), (0.4, 1.5))
"""Memory over what a description says: (probability, deviation of its logarithm) of a right one and of a wrong one.
With 0.15 for a wrong one and 1.2, searches under wrong descriptions ended early: 45% within 5% of the best, of 82%."""


def _chances_described(
    states: Floats, activations: Floats, at: WorkerMemory, problem: Problem, history: History
) -> Floats:
    """(N,) the probability to fit: states and activations are as described, times factors that trials correct."""
    steps = np.linspace(-5.0, 5.0, 31)
    density = sum(weight / sd * np.exp(-0.5 * (steps / sd) ** 2) for weight, sd in DESCRIBED_FACTORS)
    a, b = (np.exp(each).reshape(-1) for each in np.meshgrid(steps, steps))
    log_weight = np.log(np.outer(density, density).T.reshape(-1))
    for trial in history:
        if isinstance(trial, Failure) and trial.kind is not FailureKind.OUT_OF_MEMORY:
            continue
        row = problem.space.index[trial.config]
        margin = np.log(at.gib[row] / (a * states[row] + b * activations[row])) / EDGE
        fitted = isinstance(trial, Measurement)
        log_weight = log_weight + np.log(np.maximum(ndtr(margin if fitted else -margin), LEAST_WEIGHT))
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    kept = weight > LEAST_WEIGHT * weight.max()
    needs, where = np.unique(np.stack([at.gib, states, activations], axis=1), axis=0, return_inverse=True)
    chances = np.empty(len(needs))
    for start in range(0, len(needs), ROWS_AT_ONCE):
        part = needs[start : start + ROWS_AT_ONCE]
        fits = part[:, 1:2] * a[kept] + part[:, 2:3] * b[kept] <= part[:, :1]
        chances[start : start + ROWS_AT_ONCE] = np.minimum(fits @ weight[kept], 1.0)
    return np.asarray(chances[where.reshape(-1)])


@lru_cache(maxsize=8)
def _described(key: ProblemKey) -> tuple[Floats, Floats] | None:
    return memory_gib(key.problem)


def _chances(kept: _Hypotheses, at: WorkerMemory, rows: NDArray[np.intp]) -> Floats:
    """The probability that the job fits the memory of these configurations."""
    needs = np.stack([at.gib[rows], at.split[rows], at.accelerated[rows].astype(float)], axis=1)
    alike, where = np.unique(needs, axis=0, return_inverse=True)
    weight = np.exp(kept.log_weight - kept.log_weight.max())
    chances = np.empty(len(alike))
    for start in range(0, len(alike), ROWS_AT_ONCE):
        part = alike[start : start + ROWS_AT_ONCE]
        fits = _needed_gib(kept, part[:, 1], part[:, 2] > 0) <= part[:, :1]
        chances[start : start + ROWS_AT_ONCE] = np.minimum(fits @ weight / weight.sum(), 1.0)
    return np.asarray(chances[where.reshape(-1)])


def _needed_gib(hypotheses: _Hypotheses, split: Floats, accelerated: Mask) -> Floats:
    """(U, P) what each hypothesis says that a worker needs."""
    gib = hypotheses.replicated_gib + split[:, None] * hypotheses.split_gib
    return np.where(accelerated[:, None], gib, gib * hypotheses.processor_factor)


def _posterior(prior: _Hypotheses, problem: Problem, at: WorkerMemory, history: Iterable[Trial]) -> _Hypotheses:
    """The hypotheses that agree with the trials, each trial weighing with the chance of its outcome."""
    log_weight = prior.log_weight
    for trial in history:
        if isinstance(trial, Failure) and trial.kind is not FailureKind.OUT_OF_MEMORY:
            continue
        fitted = isinstance(trial, Measurement)
        row = [problem.space.index[trial.config]]
        needed = _needed_gib(prior, at.split[row], at.accelerated[row])[0]
        margin = np.log(at.gib[row[0]] / needed) / EDGE
        # A floor, so that contradicting trials leave something: a leak, or a neighbour's job.
        log_weight = log_weight + np.log(np.maximum(ndtr(margin if fitted else -margin), LEAST_WEIGHT))
    kept = log_weight >= log_weight.max() + math.log(LEAST_WEIGHT)
    return _Hypotheses(
        replicated_gib=prior.replicated_gib[kept],
        split_gib=prior.split_gib[kept],
        processor_factor=prior.processor_factor[kept],
        log_weight=log_weight[kept],
    )


def _unnamed() -> _Hypotheses:
    totals = np.geomspace(*TOTAL_GIB, 48)
    return _crossed([(total * (1 - share), total * share, 1.0) for total in totals.tolist() for share in SPLIT_SHARES])


def _named(parameters: float) -> _Hypotheses:
    states = [parameters * each / GIB for each in STATE_BYTES]
    activations = np.geomspace(*ACTIVATIONS_GIB, 32).tolist()
    return _crossed(
        [(state, split, 1 - SHARDED) for state in states for split in activations]
        + [(0.0, state + split, SHARDED) for state in states for split in activations]
    )


def _crossed(cases: list[tuple[float, float, float]]) -> _Hypotheses:
    """Each (R, V, weight) with each factor of processors."""
    table = np.array([(*case, *factor) for case in cases for factor in PROCESSOR_FACTORS])
    return _Hypotheses(
        replicated_gib=table[:, 0],
        split_gib=table[:, 1],
        processor_factor=table[:, 3],
        log_weight=np.log(table[:, 2] * table[:, 4]),
    )
