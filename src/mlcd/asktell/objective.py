"""What a search over declared knobs optimises: a custom value of the caller, or known work."""

import math
from dataclasses import dataclass
from enum import StrEnum

from mlcd.errors import BadInput, SpecError, nearest
from mlcd.goal import Objective
from mlcd.space import Config
from mlcd.trial.trial import Learned, Measurement

LARGEST_VALUE = 1e100
"""Custom values beyond this are refused: a loss that large means that the trial failed."""


class SearchObjective(StrEnum):
    """`maximize` and `minimize` are of the caller's own number, the others of known work."""

    MAXIMIZE = "maximize"
    MINIMIZE = "minimize"
    TIME = "time"
    COST = "cost"
    KNEE = "knee"

    @property
    def is_own_number(self) -> bool:
        """Whether trials are told with `value=`."""
        return self in (SearchObjective.MAXIMIZE, SearchObjective.MINIMIZE)

    @property
    def goal(self) -> Objective:
        """What a goal has in its place; of an own number, time, which nothing depends on."""
        return Objective.TIME if self.is_own_number else Objective(str(self))

    @classmethod
    def of(cls, given: object) -> "SearchObjective":
        """By its name. Raises SpecError."""
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
    def of(cls, objective: SearchObjective, value: float) -> "Told":
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
    """The number that was told of a trial."""
    score = trial.learned[-1].metric
    return score if objective is SearchObjective.MAXIMIZE else -score
