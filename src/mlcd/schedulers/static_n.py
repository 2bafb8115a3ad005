"""The paper's baseline: the best fixed number of functions, at one memory size."""

from dataclasses import dataclass
from typing import ClassVar

from mlcd.functions import FunctionProblem
from mlcd.schedulers.epoch_forecast import EpochForecast
from mlcd.schedulers.keeping import keep
from mlcd.trial.epoch import Epoch, Fleet, RemainingEpochs
from mlcd.units import Usd


@dataclass(frozen=True, kw_only=True)
class StaticN:
    """`functions` for every epoch, each with the allowed memory size nearest to `memory` MB.

    Without `functions`, the best number by a fit of two epochs. The paper finds it by grid search.
    """

    name: ClassVar[str] = "static-n"
    functions: int | None = None
    memory: int = 1536
    seed: int = 0

    def decide(self, problem: FunctionProblem, history: tuple[Epoch, ...], remaining: RemainingEpochs) -> Fleet | None:
        """The same number again, while what remains pays for it."""
        memory = min(problem.memory_mb, key=lambda size: abs(size - self.memory))
        fleet = Fleet(self.functions, memory) if self.functions else None
        return keep(problem, history, remaining, fleet=fleet, memory_mb=memory)

    def ending(self, problem: FunctionProblem, history: tuple[Epoch, ...], remaining: RemainingEpochs) -> str:
        """What is missing, by the fit."""
        return EpochForecast.of(problem, history, remaining).ending(problem, history, remaining)

    def smallest_budget(
        self, problem: FunctionProblem, history: tuple[Epoch, ...], remaining: RemainingEpochs
    ) -> Usd | None:
        """As predicted by the fit."""
        return EpochForecast.of(problem, history, remaining).smallest_budget(problem, history)
