from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from mlcd.models.design import corners_and_centre, most_doubtful
from mlcd.models.parallel import ClusterSetting, check_centre
from mlcd.models.timed import setting_of, timed
from mlcd.problem import Problem
from mlcd.search.scavenger.grid import GridStrategy, ScavengerSettings, law_of
from mlcd.search.strategy import at_least
from mlcd.trial.trial import History

CORNERS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialSettings(ScavengerSettings):
    """Options of `scavenger-partial:option=value`."""

    more: int = 2
    """Extra runs where the step time is least certain, if the centre shows that the corners' law does not hold.
    Unmeasured."""

    def __post_init__(self) -> None:
        ScavengerSettings.__post_init__(self)
        at_least(0, more=self.more)


DEFAULTS = PartialSettings()


@dataclass(frozen=True, kw_only=True)
class ScavengerPartial(GridStrategy):
    """Runs the extremes of (K, B) and their centre, interpolates, and measures what is predicted to be best."""

    name: ClassVar[str] = "scavenger-partial"

    settings: PartialSettings = DEFAULTS

    def planned(
        self, problem: Problem, history: History, settings: Sequence[ClusterSetting]
    ) -> tuple[ClusterSetting, ...]:
        """Corners and centre; a misfit adds runs."""
        first = corners_and_centre(settings)
        instance = next(c.instance for c in problem.space if setting_of(c) in settings)
        runs = {run.setting: run for run in timed(history, instance)}
        measured = [runs[s] for s in first if s in runs]
        if len(first) <= CORNERS or len(measured) < len(first):
            return first
        model = law_of(tuple(measured))
        if check_centre(measured[:-1], measured[-1], model.law).fits:
            return first
        return (*first, *most_doubtful(model, settings, first, self.settings.more))
