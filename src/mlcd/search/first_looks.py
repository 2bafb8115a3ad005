"""First trials: a cheap look at each instance type whose speed is unknown, or points spread over the space."""

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from mlcd.problem import Problem
from mlcd.trial.trial import FailureKind, History, Suggestion

Mask = NDArray[np.bool_]


def known_types(problem: Problem, history: History) -> set[int]:
    """The types (by Encoding.machine) with a measured speed."""
    identity = problem.space.encoding.machine
    return {int(identity[problem.space.index[trial.config]]) for trial in history.measured}


def first_looks(problem: Problem, history: History, candidates: Mask, *, in_the_middle: bool = False) -> list[int]:
    """A row for each type without a measured speed: the cheapest of each kind, then the second cheapest, and so on.

    The row has the type's fewest nodes or, with `in_the_middle`, the geometric middle of those that may be tried. After
    a failure on n nodes, the type is tried next on more than n; after running out of memory, on at least 2 n; on any
    number, if no speed is known yet and no candidate has so many. Where there are settings, the first ones that may be
    tried are taken, and after a failure others on as many nodes.
    """
    encoding, nodes = problem.space.encoding, problem.nodes
    known, least = known_types(problem, history), _least_nodes(problem, history)
    enough = candidates & (nodes >= np.array([least[type_] for type_ in encoding.machine.tolist()]))
    if enough.any() or known:
        candidates = enough
    firsts = []
    for type_ in np.unique(encoding.machine[candidates]).tolist():
        if type_ in known:
            continue
        rows = np.flatnonzero(candidates & (encoding.machine == type_))
        wanted = np.sqrt(nodes[rows].min() * nodes[rows].max()) if in_the_middle else nodes[rows].min()
        firsts.append(int(rows[np.abs(np.log(nodes[rows] / wanted)).argmin()]))
    firsts.sort(key=lambda row: (problem.worst_trial_micros[row], row))
    seen: Counter[int] = Counter()
    turns = []
    for row in firsts:
        turns.append(seen[int(encoding.kind[row])])
        seen[int(encoding.kind[row])] += 1
    return [row for _, row in sorted(zip(turns, firsts, strict=True), key=lambda pair: pair[0])]


def one_of_each_kind(problem: Problem, history: History, candidates: Mask) -> list[int]:
    """The cheapest type of every kind of machine not measured yet; if all are of one kind, also the median-priced one.

    Two trials of one kind show what a more expensive machine brings; one of every accelerator shows which is worth it.
    """
    kind = problem.space.encoding.kind
    known = Counter(int(kind[problem.space.index[trial.config]]) for trial in history.measured)
    if not kind.any():
        return (
            _cheapest_and_median(first_looks(problem, history, candidates), known.total()) if known.total() < 2 else []
        )
    if len(known) > int(kind.max()):
        return []
    cheapest: dict[int, int] = {}
    for row in first_looks(problem, history, candidates):
        cheapest.setdefault(int(kind[row]), row)
    return [row for each, row in cheapest.items() if not known[each]]


def spread_start(
    problem: Problem, history: History, candidates: Mask, *, seed: int, count: int
) -> tuple[Suggestion, ...]:
    """Points of an additive quasi-random sequence over (types by price, node counts), those after the tried ones."""
    rows = np.flatnonzero(candidates)
    rows = rows[np.lexsort((problem.nodes[rows], problem.dollars_per_second[rows] / problem.nodes[rows]))]
    types = np.unique(problem.space.encoding.machine[rows], return_index=True)[1]
    identities = problem.space.encoding.machine[rows][np.sort(types)]
    offset = np.random.default_rng(seed).random(2)
    chosen: list[int] = []
    for k in range(len(history.tried), len(history.tried) + count):
        u, v = (offset + k * np.array([0.7548776662, 0.5698402910])) % 1
        kind = identities[int(u * len(identities))]
        curve = [row for row in rows if problem.space.encoding.machine[row] == kind and row not in chosen]
        if curve:
            chosen.append(int(curve[int(v * len(curve))]))
    return tuple(Suggestion(config=problem.space.configs[r], reason="a quasi-random start") for r in chosen)


def _cheapest_and_median(firsts: list[int], made: int) -> list[int]:
    """Of first trials in order of price: the first, then the middle one of the rest, without those already made."""
    middle = len(firsts) // 2
    if made:
        return firsts[middle : middle + 1]
    return [*firsts[:1], *firsts[middle + 1 : middle + 2]]


def _least_nodes(problem: Problem, history: History) -> Counter[int]:
    least: Counter[int] = Counter()
    if problem.space.settings:
        return least
    for trial in history.failures:
        nodes = trial.config.nodes
        more = 2 * nodes if trial.kind is FailureKind.OUT_OF_MEMORY else nodes + 1
        of_type = int(problem.space.encoding.machine[problem.space.index[trial.config]])
        least[of_type] = max(least[of_type], more)
    return least
