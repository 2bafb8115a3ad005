"""Other trainings that were measured on the same deployments: what a search knows that learns from other jobs."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from mlcd.space import Config


@dataclass(frozen=True, kw_only=True, eq=False)
class MeasuredJob:
    """Another job and its speed, in a unit of its own, on every deployment where it ran."""

    name: str
    speeds: Mapping[Config, float]

    def __post_init__(self) -> None:
        if not all(speed > 0 and math.isfinite(speed) for speed in self.speeds.values()):
            raise ValueError(f"{self.name}: a measured speed must be positive and finite")
