"""What not knowing a workload costs: `mpc` decides its first epochs, then the oracle takes over.

    .venv/bin/python benchmarks/first_epochs.py [--seeds 2] [--out benchmarks/results/first-epochs.json]

After k epochs of a scheduler that knows nothing, not even the oracle can end sooner than this says: what is lost by
then is lost for every scheduler that begins so. Simulated, on the unseen workloads.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any, ClassVar

from mlcd.bench.serverless.compare import LawsOfRun
from mlcd.bench.serverless.episode import run_episode
from mlcd.clouds.functions.sim import SimFunctionCloud
from mlcd.clouds.functions.sim.workloads import UNSEEN_COUNT, unseen_workload
from mlcd.functions import FunctionProblem
from mlcd.goal import Goal, Objective
from mlcd.schedulers.mpc import Mpc
from mlcd.schedulers.oracle import Oracle
from mlcd.schedulers.scheduler import Scheduler
from mlcd.trial.epoch import Epoch, EpochLeft, Fleet
from mlcd.units import Usd

BUDGETS = (100.0, 200.0, 300.0)
TAKEN_OVER = (0, 1, 2, 3, 4)
OUT = Path(__file__).parent / "results" / "first-epochs.json"


@dataclass(frozen=True, kw_only=True)
class TakenOver:
    """`first` decides `epochs` epochs, then `then`."""

    name: ClassVar[str] = "mpc, then oracle"
    first: Scheduler
    then: Scheduler
    epochs: int

    def _who(self, history: tuple[Epoch, ...]) -> Scheduler:
        return self.first if len(history) < self.epochs else self.then

    def decide(self, problem: FunctionProblem, history: tuple[Epoch, ...], left: EpochLeft) -> Fleet | None:
        return self._who(history).decide(problem, history, left)

    def ending(self, problem: FunctionProblem, history: tuple[Epoch, ...], left: EpochLeft) -> str:
        return self._who(history).ending(problem, history, left)

    def smallest_budget(self, problem: FunctionProblem, history: tuple[Epoch, ...], left: EpochLeft) -> Usd | None:
        return self._who(history).smallest_budget(problem, history, left)


def seconds(workload: int, budget: float, seed: int, epochs: int) -> float | None:
    """Of the whole training; None where the target was not reached."""
    made = unseen_workload(workload)
    problem = made.problem(Goal(minimize=Objective.TIME, budget=Usd.of(budget)))
    cloud = SimFunctionCloud(problem=problem, laws=made.laws, seed=seed)
    oracle = Oracle(truth=LawsOfRun(cloud.run_laws))
    episode = run_episode(problem, cloud, TakenOver(first=Mpc(), then=oracle, epochs=epochs))
    return episode.seconds if episode.done else None


def results(seeds: int) -> Iterator[dict[str, Any]]:
    """A line a budget and number of epochs: the time over that of the oracle from the start, less 1."""
    for budget in BUDGETS:
        best = {(w, s): seconds(w, budget, s, 0) for w in range(UNSEEN_COUNT) for s in range(seeds)}
        for epochs in TAKEN_OVER[1:]:
            lost = []
            for (workload, seed), at_best in best.items():
                found = seconds(workload, budget, seed, epochs)
                if found is not None and at_best is not None:
                    lost.append(found / at_best - 1)
            yield {
                "budget_usd": budget,
                "epochs_by_mpc": epochs,
                "pairs": len(lost),
                "mean_over_oracle": round(fmean(lost), 4),
                "median_over_oracle": round(median(lost), 4),
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    lines = []
    for line in results(given.seeds):
        lines.append(line)
        print(json.dumps(line), flush=True)
    given.out.write_text(json.dumps({"simulated": True, "seeds": given.seeds, "lines": lines}, indent=1) + "\n")


if __name__ == "__main__":
    main()
