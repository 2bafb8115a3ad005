"""Ernest's curve for serving: a batch's latency as a sum of physical terms, none of them negative."""

import numpy as np
from numpy.typing import NDArray

from mlcd.models.physical_terms import Terms

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]


def latency_terms(batches: Floats, capacities: Floats) -> Terms:
    """The terms of N configurations: t = w0 + w1 b + w2 b / c + w3 / c + w4 ln b.

    The call, work that a faster machine does not speed up, work that it does, a machine's own start of a batch, and a
    tree's depth; b items per batch on a machine of capacity c.
    """
    ones = np.ones_like(batches)
    return Terms.scaled(np.stack([ones, batches, batches / capacities, ones / capacities, np.log(batches)], axis=1))


def capacities(log_seconds: Floats, settings: Rows, batches: Floats) -> Floats:
    """(N,) how fast each setting (a configuration without its batch) is for known models, geometric mean 1.

    For each model, the latency of an item in the largest batch that ran there, relative to its own mean over settings;
    then the mean over models. `log_seconds` (models, N) is nan where nothing ran; a setting where nothing ever ran gets
    the least capacity of all.
    """
    per_item = log_seconds - np.log(batches)
    count = int(settings.max()) + 1
    found = np.full((len(log_seconds), count), np.nan)
    for setting in range(count):
        rows = np.flatnonzero(settings == setting)
        for row in rows[np.argsort(batches[rows], kind="stable")]:
            found[:, setting] = np.where(np.isnan(per_item[:, row]), found[:, setting], -per_item[:, row])
    measured = ~np.isnan(found)
    level = np.where(measured, found, 0.0).sum(axis=1) / np.maximum(measured.sum(axis=1), 1)
    off = np.where(measured, found - level[:, None], 0.0)
    mean = off.sum(axis=0) / np.maximum(measured.sum(axis=0), 1)
    mean = np.where(measured.any(axis=0), mean, mean.min())
    return np.asarray(np.exp(mean - mean.mean())[settings])
