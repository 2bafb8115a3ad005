"""Shapes of loss curves: the share of the first loss, above the floor, that remains after k effective epochs.

Every shape is 1 at k = 0, falls with k and stays above 0. None is known to a scheduler; `Inverse`, `Exponential`,
`Power` and `TwoPhase` are drawn for workloads that schedulers are tuned on, the others for unseen workloads only.
"""

import math
from dataclasses import dataclass, fields
from typing import Protocol


class LossShape(Protocol):
    """One loss curve, scaled to fall from 1 towards 0."""

    def remaining(self, epochs: float) -> float:
        """The share that remains after `epochs` effective epochs."""
        ...

    def __hash__(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Positive:
    """Every number of a shape is above 0."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, float) and not 0 < value < math.inf:
                raise ValueError(f"{field.name}: must be more than 0 and finite (got {value})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inverse(_Positive):
    """1 / (1 + k / half): Optimus' curve (EuroSys 2018)."""

    half: float

    def remaining(self, epochs: float) -> float:
        """Half at `half`."""
        return 1 / (1 + epochs / self.half)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exponential(_Positive):
    """exp(-k / scale): linear convergence, as of strongly convex problems."""

    scale: float

    def remaining(self, epochs: float) -> float:
        """1/e at `scale`."""
        return math.exp(-epochs / self.scale)


@dataclass(frozen=True, slots=True, kw_only=True)
class Power(_Positive):
    """(1 + k / scale)^-power; with power 0.5 the 1/sqrt(k) of stochastic gradient descent on convex problems."""

    scale: float
    power: float = 0.5

    def remaining(self, epochs: float) -> float:
        """A straight line over log k, far from the start."""
        return float((1 + epochs / self.scale) ** -self.power)


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoPhase(_Positive):
    """Falls towards `level`; at `step` the learning rate is lowered, and it falls again, to `drop` of where it was."""

    scale: float
    level: float
    step: float
    later_scale: float
    drop: float

    def remaining(self, epochs: float) -> float:
        """Continuous, with a kink at `step`."""
        first = self.level + (1 - self.level) * math.exp(-min(epochs, self.step) / self.scale)
        if epochs <= self.step:
            return first
        return first * (self.drop + (1 - self.drop) * math.exp(-(epochs - self.step) / self.later_scale))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plateau(_Positive):
    """An exponential that advances at only `pace` of its rate between `start` and `end`."""

    scale: float
    start: float
    end: float
    pace: float = 0.1

    def remaining(self, epochs: float) -> float:
        """Almost flat on the plateau."""
        stalled = max(0.0, min(epochs, self.end) - self.start)
        return math.exp(-(epochs - (1 - self.pace) * stalled) / self.scale)


@dataclass(frozen=True, slots=True, kw_only=True)
class Logarithmic(_Positive):
    """1 - ln(1 + k / scale) / ln(1 + end / scale): equal falls for each doubling of the work, until `end`."""

    scale: float
    end: float

    def remaining(self, epochs: float) -> float:
        """Almost 0 from `end` on."""
        return max(1e-6, 1 - math.log1p(epochs / self.scale) / math.log1p(self.end / self.scale))


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoScales(_Positive):
    """A quick and a slow exponential: quick e^(-k / quick_scale) + (1 - quick) e^(-k / slow_scale)."""

    quick: float
    quick_scale: float
    slow_scale: float

    def remaining(self, epochs: float) -> float:
        """First the quick part falls, then the slow one."""
        return self.quick * math.exp(-epochs / self.quick_scale) + (1 - self.quick) * math.exp(
            -epochs / self.slow_scale
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowStart(_Positive):
    """1 / (1 + (k / half)^power), power above 1: hardly falls at first, then steeply."""

    half: float
    power: float

    def remaining(self, epochs: float) -> float:
        """Half at `half`."""
        return float(1 / (1 + (epochs / self.half) ** self.power))
