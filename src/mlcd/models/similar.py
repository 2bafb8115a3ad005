"""What other jobs on the same types showed, as a deviation from what is expected of any job."""

from collections.abc import Sequence

import numpy as np

from mlcd.models.speed import speed_model, trend
from mlcd.problem import Problem
from mlcd.trial.trial import History

FEWEST_MEASUREMENTS = 4
"""Fewest measured trials of a job whose speeds are used for others."""


def similar_speeds(problem: Problem, others: Sequence[tuple[Problem, History]]) -> tuple[float, ...]:
    """The mean over `others` of how their modelled ln speed deviates from the expected trend, for each configuration.

    A job that was not searched over a configuration says nothing of it. Empty if none measured enough.
    """
    total, known = np.zeros(len(problem.space)), np.zeros(len(problem.space))
    for other, history in others:
        model = speed_model(other, history) if len(history.measured) >= FEWEST_MEASUREMENTS else None
        if model is None:
            continue
        usual = trend(other)
        deviation = model.log_speed - usual.columns @ usual.means
        at = [other.space.index.get(config, -1) for config in problem.space]
        shared = np.array(at) >= 0
        if not shared.any():
            continue
        values = deviation[np.array(at)[shared]]
        total[shared] += values - values.mean()
        known[shared] += 1
    if not known.any():
        return ()
    return tuple((total / np.maximum(known, 1)).tolist())
