"""The grid search that gives `static-n` and `static` their fleets: on the workload itself, at no cost."""

import math

import numpy as np

from mlcd.clouds.functions.sim.laws import FunctionLaws
from mlcd.functions import Floats, FunctionProblem
from mlcd.trial.epoch import Fleet

LONG_EPOCH_FACTOR = 1.12
"""The ledger must be able to pay for a last epoch that takes this many times its mean."""


def grid_search(problem: FunctionProblem, laws: FunctionLaws, *, memory_mb: tuple[int, ...]) -> Fleet | None:
    """The fixed fleet that reaches the target soonest within the budget; None when none does.

    Like the paper's, which sweeps every number of functions at one memory size. Here the fleet must also fit in slow
    runs (19 of 20), with the ledger's reserve for the last epoch: a fleet that fits only on average would be stopped
    early in every other run. Without randomness (laws.chance is CALM) there is no such reserve.
    """
    counts, budget, chance = problem.functions_array[:, 0], problem.goal.budget, laws.chance
    epochs = _epochs(laws, counts)
    late = LONG_EPOCH_FACTOR if chance.weather else 1.0
    calls = counts + np.ceil(problem.repeat_share * counts - 1e-9)
    slow = np.exp(1.645 * np.hypot(chance.run, chance.weather / np.sqrt(epochs)))
    fixed, per_second = problem.slot_term_arrays
    best: tuple[float, Fleet] | None = None
    for size in memory_mb:
        if size < laws.working_set_mb:
            continue
        column = problem.memory_mb.index(size)
        busy = laws.busy_seconds(counts, size)
        seconds = busy + laws.waiting_seconds(counts)
        usd = counts * (problem.usd_per_second[0, column] * busy + problem.usd_per_function)
        worst = calls * (fixed[0, column] + per_second[0, column] * seconds * late)
        whole = slow * ((epochs - 1) * usd + (worst if chance.weather else usd))
        fits = (seconds * late <= problem.longest_epoch_seconds) & (epochs <= problem.max_epochs)
        fits &= whole <= (budget.dollars if budget is not None else math.inf)
        if not fits.any():
            continue
        time = np.where(fits, epochs * seconds, np.inf)
        row = int(time.argmin())
        if best is None or float(time[row]) < best[0]:
            best = float(time[row]), Fleet(int(counts[row]), size)
    return best[1] if best is not None else None


def _epochs(laws: FunctionLaws, counts: Floats) -> Floats:
    """(F,) epochs to the target with each fixed number of functions, without randomness."""
    done, epochs = np.zeros_like(counts), np.zeros_like(counts)
    while True:
        running = done < laws.target_epochs - 1e-9
        if not running.any():
            return epochs
        stage = np.minimum(done / laws.target_epochs, 1.0)
        done = np.where(running, done + laws.gain_at(counts, stage), done)
        epochs += running
