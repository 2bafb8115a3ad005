"""Model-predictive control: fit the epochs so far, plan the remaining ones, run the first of the plan, fit again."""

from dataclasses import dataclass
from typing import ClassVar

from mlcd.functions import FunctionProblem
from mlcd.models.epochs import PRIOR, EpochPrior
from mlcd.schedulers.epoch_forecast import EpochForecast
from mlcd.schedulers.parts import MPC, MpcSettings, next_part
from mlcd.trial.epoch import LEAST_SHARE, Epoch, Fleet, RemainingEpochs
from mlcd.units import Usd

LARGEST_LEAST_PART = 0.25
"""Parts that fall short of the target one after another grow up to this share of an epoch; a larger one would go far
past the target more often than it saves a barrier."""


@dataclass(frozen=True, kw_only=True)
class Mpc:
    """The best plan by the model (mlcd.models.epochs), recomputed before every epoch or part of one.

    Its options are the fields of MpcSettings.
    prior  the belief before the first epoch; mlcd.models.experience makes one from earlier runs of the workload
    """

    name: ClassVar[str] = "mpc"
    given: ClassVar[tuple[str, ...]] = ("prior",)
    settings: MpcSettings = MPC
    prior: EpochPrior = PRIOR
    seed: int = 0

    def decide(self, problem: FunctionProblem, history: tuple[Epoch, ...], remaining: RemainingEpochs) -> Fleet | None:
        """The first fleet of the best plan."""
        outlook = self._outlook(problem, history, remaining)
        if outlook.is_hopeless(history, remaining):
            return None
        passes = sum(epoch.fleet.share for epoch in history)
        least = 0.0
        if passes >= 1 and history[-1].fleet.share < 1:  # the last part was cut to reach the target, and fell short
            least = min(LARGEST_LEAST_PART, self.settings.part_growth * history[-1].fleet.share)
        return next_part(
            problem, outlook.model, remaining, outlook.fleets, passes=passes, least=least, settings=self.settings
        )

    def ending(self, problem: FunctionProblem, history: tuple[Epoch, ...], remaining: RemainingEpochs) -> str:
        """What is missing, by the model."""
        return self._outlook(problem, history, remaining).ending(problem, history, remaining)

    def smallest_budget(
        self, problem: FunctionProblem, history: tuple[Epoch, ...], remaining: RemainingEpochs
    ) -> Usd | None:
        """As predicted by the model."""
        return self._outlook(problem, history, remaining).smallest_budget(problem, history)

    def _outlook(
        self, problem: FunctionProblem, history: tuple[Epoch, ...], remaining: RemainingEpochs
    ) -> EpochForecast:
        return EpochForecast.of(
            problem,
            history,
            remaining,
            self.prior,
            least_share=LEAST_SHARE,
            settings=self.settings,
            learn_startup=self.settings.learn_startup,
        )
