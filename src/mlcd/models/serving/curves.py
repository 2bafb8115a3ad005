"""Resource curves of operators (KOP-RCs): how each knob changes an operator's time, and the shape of that curve."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from mlcd.known.tables import Known
from mlcd.space import Value

Floats = NDArray[np.float64]

FLAT_SPAN_SHARE = 0.05
"""A curve that spans less than this relative change of an operator's time is a plane."""
SLOPE_BEND_SHARE = 0.1
"""In a slope, points are at most this far from the straight line between the ends, as a share of the height."""


class Shape(StrEnum):
    """The paper's four: flat; straight; bent towards the axis (gains fade); bent away from it (gains come late)."""

    PLANE = "plane"
    SLOPE = "slope"
    CONVEX = "convex"
    CONCAVE = "concave"


@dataclass(frozen=True, kw_only=True)
class ResourceCurve:
    """An operator over one knob: mean log seconds per item at each value, averaged over all other knobs."""

    operator: str
    knob: str
    values: tuple[Value, ...]
    log_seconds: tuple[float, ...]
    shape: Shape

    @property
    def span(self) -> float:
        """The factor between the slowest and the fastest value."""
        return float(np.exp(max(self.log_seconds) - min(self.log_seconds)))


def resource_curves(known: Known, operator: str, seconds: Floats) -> tuple[ResourceCurve, ...]:
    """The operator's curve over every knob that has several values. `seconds` (N,) of a batch, in every configuration.

    Log seconds per item are made additive over the knobs (two-way means): the curve is a knob's main effect.
    """
    measured = np.isfinite(seconds) & (seconds > 0)
    logs = np.log(seconds[measured] / known.batches[measured])
    curves = []
    for knob, _ in known.configs[0].values:
        column = [config[knob] for config in known.configs]
        values = _ordered(tuple(dict.fromkeys(column)))
        if len(values) < 2:
            continue
        of_row = np.array([values.index(value) for value in column])[measured]
        if len(set(of_row.tolist())) < len(values):
            continue  # some value was never measured
        means = np.array([logs[of_row == at].mean() for at in range(len(values))])
        curves.append(
            ResourceCurve(
                operator=operator,
                knob=knob,
                values=values,
                log_seconds=tuple(float(mean) for mean in means),
                shape=classify(_positions(values), means),
            )
        )
    return tuple(curves)


def classify(positions: Floats, log_values: Floats) -> Shape:
    """The shape of a curve through (position, log value) points, positions rising.

    plane   spans less than FLAT_SPAN_SHARE
    slope   the points stay within SLOPE_BEND_SHARE of the straight line between the ends, as a share of the curve's
            height
    convex  they lie below that line on average; concave: above
    """
    height = float(log_values.max() - log_values.min())
    if height < np.log1p(FLAT_SPAN_SHARE):
        return Shape.PLANE
    straight = np.interp(positions, positions[[0, -1]], log_values[[0, -1]])
    off = (log_values - straight) / height
    if np.abs(off).max() <= SLOPE_BEND_SHARE:
        return Shape.SLOPE
    return Shape.CONVEX if off.mean() < 0 else Shape.CONCAVE


def _ordered(values: tuple[Value, ...]) -> tuple[Value, ...]:
    if any(isinstance(value, str) for value in values):
        return values
    return tuple(sorted(values, key=float))


def _positions(values: tuple[Value, ...]) -> Floats:
    """Sizes by their logarithm, options by their order."""
    if any(isinstance(value, str) or value <= 0 for value in values):
        return np.arange(float(len(values)))
    return np.asarray(np.log2([float(value) for value in values]))
