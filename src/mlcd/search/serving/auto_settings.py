"""All settings of `auto` for serving, each with what it stands on."""

from dataclasses import dataclass

from mlcd.search.serving.falcon_settings import BeliefSettings
from mlcd.search.strategy import at_least


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingAutoSettings(BeliefSettings):
    """Options of `auto:option=value` for serving. Raises ValueError for a number that is out of range."""

    least: int = 1
    """Trials before the search may end."""

    gain: float = 0.002
    """A trial that is expected to save less than this share of the best is not made: as `least-gain` of a training."""

    hours: float = 720.0
    """How long the choice will serve: a trial pays for itself when what it saves in this time exceeds its price. A
    month; the user decides."""

    described: float = 0.9
    """The probability that the model's sizes are what its config says. Unmeasured."""

    least_memory: float = 0.5
    """Before anything is measured, a configuration is left out whose memory suffices with a lower probability: with
    `described`, one that is too small by the model's sizes."""

    def __post_init__(self) -> None:
        BeliefSettings.__post_init__(self)
        at_least(0, hours=self.hours, least_memory=self.least_memory)
        if not 0 < self.described < 1:
            raise ValueError(f"described must be between 0 and 1 (got {self.described})")
