"""A transformer's sizes, as a job file or a script describes the model that it trains."""

import math
from dataclasses import dataclass, fields

MOST = 1e15
"""Larger sizes are a mistake."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformer:
    """What a step of a transformer's training costs follows from these, on any machine.

    parameters  of the whole model
    hidden      width of the residual stream
    sequence    tokens of one sample
    """

    parameters: float
    layers: int
    hidden: int
    heads: int
    sequence: int

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ValueError(f"{each.name} must be a number")
            if not (math.isfinite(value) and 1 <= value <= MOST):
                raise ValueError(f"{each.name} must be from 1 to {MOST:g}")

    @property
    def flops_per_sample(self) -> float:
        """FLOPs of forward and backward pass over one sample, without recomputation.

        T (6 N + 12 L H T): matrix products with N parameters, and attention over T tokens (Chowdhery et al., PaLM,
        2022, appendix B).
        """
        return self.sequence * (6.0 * self.parameters + 12.0 * self.layers * self.hidden * self.sequence)
