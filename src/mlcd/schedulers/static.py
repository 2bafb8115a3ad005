"""The best fixed fleet: number of functions and memory chosen once."""

from dataclasses import dataclass
from typing import ClassVar

from mlcd.functions import FunctionProblem
from mlcd.schedulers.epoch_forecast import EpochForecast
from mlcd.schedulers.keeping import keep
from mlcd.trial.epoch import Epoch, Fleet, RemainingEpochs
from mlcd.units import Usd


@dataclass(frozen=True, kw_only=True)
class Static:
    """`functions` of `memory` MB for every epoch; by default, the best fixed fleet by a fit of two epochs."""

    name: ClassVar[str] = "static"
    functions: int | None = None
    memory: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if (self.functions is None) != (self.memory is None):
            raise ValueError("give both functions and memory, or neither")

    def decide(self, problem: FunctionProblem, history: tuple[Epoch, ...], remaining: RemainingEpochs) -> Fleet | None:
        """The same fleet again, while what remains pays for it."""
        fleet = Fleet(self.functions, self.memory) if self.functions and self.memory else None
        return keep(problem, history, remaining, fleet=fleet, memory_mb=None)

    def ending(self, problem: FunctionProblem, history: tuple[Epoch, ...], remaining: RemainingEpochs) -> str:
        """What is missing, by the fit."""
        return EpochForecast.of(problem, history, remaining).ending(problem, history, remaining)

    def smallest_budget(
        self, problem: FunctionProblem, history: tuple[Epoch, ...], remaining: RemainingEpochs
    ) -> Usd | None:
        """As predicted by the fit."""
        return EpochForecast.of(problem, history, remaining).smallest_budget(problem, history)
