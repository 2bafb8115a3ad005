"""A prior from earlier serverless trainings of the same workload, in place of the general one."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mlcd.models.epochs import PRIOR, EpochPrior, LossFit, LossHistory, fit_loss_curve, fit_times
from mlcd.trial.epoch import Epoch

RUN_DEVIATION = 0.06
"""Deviation of the logarithm of times between trainings of the same workload."""


def prior_from_runs(
    runs: Sequence[Sequence[Epoch]],
    *,
    samples: int,
    puts: int,
    target_loss: float,
    first_loss: float | None = None,
    prior: EpochPrior = PRIOR,
) -> EpochPrior:
    """The prior after `runs` of the same workload, which may have had other fleets and need not be finished.

    All share one loss curve, so that fleets of different sizes determine the gain's coefficients. Without runs,
    `prior`.
    """
    epochs = [epoch for run in runs for epoch in run]
    if not epochs:
        return prior
    work, update, power, _ = fit_times(epochs, samples=samples, puts=max(puts, 1), prior=prior)
    learnt = replace(
        prior,
        seconds_per_sample=(work / samples, RUN_DEVIATION),
        seconds_per_put=(update / max(puts, 1), RUN_DEVIATION),
        memory_power=(power, prior.memory_power[1]),
    )
    curve = _curve(runs, target_loss=target_loss, first_loss=first_loss, prior=prior)
    if curve is None:
        return learnt
    floor, fit = curve
    return replace(
        learnt,
        epochs=(fit.done + fit.left, 0.02),
        floor_share=(floor, 0.1),
        early_gain=(fit.early_gain, 0.05),
        staleness=(fit.staleness, 0.05),
    )


def _curve(
    runs: Sequence[Sequence[Epoch]], *, target_loss: float, first_loss: float | None, prior: EpochPrior
) -> tuple[float, LossFit] | None:
    """(floor over target, fit) of all runs together; each run's losses lie on one curve over its own progress."""
    spots = np.linspace(-2, 2, 9)
    gains = [
        (prior.early_gain[0] * math.exp(prior.early_gain[1] * u), prior.staleness[0] * math.exp(prior.staleness[1] * v))
        for u in spots
        for v in spots
    ]
    # What remains is counted from the last run: the one that came nearest to the target.
    known = sorted((run for run in runs if run), key=lambda run: -run[-1].loss)
    whole, found = prior.epochs[0], None
    for _ in range(3):
        courses = [LossHistory.of(run, gains, whole=whole, first_loss=first_loss) for run in known]
        wide = replace(prior, early_gain=(prior.early_gain[0], 1.0), staleness=(prior.staleness[0], 1.0))
        found = fit_loss_curve(courses, gains, target_loss, wide)
        if found is None:
            return None
        whole = found[1].done + found[1].left
    return found
