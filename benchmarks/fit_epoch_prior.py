"""The priors of `mlcd.models.epochs`, from simulated epochs of the training workloads; prints them.

    .venv/bin/python benchmarks/fit_epoch_prior.py

Uses the data that a run has (phases and losses of epochs), on train-0 to train-199 with random fleets. The gain is
regressed on the progress that the losses imply on each workload's own curve.
"""

import math
from dataclasses import replace

import numpy as np

from mlcd.clouds.functions import EpochOrder
from mlcd.clouds.functions.sim import NO_DEVIATION, SimFunctionCloud
from mlcd.clouds.functions.sim.workloads import training_workload
from mlcd.goal import Goal, Objective
from mlcd.models.epoch_times import REFERENCE_MB
from mlcd.trial.epoch import Fleet
from mlcd.units import Usd

WORKLOADS = 200


def main() -> None:
    rng = np.random.default_rng(6)
    sizes = (1536, 1792, 2048, 2560, 3008)
    work, update, powers, contentions, epochs, floors, rows, gains = [], [], [], [], [], [], [], []
    for index in range(WORKLOADS):
        made = training_workload(index)
        laws = replace(made.laws, chance=NO_DEVIATION)
        problem = made.problem(Goal(minimize=Objective.TIME))
        cloud = SimFunctionCloud(problem=problem, laws=laws)
        seen, before, number = [], 0.0, 1
        while before < laws.target_epochs and number <= 40:
            fleet = Fleet(int(math.exp(rng.uniform(math.log(30), math.log(1500)))), int(rng.choice(sizes)))
            seen.append(cloud.run_epoch(EpochOrder(number=number, fleet=fleet, seconds=1e9, usd=Usd.of(1e9))))
            after = laws.progress(seen[-1].loss)
            stage = before / laws.target_epochs
            rows.append(((1 - stage) * math.sqrt(fleet.functions / 1000), -stage * fleet.functions / 1000))
            gains.append(after - before - 1)
            before, number = after, number + 1
        design = [[1.0, -math.log(e.fleet.memory_mb / REFERENCE_MB)] for e in seen]
        shared = [math.log((e.fetch.mean_seconds + e.compute.mean_seconds) * e.fleet.functions) for e in seen]
        (log_work, power), *_ = np.linalg.lstsq(np.array(design), np.array(shared), rcond=None)
        each = [math.log(e.update.mean_seconds) - power * row[1] for e, row in zip(seen, design, strict=True)]
        crowd = np.array([[1.0, e.fleet.functions / 1000] for e in seen])
        (log_update, contention), *_ = np.linalg.lstsq(crowd, np.array(each), rcond=None)
        work.append(log_work - math.log(problem.samples))
        update.append(log_update - math.log(problem.puts_per_function))
        powers.append(power)
        contentions.append(contention)
        epochs.append(math.log(before))
        share = laws.floor_loss / laws.target_loss
        floors.append(math.log(share / (1 - share)))
    (early, stale), *_ = np.linalg.lstsq(np.array(rows), np.array(gains), rcond=None)
    for name, values in (("seconds_per_sample", work), ("seconds_per_put", update), ("epochs", epochs)):
        print(f"{name}: {math.exp(np.median(values)):.4g}, deviation of the logarithm {np.std(values):.2g}")
    print(f"memory_power: {np.median(powers):.3g} +- {np.std(powers):.2g}")
    print(f"contention: {np.median(contentions):.3g} +- {np.std(contentions):.2g}")
    middle = 1 / (1 + math.exp(-np.median(floors)))
    print(f"floor_share: {middle:.3g}, deviation of the logit {np.std(floors):.2g}")
    print(f"early_gain: {early:.3g}; staleness: {stale:.3g}")


if __name__ == "__main__":
    main()
