"""Siren's policy: a Gaussian over (log n, log m) from a small network, trained by policy gradient in the simulator."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mlcd.errors import BadInput
from mlcd.functions import FunctionProblem
from mlcd.goal import Objective
from mlcd.schedulers.epoch_forecast import EpochForecast
from mlcd.schedulers.siren_state import FEATURES, SIREN, START_ACTION, SirenSettings, choose, observe
from mlcd.trial.epoch import LEAST_SHARE, Epoch, Fleet, RemainingEpochs
from mlcd.units import Usd

Floats = NDArray[np.float64]

WEIGHTS = Path(__file__).parent / "data" / "siren-ppo.npz"


@dataclass(frozen=True)
class Policy:
    """mu(s) = W3 tanh(W2 tanh(W1 s + b1) + b2) + b3, and the deviation with which it was trained."""

    layers: tuple[tuple[Floats, Floats], ...]
    log_deviation: Floats

    def mean(self, features: Floats) -> Floats:
        """(2,) the most probable action."""
        value = features
        for weight, bias in self.layers[:-1]:
            value = np.tanh(weight @ value + bias)
        weight, bias = self.layers[-1]
        result: Floats = weight @ value + bias
        return result

    @classmethod
    def load(cls, path: Path) -> "Policy":
        """Weights as `benchmarks/train_siren.py` writes them. Raises BadInput for any other file."""
        try:
            with np.load(path) as file:
                arrays = {name: np.asarray(file[name], dtype=np.float64) for name in file.files}
            count = sum(name.startswith("weight") for name in arrays)
            layers = tuple((arrays[f"weight{i}"], arrays[f"bias{i}"]) for i in range(count))
            found = cls(layers, arrays["log_deviation"])
        except (OSError, KeyError, ValueError) as error:
            raise BadInput(f"siren:weights: {path}: not a policy: {error}") from error
        if not layers or layers[0][0].shape[1] != FEATURES or layers[-1][0].shape[0] != 2:
            raise BadInput(f"siren:weights: {path}: a policy must take {FEATURES} features and return 2 numbers")
        return found


@cache
def load_policy(path: str) -> Policy:
    """Loads the policy once per process, with numpy alone."""
    return Policy.load(Path(path))


@dataclass(frozen=True, kw_only=True)
class Siren:
    """The most probable fleet of the trained policy, masked by the ledger.

    Its options are `weights` and the fields of SirenSettings.
    weights    a file written by `scripts/train-siren`; default: the shipped policy
    untrained  whether the network counts as 0: the action is START_ACTION, whatever the state
    """

    name: ClassVar[str] = "siren"
    weights: str = ""
    untrained: bool = False
    settings: SirenSettings = SIREN
    seed: int = 0

    def decide(self, problem: FunctionProblem, history: tuple[Epoch, ...], remaining: RemainingEpochs) -> Fleet | None:
        """The policy's fleet. Raises BadInput for a goal that the policy was not trained for."""
        if problem.goal.budget is None or problem.goal.minimize is not Objective.TIME:
            raise BadInput(
                "search.strategy: siren only minimises time under a budget: set goal: {minimize: time, budget: ...}"
            )
        if len(history) >= 2 and EpochForecast.of(problem, history, remaining, least_share=LEAST_SHARE).is_hopeless(
            history, remaining
        ):
            return None
        state = observe(problem, history, remaining, self.settings)
        if self.untrained:
            action = np.array(START_ACTION)
        else:
            action = load_policy(self.weights or str(WEIGHTS)).mean(state.features)
        return choose(problem, remaining, state, action, self.settings)

    def ending(self, problem: FunctionProblem, history: tuple[Epoch, ...], remaining: RemainingEpochs) -> str:
        """What is missing, by mpc's fit: the policy gives no reasons."""
        return EpochForecast.of(problem, history, remaining, least_share=LEAST_SHARE).ending(
            problem, history, remaining
        )

    def smallest_budget(
        self, problem: FunctionProblem, history: tuple[Epoch, ...], remaining: RemainingEpochs
    ) -> Usd | None:
        """As predicted by mpc's fit."""
        return EpochForecast.of(problem, history, remaining, least_share=LEAST_SHARE).smallest_budget(problem, history)
