"""SMAC3: its random forest over the type as a category and the nodes as a whole number on a logarithmic scale."""

import logging
import tempfile
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from mlcd.problem import Problem
from mlcd.trial.plan import Remaining
from peers.peer import Peer, Rows, Told, nearest_row


@dataclass(frozen=True, kw_only=True)
class SmacPeer(Peer):
    """The facade for hyperparameters, told every trial and asked for one more; plans that do not fit are penalised."""

    name: ClassVar[str] = "smac"
    package: ClassVar[str] = "smac"

    def ask(self, problem: Problem, told: list[Told], remaining: Remaining, rows: Rows) -> int:  # noqa: ARG002
        """See Peer."""
        library, spaces = import_module("smac"), import_module("ConfigSpace")
        runs = import_module("smac.runhistory.dataclasses")
        logging.disable(logging.WARNING)
        space = spaces.ConfigurationSpace(seed=self.seed)
        types = sorted({config.instance for config in problem.space})
        most = max(int(problem.nodes.max()), 2)
        space.add(
            spaces.Categorical("instance", types) if len(types) > 1 else spaces.Constant("instance", types[0]),
            spaces.Integer("nodes", (1, most), log=True),
        )
        with tempfile.TemporaryDirectory() as folder:
            scenario = library.Scenario(
                space, deterministic=True, n_trials=1000, seed=self.seed, output_directory=Path(folder)
            )
            facade: Any = library.HyperparameterOptimizationFacade
            none = facade.get_initial_design(scenario, n_configs=0)
            smac = facade(scenario, target_function=_never, initial_design=none, overwrite=True, logging_level=False)
            for each in told:
                config = spaces.Configuration(
                    space, values={"instance": each.config.instance, "nodes": each.config.nodes}
                )
                smac.tell(runs.TrialInfo(config, seed=0), runs.TrialValue(cost=each.log_penalised), save=False)
            asked = dict(smac.ask().config)
        return nearest_row(problem, rows, str(asked["instance"]), int(asked["nodes"]))


def _never(config: object, seed: int = 0) -> float:
    raise AssertionError(f"mlcd runs the trials (asked for {config}, seed {seed})")
