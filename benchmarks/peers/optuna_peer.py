"""Optuna's GPSampler: the type as a category, the nodes as a whole number on a logarithmic scale."""

from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

from mlcd.problem import Problem
from mlcd.trial.plan import Remaining
from peers.peer import Peer, Rows, Told, nearest_row


@dataclass(frozen=True, kw_only=True)
class OptunaPeer(Peer):
    """A study that is told every trial, and asked for one more. The limits are a constraint of the sampler."""

    name: ClassVar[str] = "optuna"
    package: ClassVar[str] = "optuna"

    def ask(self, problem: Problem, told: list[Told], remaining: Remaining, rows: Rows) -> int:
        """See Peer."""
        library = import_module("optuna")
        library.logging.set_verbosity(library.logging.ERROR)
        distributions: dict[str, Any] = {
            "instance": library.distributions.CategoricalDistribution(sorted({c.instance for c in problem.space})),
            "nodes": library.distributions.IntDistribution(1, int(problem.nodes.max()), log=True),
        }
        limited: dict[str, Any] = {}
        if remaining.is_limited:
            limited["constraints_func"] = lambda trial: (trial.user_attrs["log_excess"],)
        sampler = library.samplers.GPSampler(seed=self.seed, n_startup_trials=1, **limited)
        study = library.create_study(direction="minimize", sampler=sampler)
        for each in told:
            attributes = {"constraints": (each.log_excess,)} if remaining.is_limited else {}
            study.add_trial(
                library.trial.create_trial(
                    params={"instance": each.config.instance, "nodes": each.config.nodes},
                    distributions=distributions,
                    value=each.log_value,
                    user_attrs={"log_excess": each.log_excess},
                    system_attrs=attributes,
                )
            )
        asked = study.ask(distributions).params
        return nearest_row(problem, rows, str(asked["instance"]), int(asked["nodes"]))
