"""One fleet for the whole training: what `static-n` and `static` share."""

from dataclasses import replace

import numpy as np

from mlcd.errors import BadInput
from mlcd.functions import FunctionProblem
from mlcd.schedulers.outlook import Outlook
from mlcd.schedulers.planning import Fleets, best_plan, frugal
from mlcd.trial.epoch import Epoch, EpochLeft, Fleet


def keep(
    problem: FunctionProblem,
    history: tuple[Epoch, ...],
    left: EpochLeft,
    *,
    fleet: Fleet | None,
    memory_mb: int | None,
) -> Fleet | None:
    """The fleet to keep: `fleet` where it is given, else the best fixed one, chosen once more after two epochs.

    Raises BadInput for a given fleet that is not among what may be chosen.

    Where what is left does not pay for going on with it, the fastest fixed fleet of the same memory that it pays for.
    memory_mb  the only memory size that may be chosen, where there is but one
    """
    if fleet is not None and (fleet.functions not in problem.functions or fleet.memory_mb not in problem.memory_mb):
        raise BadInput(f"search.strategy: {fleet} is not to be chosen; see functions: and memory: of the job")
    outlook = Outlook.of(problem, history, left)
    fleets = outlook.fleets if memory_mb is None else only_memory(problem, outlook, left, memory_mb)
    if fleet is None and len(history) not in (0, 2):
        fleet = history[-1].fleet
    if fleet is not None and _goes_on(problem, outlook, left, fleet):
        return fleet
    if outlook.is_hopeless(history, left):
        return None
    if fleet is not None:
        fleets = only_memory(problem, outlook, left, fleet.memory_mb)
    plan = best_plan(problem, outlook.model, left, fleets, fixed=True)
    return plan.fleets[0] if plan is not None else frugal(fleets)


def only_memory(problem: FunctionProblem, outlook: Outlook, left: EpochLeft, memory_mb: int) -> Fleets:
    """The candidates of one memory size."""
    fleets = outlook.fleets
    if not (fleets.memory_mb == memory_mb).any():  # the candidates are a choice of sizes: add this one
        column = problem.memory_mb.index(memory_mb)
        rows = np.unique(fleets.functions)
        index = np.searchsorted(problem.functions_array[:, 0], rows)
        memory = np.full(len(rows), float(memory_mb))
        seconds = outlook.model.seconds(rows, memory)
        return Fleets(
            functions=rows,
            memory_mb=memory,
            seconds=seconds,
            usd=rows * (problem.usd_per_second[0, column] * seconds + problem.usd_per_function),
            payable=left.cap_seconds[index, column] >= seconds,
        )
    return replace(fleets, payable=fleets.payable & (fleets.memory_mb == memory_mb))


def _goes_on(problem: FunctionProblem, outlook: Outlook, left: EpochLeft, fleet: Fleet) -> bool:
    """Whether the ledger pays for one more epoch of it that is as long as predicted, and a tenth."""
    row, column = problem.functions.index(fleet.functions), problem.memory_mb.index(fleet.memory_mb)
    predicted = outlook.model.seconds(np.array([float(fleet.functions)]), np.array([float(fleet.memory_mb)]))
    return bool(left.cap_seconds[row, column] >= 1.1 * predicted[0])
