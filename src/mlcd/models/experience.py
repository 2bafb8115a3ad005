"""A prior from earlier serverless trainings of the same workload, in place of the general one."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mlcd.models.epochs import PRIOR, EpochPrior, fit_epochs, progress_of
from mlcd.trial.epoch import Epoch

AGREEMENT = 0.03
"""Deviation of the logarithm of the effective epochs to the target between trainings of the same workload."""


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

    All need equally many effective epochs to the target, so that fleets of different sizes determine the gain's
    coefficients; no form of the loss curve is assumed of a finished one. Without runs, `prior`.
    """
    known = [tuple(run) for run in runs if run]
    if not known:
        return prior
    learnt = replace(prior, measured=tuple(epoch for run in known for epoch in run))
    finished = [run for run in known if run[-1].loss <= target_loss]
    if not finished:
        nearest = min(known, key=lambda run: run[-1].loss)
        fit = fit_epochs(
            nearest, samples=samples, puts=puts, target_loss=target_loss, first_loss=first_loss, prior=prior
        )
        whole = fit.done + fit.epochs_left
        return replace(learnt, epochs=(whole, min(max(fit.epochs_left_deviation / whole, AGREEMENT), prior.epochs[1])))
    spots = np.linspace(-2, 2, 9)
    gains = [
        (prior.early_gain[0] * math.exp(prior.early_gain[1] * u), prior.staleness[0] * math.exp(prior.staleness[1] * v))
        for u in spots
        for v in spots
    ] + [(0.0, 0.0)]
    logs = np.array([[_log_whole(run, pair, target_loss, first_loss, prior) for run in finished] for pair in gains])
    middle = logs.mean(axis=1)
    score = -0.5 * (((logs - middle[:, None]) / AGREEMENT) ** 2).sum(axis=1)
    score[:-1] -= 0.5 * np.array([u**2 + v**2 for u in spots for v in spots])
    weight = np.exp(score - score.max())
    weight /= weight.sum()
    early, stale = (float(weight @ np.array(values)) for values in zip(*gains, strict=True))
    return replace(
        learnt,
        epochs=(math.exp(float(weight @ middle)), AGREEMENT),
        early_gain=(early, 0.05),
        staleness=(stale, 0.05),
    )


def _log_whole(
    run: Sequence[Epoch],
    gains: tuple[float, float],
    target_loss: float,
    first_loss: float | None,
    prior: EpochPrior,
) -> float:
    """The logarithm of the effective epochs at which a finished run crossed its target, between its last two losses."""
    whole = prior.epochs[0]
    for _ in range(3):
        done = progress_of(run, whole, [gains])[0]
        losses = [*([first_loss] if first_loss is not None else [run[0].loss]), *(epoch.loss for epoch in run)]
        before = float(done[-2]) if len(done) > 1 else 0.0
        fall = losses[-2] - losses[-1]
        part = min(max((losses[-2] - target_loss) / fall, 0.0), 1.0) if fall > 0 else 1.0
        whole = before + part * (float(done[-1]) - before)
    return math.log(max(whole, 0.05))
