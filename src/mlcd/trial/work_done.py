"""The work that trials and earlier attempts have done; each sample counts for what it is worth at its batch."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from mlcd.problem import Problem
from mlcd.space import Config
from mlcd.trial.trial import Measurement, Trial


class Trained(Protocol):
    """Something that trained: a trial, or an attempt at the whole training."""

    @property
    def config(self) -> Config: ...  # noqa: D102
    @property
    def reached_samples(self) -> float: ...  # noqa: D102


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkDone:
    """Work done, in samples at the reference batch; `learned` are (work done, metric) in the order of the training."""

    samples: float
    learned: tuple[tuple[float, float], ...] = ()


def work_done(problem: Problem, trials: Iterable[Trial], earlier: Iterable[Trained] = ()) -> WorkDone:
    """The work done so far. Each trial continued from the furthest checkpoint; one that did not get further adds 0."""
    reached = done = 0.0
    learned: list[tuple[float, float]] = []
    steps: tuple[Trained, ...] = (*trials, *earlier)
    for step in steps:
        worth = problem.worth(step.config) if problem.batching is not None else 1.0
        if isinstance(step, Measurement):
            points = [p for p in step.learned if p.samples >= reached]
            learned += [(done + (point.samples - reached) * worth, point.metric) for point in points]
        if step.reached_samples > reached:
            done += (step.reached_samples - reached) * worth
            reached = step.reached_samples
    return WorkDone(samples=done, learned=tuple(learned))
