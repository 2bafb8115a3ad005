"""Ax: the type as an unordered choice, the nodes as a whole number on a logarithmic scale."""

import logging
import warnings
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

from mlcd.problem import Problem
from mlcd.trial.plan import Remaining
from peers.peer import Peer, Rows, Told, nearest_row


@dataclass(frozen=True, kw_only=True)
class AxPeer(Peer):
    """A client that is told every trial and asked for one more; the limits are an outcome constraint."""

    name: ClassVar[str] = "ax"
    package: ClassVar[str] = "ax-platform"

    def ask(self, problem: Problem, told: list[Told], remaining: Remaining, rows: Rows) -> int:
        """See Peer."""
        logging.disable(logging.WARNING)
        warnings.simplefilter("ignore")
        import_module("torch").set_num_threads(1)
        configs = import_module("ax.api.configs")
        types = sorted({config.instance for config in problem.space})
        client = import_module("ax.api.client").Client(random_seed=self.seed)
        most = max(int(problem.nodes.max()), 2)
        nodes = configs.RangeParameterConfig(name="nodes", bounds=(1, most), parameter_type="int", scaling="log")
        choice = configs.ChoiceParameterConfig(name="instance", values=types, parameter_type="str", is_ordered=False)
        client.configure_experiment(parameters=[nodes, choice] if len(types) > 1 else [nodes])
        limited = {"outcome_constraints": ["excess <= 0"]} if remaining.is_limited else {}
        client.configure_optimization(objective="-value", **limited)
        client.configure_generation_strategy(initialization_budget=1, initialize_with_center=False)
        for each in told:
            parameters: dict[str, Any] = {"nodes": each.config.nodes}
            if len(types) > 1:
                parameters["instance"] = each.config.instance
            measured = {"value": each.log_value}
            if remaining.is_limited:
                measured["excess"] = each.log_excess
            client.complete_trial(client.attach_trial(parameters), raw_data=measured)
        asked = next(iter(client.get_next_trials(max_trials=1).values()))
        return nearest_row(problem, rows, str(asked.get("instance", types[0])), int(asked["nodes"]))
