"""The protocol of schedulers, which choose the fleet of the next epoch."""

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

        Not called once the target is reached. The fleet must be allowed by `remaining`.
        """
        ...

    def ending(self, problem: FunctionProblem, history: tuple[Epoch, ...], remaining: RemainingEpochs) -> str:
        """Why `decide` returns None for the same arguments, for the user: a clause without a full stop."""
        ...

    def smallest_budget(
        self, problem: FunctionProblem, history: tuple[Epoch, ...], remaining: RemainingEpochs
    ) -> Usd | None:
        """An estimate of the smallest budget for the whole training; None if there is none."""
        ...
