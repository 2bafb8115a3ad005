"""The seam between the epoch loop and schedulers."""

from typing import ClassVar, Protocol

from mlcd.functions import FunctionProblem
from mlcd.trial.epoch import Epoch, Fleet, RemainingEpochs
from mlcd.units import Usd


class Scheduler(Protocol):
    """Decides the fleet of the next epoch. Pure: a function of its arguments, its options and its seed.

    name  as the user writes it
    """

    name: ClassVar[str]

    def decide(self, problem: FunctionProblem, history: tuple[Epoch, ...], remaining: RemainingEpochs) -> Fleet | None:
        """The fleet for the next epoch, or None to end the training before its target.

        Not asked once the target is reached. A fleet is one that `left` allows.
        """
        ...

    def ending(self, problem: FunctionProblem, history: tuple[Epoch, ...], remaining: RemainingEpochs) -> str:
        """Why it decides on nothing, given the same arguments, for the user: a clause without a full stop."""
        ...

    def smallest_budget(
        self, problem: FunctionProblem, history: tuple[Epoch, ...], remaining: RemainingEpochs
    ) -> Usd | None:
        """The least that the whole training would have cost, as far as it can tell; None where it cannot."""
        ...
