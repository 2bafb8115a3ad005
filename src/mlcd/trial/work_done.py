"""What trials and earlier attempts have done of a training, each sample work_done for what it is worth at its batch."""

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
    """Each trial went on from the furthest checkpoint before it; one that left none, or a nearer one, adds nothing."""
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
