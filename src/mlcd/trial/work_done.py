"""The work that trials and earlier attempts have done; each sample counts for what it is worth at its batch."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from mlcd.problem import Batching, Problem
from mlcd.space import Config
from mlcd.trial.trial import Failure, Learned, Trial

MEASURED_AT_SHARE = 0.75
"""Where in a stretch of training its noise counts as measured: where it grew, the second half alone was measured."""


class Trained(Protocol):
    """Something that trained: an attempt at the whole training, or a part of one that still runs."""

    @property
    def config(self) -> Config: ...  # noqa: D102
    @property
    def reached_samples(self) -> float: ...  # noqa: D102
    @property
    def noise_scale(self) -> float | None: ...  # noqa: D102
    @property
    def learned(self) -> tuple[Learned, ...]: ...  # noqa: D102


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A part of a training: where it ran, how far it got, and the noise and metrics that it reported."""

    config: Config
    reached_samples: float
    noise_scale: float | None = None
    learned: tuple[Learned, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkDone:
    """Work done, in samples at the reference batch.

    learned  (work done, metric) in the order of the training
    noise    (work done, noise scale) in the order of the training, one for each stretch that measured it
    """

    samples: float
    learned: tuple[tuple[float, float], ...] = ()
    noise: tuple[tuple[float, float], ...] = ()


def work_done(problem: Problem, trials: Iterable[Trial], earlier: Iterable[Trained] = ()) -> WorkDone:
    """The work done so far. Each trial continued from the furthest checkpoint; one that did not get further adds 0.

    Samples count by the noise that their own stretch measured; by the last one before it where it measured none, and
    by the first one known where there is none before.
    """
    stretches = [_stretch(trial) for trial in trials]
    stretches += [_stretch(attempt) for attempt in earlier]
    known = [s.noise_scale for s in stretches if s.noise_scale]
    noise = known[0] if known else None
    reached = done = 0.0
    learned: list[tuple[float, float]] = []
    seen: list[tuple[float, float]] = []
    for stretch in stretches:
        noise = stretch.noise_scale or noise
        worth = _worth(problem.batching, noise, stretch.config)
        learned += [(done + (p.samples - reached) * worth, p.metric) for p in stretch.learned if p.samples >= reached]
        further = max(stretch.reached_samples - reached, 0.0)
        if stretch.noise_scale:
            seen.append((done + MEASURED_AT_SHARE * further * worth, stretch.noise_scale))
        done += further * worth
        reached += further
    return WorkDone(samples=done, learned=tuple(learned), noise=tuple(seen))


def _worth(batching: Batching | None, noise_scale: float | None, config: Config) -> float:
    if batching is None:
        return 1.0
    known = batching if noise_scale is None else replace(batching, noise_scale=noise_scale)
    return known.worth(float(config["batch"]))


def _stretch(step: Trial | Trained) -> Stretch:
    if isinstance(step, Failure):
        return Stretch(config=step.config, reached_samples=step.reached_samples)
    return Stretch(
        config=step.config, reached_samples=step.reached_samples, noise_scale=step.noise_scale, learned=step.learned
    )
