"""Optuna's TPE as vllm-tuner drives it: categories, random start trials, the best objective of what was measured."""

from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

import numpy as np

from mlcd.problem import Problem
from mlcd.search.serving.table_informed import open_rows
from mlcd.search.serving.table_worth import trial_worth
from mlcd.search.strategy import MeasuredStrategy
from mlcd.trial.plan import Remaining
from mlcd.trial.trial import History, Suggestion

STARTS = 10
"""Random trials before the model, vllm-tuner's `n_startup_trials` and Optuna's default."""


@dataclass(frozen=True, kw_only=True)
class TpePeer(MeasuredStrategy):
    """TPESampler over the instance type, a category, and log2 of the requests in flight where they are a knob.

    The objective is what the goal asks for per dollar. vllm-tuner knows no limits on what was measured; its user would
    report 0 where one is broken. Here they are constraints of the sampler too, which is Optuna at full strength. A
    suggestion that was tried already is replaced by the nearest that was not.
    """

    name: ClassVar[str] = "tpe"
    steps: int = 30

    def suggest(self, problem: Problem, history: History, remaining: Remaining, count: int) -> tuple[Suggestion, ...]:  # noqa: ARG002
        """One trial."""
        rows = np.flatnonzero(open_rows(problem, history, remaining))
        if len(history.tried) >= min(self.steps, problem.max_trials) or not len(rows):
            return ()
        asked = self._asked(problem, history)
        apart = [_apart(problem, int(row), asked) for row in rows]
        row = int(rows[int(np.argmin(apart))])
        return (Suggestion(config=problem.space.configs[row], reason="suggested by optuna"),)

    def ending(self, problem: Problem, history: History, remaining: Remaining) -> str:  # noqa: ARG002
        """The trials were made."""
        return f"all {len(history.tried)} load tests of tpe were made"

    def _asked(self, problem: Problem, history: History) -> dict[str, Any]:
        library = import_module("optuna")
        library.logging.set_verbosity(library.logging.ERROR)
        kinds = library.distributions
        spread: dict[str, Any] = {
            "instance": kinds.CategoricalDistribution(sorted({c.instance for c in problem.space}))
        }
        if "batch" in dict(problem.space.configs[0].values):
            sizes = [_size(problem, row) for row in range(len(problem.space))]
            spread["size"] = kinds.IntDistribution(min(sizes), max(sizes))
        sampler = library.samplers.TPESampler(
            seed=self.seed, n_startup_trials=STARTS, constraints_func=lambda trial: trial.user_attrs["broken"]
        )
        study = library.create_study(direction="maximize", sampler=sampler)
        for trial in history:
            row = problem.space.index[trial.config]
            broken = (0.0 if trial_worth(problem, trial) > 0 else 1.0,)
            params: dict[str, Any] = {"instance": trial.config.instance}
            if "size" in spread:
                params["size"] = _size(problem, row)
            study.add_trial(
                library.trial.create_trial(
                    params=params,
                    distributions=spread,
                    value=trial_worth(problem, trial),
                    user_attrs={"broken": broken},
                    system_attrs={"constraints": broken},
                )
            )
        sampler.reseed_rng()
        sampler._rng.rng.seed(self.seed * 1000 + len(history))  # a new study for every question
        found: dict[str, Any] = study.ask(spread).params
        return found


def _size(problem: Problem, row: int) -> int:
    return round(float(np.log2(float(dict(problem.space.configs[row].values)["batch"]))))


def _apart(problem: Problem, row: int, asked: dict[str, Any]) -> float:
    config = problem.space.configs[row]
    other = 0.0 if config.instance == asked["instance"] else 100.0
    if other:
        of_type = next(at for at, c in enumerate(problem.space) if c.instance == asked["instance"])
        other += abs(float(np.log(problem.dollars_per_second[row] / problem.dollars_per_second[of_type])))
    return other + (abs(_size(problem, row) - asked["size"]) if "size" in asked else 0.0)
