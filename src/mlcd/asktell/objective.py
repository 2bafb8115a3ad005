"""What a search over declared knobs optimises: a custom value of the caller, or known work."""

import math
from dataclasses import dataclass
from enum import StrEnum

from mlcd.errors import BadInput, SpecError, nearest
from mlcd.goal import Objective as GoalObjective
from mlcd.space import Config
from mlcd.trial.trial import Learned, Measurement

LARGEST_VALUE = 1e100
"""Custom values beyond this are refused: a loss that large means that the trial failed."""


class SearchObjective(StrEnum):
    """`maximize` and `minimize` are for a custom value of the caller, the others for known work."""

    MAXIMIZE = "maximize"
    MINIMIZE = "minimize"
    TIME = "time"
    COST = "cost"
    KNEE = "knee"

    @property
    def is_custom_value(self) -> bool:
        """Whether trials report `value=`."""
        return self in (SearchObjective.MAXIMIZE, SearchObjective.MINIMIZE)

    @property
    def goal(self) -> GoalObjective:
        """The matching objective of a goal; for a custom value TIME, which then has no effect."""
        return GoalObjective.TIME if self.is_custom_value else GoalObjective(str(self))

    @classmethod
    def of(cls, given: object) -> "SearchObjective":
        """The objective called `given`. Raises SpecError."""
        known = [str(each) for each in cls]
        if not isinstance(given, str) or given not in known:
            raise SpecError(
                "is not one of the choices",
                field="objective",
                value=given,
                allowed=", ".join(known),
                nearest=nearest(str(given), known),
            )
        return cls(given)


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The configuration with the best reported value."""

    config: Config
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomValue:
    """A custom value as a measurement stores it: strategies see a score, where higher is better.

    `score` is kept exactly. `speed` is for strategies that know only throughput: exp(asinh(score)), which is positive
    and preserves the order.
    """

    score: float

    @classmethod
    def of(cls, objective: SearchObjective, value: float) -> "CustomValue":
        """Raises BadInput for a value that is not finite, or too large."""
        if not abs(value) <= LARGEST_VALUE:
            raise BadInput(
                f"tell: value: must be a finite number, at most {LARGEST_VALUE:g} (got {value!r});"
                " report a trial without a value with tell_failure"
            )
        return cls(score=value if objective is SearchObjective.MAXIMIZE else -value)

    @property
    def speed(self) -> float:
        """exp(asinh(score)), for strategies that know only throughput."""
        return math.exp(math.asinh(self.score))

    @property
    def learned(self) -> tuple[Learned, ...]:
        """The score in the form of Measurement.learned."""
        return (Learned(samples=0.0, metric=self.score),)


def value_of(objective: SearchObjective, trial: Measurement) -> float:
    """The value that was reported for a trial."""
    score = trial.learned[-1].metric
    return score if objective is SearchObjective.MAXIMIZE else -score
