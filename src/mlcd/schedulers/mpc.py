"""Model-predictive control: fit the epochs so far, plan all that are left, run the first of the plan, fit again."""

from dataclasses import dataclass
from typing import ClassVar

from mlcd.functions import FunctionProblem
from mlcd.models.epochs import PRIOR, EpochPrior
from mlcd.schedulers.outlook import Outlook
from mlcd.schedulers.planning import best_plan, frugal
from mlcd.trial.epoch import Epoch, EpochLeft, Fleet
from mlcd.units import Usd


@dataclass(frozen=True, kw_only=True)
class Mpc:
    """The best plan by the model (mlcd.models.epochs), made anew before every epoch.

    Where the model sees no plan that fits but might be wrong, the epoch is a frugal one: the fastest whose price is
    within 15% of the cheapest.

    prior  what is believed before the first epoch; mlcd.models.experience makes one of earlier runs of the workload
    """

    name: ClassVar[str] = "mpc"
    prior: EpochPrior = PRIOR
    seed: int = 0

    def decide(self, problem: FunctionProblem, history: tuple[Epoch, ...], left: EpochLeft) -> Fleet | None:
        """The first fleet of the best plan."""
        outlook = Outlook.of(problem, history, left, self.prior)
        if outlook.is_hopeless(history, left):
            return None
        plan = best_plan(problem, outlook.model, left, outlook.fleets)
        return plan.fleets[0] if plan is not None else frugal(outlook.fleets)

    def ending(self, problem: FunctionProblem, history: tuple[Epoch, ...], left: EpochLeft) -> str:
        """What is missing, by the model."""
        return Outlook.of(problem, history, left, self.prior).ending(problem, history, left)

    def smallest_budget(self, problem: FunctionProblem, history: tuple[Epoch, ...], left: EpochLeft) -> Usd | None:
        """By the model."""
        return Outlook.of(problem, history, left, self.prior).smallest_budget(problem, history)
