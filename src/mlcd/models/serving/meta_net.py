"""A small neural network that learns over many models how to learn a new one from a few of its trials (Reptile).

Nichol, Achiam and Schulman 2018: from weights w, a few gradient steps on one task lead to w'; w moves a little towards
w'. Weights trained in this way are near those of every task, and the same few steps on a new task's few points lead to
a good fit of it. Everything here is numpy; a network is one vector of weights.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

HIDDEN = 32
POOLED_STEPS = 1200
POOLED_POINTS = 128
POOLED_RATE = 0.005
MAX_GRADIENT_NORM = 1.0
"""Gradients are clipped to this norm: trials close together would otherwise make the network diverge."""
META_ROUNDS = 150
TASKS_PER_ROUND = 8
TASK_POINTS = 12
META_RATE = 0.5
"""The first step size towards the mean of a round's adapted weights; it decreases to 0 over the rounds."""


@dataclass(frozen=True, kw_only=True, eq=False)
class MetaNet:
    """Two hidden layers of tanh: y = w3 tanh(W2 tanh(W1 x + b1) + b2) + b3, for every row of `inputs` (N, d)."""

    inputs: Floats
    weights: Floats

    def predict(self) -> Floats:
        """(N,) the prediction for every row."""
        return _forward(self.weights, self.inputs)[-1]

    def adapted(self, at: Rows, values: Floats, *, steps: int, rate: float) -> "MetaNet":
        """The network after `steps` gradient steps of `rate` on the mean squared error at the rows `at`."""
        return replace(self, weights=_descend(self.weights, self.inputs[at], values, steps=steps, rate=rate))


def meta_train(inputs: Floats, table: Floats, *, steps: int, rate: float, seed: int) -> MetaNet:
    """A network for rows of `table` (tasks, N), whose nan cells are ignored.

    First on all tasks together (Adam), which brings it to their mean; then Reptile, TASKS_PER_ROUND of them per round,
    with the same `steps` and `rate` that `adapted` will be called with.
    """
    rng = np.random.default_rng([seed, 1])
    weights = _pooled(_initial(inputs.shape[1], rng), inputs, table, rng)
    cells = [np.flatnonzero(~np.isnan(row)) for row in table]
    for turn in range(META_ROUNDS):
        tasks = rng.integers(len(table), size=TASKS_PER_ROUND)
        at = np.array([rng.choice(cells[task], size=TASK_POINTS) for task in tasks])
        there = _descend(
            np.tile(weights, (TASKS_PER_ROUND, 1)), inputs[at], table[tasks[:, None], at], steps=steps, rate=rate
        )
        weights = weights + META_RATE * (1 - turn / META_ROUNDS) * (there.mean(axis=0) - weights)
    return MetaNet(inputs=inputs, weights=weights)


def _pooled(weights: Floats, inputs: Floats, table: Floats, rng: np.random.Generator) -> Floats:
    task, cell = np.nonzero(~np.isnan(table))
    first, second = np.zeros_like(weights), np.zeros_like(weights)
    for turn in range(1, POOLED_STEPS + 1):
        picks = rng.integers(len(task), size=POOLED_POINTS)
        slope = _gradient(weights, inputs[cell[picks]], table[task[picks], cell[picks]])
        first = 0.9 * first + 0.1 * slope
        second = 0.999 * second + 0.001 * slope**2
        move = first / (1 - 0.9**turn) / (np.sqrt(second / (1 - 0.999**turn)) + 1e-8)
        weights = weights - POOLED_RATE * (1 - 0.9 * turn / POOLED_STEPS) * move
    return weights


# Below, weights (..., P), inputs (..., n, d) and values (..., n) may have a leading task axis.


def _descend(weights: Floats, inputs: Floats, values: Floats, *, steps: int, rate: float) -> Floats:
    for _ in range(steps):
        slope = _gradient(weights, inputs, values)
        size = np.sqrt((slope**2).sum(axis=-1, keepdims=True))
        weights = weights - rate * slope * np.minimum(1.0, MAX_GRADIENT_NORM / np.maximum(size, 1e-300))
    return weights


def _sizes(width: int) -> tuple[tuple[int, int], ...]:
    return ((width, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, 1))


def _initial(width: int, rng: np.random.Generator) -> Floats:
    parts = [np.append(rng.standard_normal(a * b) / np.sqrt(a), np.zeros(b)) for a, b in _sizes(width)]
    return np.concatenate(parts)


def _layers(weights: Floats, width: int) -> list[tuple[Floats, Floats]]:
    """The matrix and the offsets of each layer."""
    found, start = [], 0
    for rows, columns in _sizes(width):
        middle, end = start + rows * columns, start + rows * columns + columns
        matrix = weights[..., start:middle].reshape(*weights.shape[:-1], rows, columns)
        found.append((matrix, weights[..., None, middle:end]))
        start = end
    return found


def _forward(weights: Floats, inputs: Floats) -> tuple[Floats, Floats, Floats]:
    one, two, three = _layers(weights, inputs.shape[-1])
    first = np.tanh(inputs @ one[0] + one[1])
    second = np.tanh(first @ two[0] + two[1])
    return first, second, (second @ three[0] + three[1])[..., 0]


def _gradient(weights: Floats, inputs: Floats, values: Floats) -> Floats:
    """The gradient of half the mean squared error."""
    _, two, three = _layers(weights, inputs.shape[-1])
    first, second, answer = _forward(weights, inputs)
    error = ((answer - values) / values.shape[-1])[..., None]
    into_second = (error @ three[0].swapaxes(-1, -2)) * (1 - second**2)
    into_first = (into_second @ two[0].swapaxes(-1, -2)) * (1 - first**2)
    parts = []
    for below, above in ((inputs, into_first), (first, into_second), (second, error)):
        slope = below.swapaxes(-1, -2) @ above
        parts += [slope.reshape(*weights.shape[:-1], -1), above.sum(axis=-2)]
    return np.concatenate(parts, axis=-1)
