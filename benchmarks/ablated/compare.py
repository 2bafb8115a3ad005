"""Losses with and without a change, paired by workload, with an interval over workloads."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

DRAWS = 4000
EARNS, NOISE, COSTS, TOO_FEW = "earns", "less than its noise", "costs", "too few workloads"
LEAST_WORKLOADS = 5
"""With fewer workloads, an interval over workloads is meaningless."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One run. `loss` is relative to the optimum or to `informed`, 1 at best unless its bed defines it otherwise."""

    bed: str
    workload: str
    unseen: bool
    seed: int
    loss: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A setting that differs from its default.

    part  what is removed or replaced, for the page
    text  the strategy or scheduler with the changed option
    beds  words, one of which a bed's name must contain; empty: every bed
    """

    part: str
    text: str
    beds: tuple[str, ...] = ()

    def concerns(self, bed: str) -> bool:
        """Whether the change can have an effect on this bed."""
        return not self.beds or any(word in bed for word in self.beds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One change on one bed, or on all of them.

    difference  mean loss with the change minus that without: above 0, the changed part is useful
    interval    95% bootstrap interval of the difference over workloads
    """

    method: str
    part: str
    change: str
    bed: str
    workloads: str
    count: int
    default: float
    changed: float
    difference: float
    interval: tuple[float, float]
    verdict: str


def lines(
    method: str, change: Change, default: Sequence[Outcome], changed: Sequence[Outcome], *, unseen: bool
) -> list[Line]:
    """One line for all beds that the change concerns, then one for each; for seen or unseen workloads."""
    before = {_key(o): o for o in default if o.unseen == unseen}
    pairs = [(before[_key(o)], o) for o in changed if _key(o) in before]
    beds = list(dict.fromkeys(o.bed for o, _ in pairs))
    groups = [("all", pairs)] if len(beds) > 1 else []
    groups += [(bed, [pair for pair in pairs if pair[0].bed == bed]) for bed in beds]
    return [_line(method, change, bed, group, unseen=unseen) for bed, group in groups]


def _key(outcome: Outcome) -> tuple[str, str, int]:
    return outcome.bed, outcome.workload, outcome.seed


def _line(method: str, change: Change, bed: str, pairs: list[tuple[Outcome, Outcome]], *, unseen: bool) -> Line:
    by_workload: dict[str, list[float]] = {}
    for before, after in pairs:
        by_workload.setdefault(before.workload, []).append(after.loss - before.loss)
    low, high = interval(list(by_workload.values()))
    return Line(
        method=method,
        part=change.part,
        change=change.text,
        bed=bed,
        workloads="unseen" if unseen else "seen",
        count=len(by_workload),
        default=float(np.mean([before.loss for before, _ in pairs])),
        changed=float(np.mean([after.loss for _, after in pairs])),
        difference=float(np.mean([after.loss - before.loss for before, after in pairs])),
        interval=(low, high),
        verdict=_verdict(len(by_workload), low, high),
    )


def _verdict(workloads: int, low: float, high: float) -> str:
    if workloads < LEAST_WORKLOADS:
        return TOO_FEW
    return EARNS if low > 0 else COSTS if high < 0 else NOISE


def interval(groups: Sequence[Sequence[float]]) -> tuple[float, float]:
    """95% interval of the mean by resampling groups: runs of one workload are not independent."""
    sums = np.array([sum(group) for group in groups])
    counts = np.array([len(group) for group in groups])
    picks = np.random.default_rng(0).integers(len(sums), size=(DRAWS, len(sums)))
    means = sums[picks].sum(axis=1) / counts[picks].sum(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)
