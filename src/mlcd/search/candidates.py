"""Which configurations are still worth considering, and how long a run on each may take."""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from mlcd.models.footprint import chance_to_fit, too_small
from mlcd.problem import Problem
from mlcd.search.heterbo_settings import HeterBOSettings
from mlcd.search.memory_rules import MemoryRules
from mlcd.trial.plan import Remaining, log_margin
from mlcd.trial.trial import FailureKind, History, Measurement

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


LEAST_CHANCE = 0.25
"""A configuration less likely to fit the memory is not tried before those that are more likely. With 0.25, a search
that starts with the cheapest and knows nothing passes from 4 GiB to 128 GiB in about five trials."""


LEAST_CHANCE_DESCRIBED = 0.02
"""The same where a description of the model says what fits: it may be wrong, and the chance counts in a trial's
value."""


def open_rows(problem: Problem, history: History, remaining: Remaining, *, memory: MemoryRules = "named") -> Mask:
    """(N,) whether each configuration is allowed by the ledger, untried, and not ruled out by a failure.

    Out of memory on n nodes rules out what has no more memory (see MemoryRules), a failed job fewer nodes of its type
    with the same settings, a lack of cloud capacity more nodes of its type with any. If the number of nodes is fixed, a
    failure says nothing about other configurations. What is merely unlikely to fit opens when nothing more likely is
    left.
    """
    mask = remaining.allowed.copy()
    identity, nodes = problem.space.encoding.identity, problem.nodes
    for config in history.tried:
        mask[problem.space.index[config]] = False
    if all(knob.name != "nodes" for knob in problem.space.knobs):
        return mask
    workers = problem.space.worker_memory if memory != "off" else None
    exhausted = []
    for failure in history.failures:
        row = problem.space.index[failure.config]
        if failure.kind is FailureKind.OUT_OF_MEMORY and workers is not None:
            exhausted.append(row)
        elif failure.kind in (FailureKind.OUT_OF_MEMORY, FailureKind.ERROR):
            mask &= ~((identity == identity[row]) & (nodes <= nodes[row]))
        elif failure.kind is FailureKind.CAPACITY:
            machine = problem.space.encoding.machine
            mask &= ~((machine == machine[row]) & (nodes >= nodes[row]))
    if workers is not None:
        mask &= ~too_small(workers, exhausted)
    if memory in ("likely", "named") and mask.any():
        chance = chance_to_fit(problem, history, use_name=memory == "named")
        if chance is not None:
            least = LEAST_CHANCE if problem.transformer is None else LEAST_CHANCE_DESCRIBED
            mask &= chance >= min(least, float(chance[mask].max()) / 2)
            mask = _in_large_steps(problem, history, mask)
    return mask


def _in_large_steps(problem: Problem, history: History, mask: Mask) -> Mask:
    """`mask` without workers like those that ran out of memory, in numbers under twice theirs.

    The largest number that `mask` has of them stays, and all of them if nothing else is left.

    Only while such workers, of the same kind and memory whatever their type, have never fitted: then the edge matters.
    Settings that may need less memory are other workers.
    """
    workers = problem.space.worker_memory
    if workers is None:
        return mask
    close = np.zeros(len(mask), dtype=bool)
    fitted = [problem.space.index[trial.config] for trial in history.measured]
    for failure in history.failures:
        if failure.kind is not FailureKind.OUT_OF_MEMORY:
            continue
        row = problem.space.index[failure.config]
        held = workers.split * workers.count
        alike = (workers.accelerated == workers.accelerated[row]) & (workers.gib == workers.gib[row])
        alike &= (workers.group == workers.group[row]) & (held >= held[row])
        if not alike[fitted].any() and (alike & mask).any():
            most = workers.count[alike & mask].max()
            close |= alike & (workers.count < min(2 * workers.count[row], most))
    return mask & ~close if (mask & ~close).any() else mask


