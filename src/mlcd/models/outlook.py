"""The whole training at every (K, B), predicted: seconds, money and how sure; and which is best for a goal."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scipy.stats import t as student

from mlcd.goal import Goal, Objective
from mlcd.models.convergence import ConvergenceModel
from mlcd.models.parallel import ParallelModel, Refined, Setting
from mlcd.models.pricing import Pricing
from mlcd.models.tradeoff import knee


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospect:
    """A training at one setting. `low_seconds` and `high_seconds` bound it at the level that was asked for."""

    setting: Setting
    seconds: float
    low_seconds: float
    high_seconds: float
    usd_per_hour: float

    @property
    def usd(self) -> float:
        """The expected cost."""
        return self.seconds / 3600 * self.usd_per_hour

    @property
    def high_usd(self) -> float:
        """The cost at `high_seconds`."""
        return self.high_seconds / 3600 * self.usd_per_hour


def outlook(
    settings: Sequence[Setting],
    steps: ParallelModel | Refined,
    convergence: ConvergenceModel,
    pricing: Pricing,
    *,
    share_left: float = 1.0,
    level: float = 0.9,
) -> list[Prospect]:
    """A prospect a setting: step seconds x steps, the two doubts added as independent relative errors.

    share_left  of the way to the target that is still to go: trials are training too
    """
    model = steps.model if isinstance(steps, Refined) else steps
    freedom = min(model.freedom, convergence.freedom)
    reach = float(student.ppf(0.5 + level / 2, freedom))
    found = []
    for setting in settings:
        seconds = share_left * steps.seconds(setting) * convergence.steps(setting.batch)
        factor = math.exp(reach * math.hypot(model.deviation(setting), convergence.deviation))
        found.append(
            Prospect(
                setting=setting,
                seconds=seconds,
                low_seconds=seconds / factor,
                high_seconds=seconds * factor,
                usd_per_hour=pricing.usd_per_hour(setting.workers, setting.batch),
            )
        )
    return found


def best(prospects: Sequence[Prospect], goal: Goal, *, sure: bool = False) -> Prospect | None:
    """The prospect that serves the goal best among those within its limits; None where none is.

    sure  whether the upper bounds have to keep the limits too, and not the expected values alone
    The knee is Kneedle's, over the prospects within the limits. Ties go to the cheaper.
    """
    seconds: Callable[[Prospect], float] = (lambda p: p.high_seconds) if sure else (lambda p: p.seconds)
    usd: Callable[[Prospect], float] = (lambda p: p.high_usd) if sure else (lambda p: p.usd)
    kept = [
        p
        for p in prospects
        if (goal.deadline_seconds is None or seconds(p) <= goal.deadline_seconds)
        and (goal.budget is None or usd(p) <= goal.budget.dollars)
    ]
    if not kept:
        return None
    if goal.minimize is Objective.KNEE:
        return kept[knee([(p.seconds, p.usd) for p in kept])]
    return min(kept, key=lambda p: (goal.value(p.seconds, p.usd), p.usd))


def replan(prospects: Sequence[Prospect], now: Setting, goal: Goal, *, restart_seconds: float) -> Prospect | None:
    """What to change to when the outlook has changed, a receding horizon's step; None to stay.

    Every change is charged `restart_seconds` on the new setting. For the knee a change must win in time x cost, since
    Kneedle's own depth moves with every front.
    """

    def worth(prospect: Prospect) -> float:
        seconds = prospect.seconds + (restart_seconds if prospect.setting != now else 0.0)
        return goal.value(seconds, seconds / 3600 * prospect.usd_per_hour)

    here = next((p for p in prospects if p.setting == now), None)
    if here is None:
        return best(prospects, goal)
    chosen = min(prospects, key=lambda p: (worth(p), p.setting != now))
    return None if chosen.setting == now else chosen
