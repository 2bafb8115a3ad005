"""Named arrays in one flat vector."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mlcd.workloads.model import Floats


@dataclass(frozen=True, slots=True)
class Flat:
    """The position of each array of a model in its parameter vector."""

    shapes: Mapping[str, tuple[int, ...]]

    @property
    def size(self) -> int:
        """Total number of parameters."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    def views(self, vector: Floats) -> dict[str, Floats]:
        """The arrays, each a view into `vector`."""
        views, at = {}, 0
        for name, shape in self.shapes.items():
            size = math.prod(shape)
            views[name] = vector[at : at + size].reshape(shape)
            at += size
        return views

    def start(self, seed: int) -> Floats:
        """He's initialisation of matrices and filters, zeros for biases (arrays of one dimension)."""
        random = np.random.default_rng(seed)
        vector = np.zeros(self.size, dtype=np.float32)
        for view in self.views(vector).values():
            if view.ndim > 1:
                fan_in = math.prod(view.shape[:-1])
                view[...] = random.normal(0.0, math.sqrt(2 / fan_in), view.shape)
        return vector


def log_softmax(logits: Floats) -> Floats:
    """(B, C) over the last axis, without overflow."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    found: Floats = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return found
