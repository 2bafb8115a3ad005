"""The grid search that gives `static-n` and `static` their fleets: on the workload itself, and not paid for."""

import math

import numpy as np

from mlcd.clouds.functions.sim.laws import FunctionLaws
from mlcd.epoch_ledger import EpochLedger
from mlcd.functions import FunctionProblem
from mlcd.trial.epoch import Fleet

LATE = 1.12
"""The ledger must pay for a last epoch that takes this much longer than its mean."""


def grid_search(problem: FunctionProblem, laws: FunctionLaws, *, memory_mb: tuple[int, ...]) -> Fleet | None:
    """The fixed fleet that reaches the target soonest within the budget; None when none does.

    As the paper's, which sweeps every number of functions at one memory size; but it fits in a slow run too (19 of
    20), with the ledger's reserve for the last epoch: a fleet that just fits on average would be stopped before its end
    in every other run. Without chance (laws.chance is CALM) there is no such reserve.
    """
    counts = problem.functions_array[:, 0]
    epochs = np.array([laws.epochs(n) for n in counts])
    ledger, budget, chance = EpochLedger(problem=problem), problem.goal.budget, laws.chance
    late = LATE if chance.weather else 1.0
    best: tuple[float, Fleet] | None = None
    for size in memory_mb:
        if size < laws.working_set_mb:
            continue
        price = float(problem.prices.usd_per_second(size))
        seconds = laws.work_seconds / counts / laws.speed(size) + np.array(
            [laws.update_seconds(n, size) for n in counts]
        )
        usd = counts * (price * seconds + problem.usd_per_function)
        order = np.argsort(epochs * seconds, kind="stable")
        for row in order:
            if best is not None and epochs[row] * seconds[row] >= best[0]:
                break
            if seconds[row] * late > problem.longest_epoch_seconds or epochs[row] > problem.max_epochs:
                continue
            fleet = Fleet(int(counts[row]), size)
            slow = math.exp(1.645 * math.hypot(chance.run, chance.weather / math.sqrt(epochs[row])))
            last = ledger.worst_usd(fleet, float(seconds[row]) * late).dollars if chance.weather else usd[row]
            if budget is None or slow * ((epochs[row] - 1) * usd[row] + last) <= budget.dollars:
                best = float(epochs[row] * seconds[row]), fleet
                break
    return best[1] if best is not None else None
