"""Which configurations are still worth considering, and how long a run on each may take."""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from mlcd.problem import Problem
from mlcd.search.heterbo_settings import HeterBOSettings
from mlcd.trial.plan import Remaining, log_margin
from mlcd.trial.trial import FailureKind, History, Measurement

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


def open_rows(problem: Problem, history: History, remaining: Remaining) -> Mask:
    """(N,) whether each configuration is allowed by the ledger, untried, and not ruled out by a failure.

    Out of memory on n nodes rules out fewer nodes of that type; a lack of cloud capacity rules out more.
    If the number of nodes is fixed, a failure says nothing about other configurations.
    """
    mask = remaining.allowed.copy()
    identity, nodes = problem.space.encoding.identity, problem.nodes
    for config in history.tried:
        mask[problem.space.index[config]] = False
    if all(knob.name != "nodes" for knob in problem.space.knobs):
        return mask
    for failure in history.failures:
        row = problem.space.index[failure.config]
        if failure.kind in (FailureKind.OUT_OF_MEMORY, FailureKind.ERROR):
            mask &= ~((identity == identity[row]) & (nodes <= nodes[row]))
        elif failure.kind is FailureKind.CAPACITY:
            mask &= ~((identity == identity[row]) & (nodes >= nodes[row]))
    return mask


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


def log_seconds_that_fit(problem: Problem, remaining: Remaining) -> Floats:
    """(N,) ln of the longest run that would still fit, at its upper bound, after a trial of each configuration."""
    longest = np.full(len(problem.space), np.inf)
    trial = problem.planned_trial_seconds
    if remaining.seconds is not None:
        longest = np.minimum(longest, remaining.seconds - trial)
    if remaining.usd is not None:
        longest = np.minimum(longest, remaining.usd.dollars / problem.dollars_per_second - trial)
    margin = log_margin(problem, problem.noise) if remaining.guarded else 0.0
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.maximum(longest, 0.0)) - margin)