def rising_rows(problem: Problem, history: History, settings: HeterBOSettings) -> Mask:
    """(N,) False beyond the peak of an instance type's speed curve: HeterBO's concave prior (paper III-C).

    Take two nearby deployments of one type: n1 < n2 nodes, none measured between them, apart by at most
    `prune_gap_nodes` or `prune_gap_share` of n2. If the larger is slower by `bound_sigmas` of both their errors,
    more than n2 nodes of that type are not worth a trial.
    """
    mask = np.ones(len(problem.space), dtype=bool)
    identity, nodes = problem.space.encoding.identity, problem.nodes
    by_type: dict[int, list[Measurement]] = {}
    for trial in history.measured:
        by_type.setdefault(int(identity[problem.space.index[trial.config]]), []).append(trial)
    for kind, trials in by_type.items():
        trials.sort(key=lambda t: t.config.nodes)
        for small, large in pairwise(trials):
            fall = np.log(small.samples_per_second / large.samples_per_second)
            n1, n2 = small.config.nodes, large.config.nodes
            nearby = n2 - n1 <= max(settings.prune_gap_nodes, settings.prune_gap_share * n2)
            if nearby and fall > settings.bound_sigmas * np.hypot(small.relative_error, large.relative_error):
                mask &= ~((identity == kind) & (nodes > n2))
    return mask


FAILED_SHARE = 0.5
"""The share of jobs that fail on a configuration because it is too small, of those that fail for an unknown reason."""
SIZE_DEVIATION = 0.3
"""Deviation of ln price at which a configuration counts as no larger than a failed one."""


def chance_to_run(problem: Problem, history: History, share: float = FAILED_SHARE) -> Floats:
    """(N,) the probability that the job runs at all, after failures without a known reason.

    A job that fails may need more than the deployment has: those with no larger nodes, by their price, and those that
    are no larger in all, become less likely. What is at least as large as one that ran will run. Where the job
    describes its model, also the probability that it fits into memory.
    """
    chance = np.ones(len(problem.space))
    fits = None if problem.transformer is None else chance_to_fit(problem, history)
    fits = None if fits is None else np.maximum(fits, LEAST_CHANCE_DESCRIBED)
    unexplained = [failure for failure in history.failures if failure.kind is FailureKind.ERROR]
    if not unexplained:
        return chance if fits is None else fits
    whole = np.log(problem.dollars_per_second)
    node = whole - np.log(problem.nodes)
    for failure in unexplained:
        row = problem.space.index[failure.config]
        for size in (node, whole):
            chance *= 1 - share * ndtr((size[row] - size) / SIZE_DEVIATION + 0.5)
    for trial in history.measured:
        row = problem.space.index[trial.config]
        chance = np.where((node >= node[row] - 1e-9) & (whole >= whole[row] - 1e-9), 1.0, chance)
    return chance if fits is None else chance * fits


_LEAST_SECONDS = 1e-6
"""Of a training that is sure not to fit: models need a finite logarithm."""


def log_seconds_that_fit(problem: Problem, remaining: Remaining) -> Floats:
    """(N,) ln of the longest run that would still fit, at its upper bound, after a trial of each configuration."""
    longest = np.full(len(problem.space), np.inf)
    trial = problem.planned_trial_seconds
    if remaining.seconds is not None:
        longest = np.minimum(longest, remaining.seconds - trial)
    if remaining.usd is not None:
        moved = (problem.trial_move_dollars + problem.move_dollars) / problem.dollars_per_second
        longest = np.minimum(longest, remaining.usd.dollars / problem.dollars_per_second - trial - moved)
    margin = log_margin(problem, problem.noise) if remaining.guarded else 0.0
    with np.errstate(divide="ignore"):
        least = _LEAST_SECONDS if problem.moves else 0.0  # where a trial fits, its data and the training's may not
        return np.asarray(np.log(np.maximum(longest, least)) - margin)
