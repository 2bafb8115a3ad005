"""One fleet for the whole training: what `static-n` and `static` share."""

import math
from dataclasses import replace

import numpy as np

from mlcd.errors import BadInput
from mlcd.functions import FunctionProblem
from mlcd.models.epochs import EpochModel
from mlcd.schedulers.epoch_forecast import EpochForecast
from mlcd.schedulers.planning import PLANNING, Fleets, frugal, most_share
from mlcd.trial.epoch import Epoch, Fleet, RemainingEpochs

COVERED_SIGMAS = 1.0
"""Standard deviations of the remaining epochs that a fixed fleet must cover. Unmeasured."""
GAIN_DEVIATION, MOST_REMAINING_DEVIATION = 0.02, 0.3
"""In epochs: deviation of an epoch's gain; cap on the deviation of the remaining epochs. Unmeasured."""
CONTINUE_MARGIN = 1.1
"""A fixed fleet continues if the ledger pays for this many times the predicted epoch. Unmeasured."""


def keep(
    problem: FunctionProblem,
    history: tuple[Epoch, ...],
    remaining: RemainingEpochs,
    *,
    fleet: Fleet | None,
    memory_mb: int | None,
) -> Fleet | None:
    """The fleet to keep: `fleet` if given, else the best fixed one, chosen again after two epochs.

    If what remains does not pay for another epoch of it: the fastest fixed fleet of the same memory that it pays for.
    None if nothing can reach the target. Raises BadInput for a given fleet that the job does not allow.

    memory_mb  the only memory size to choose from; None: all
    """
    if fleet is not None and (fleet.functions not in problem.functions or fleet.memory_mb not in problem.memory_mb):
        raise BadInput(
            f"search.strategy: {fleet} is not among the allowed fleets; see functions: and memory: of the job"
        )
    outlook = EpochForecast.of(problem, history, remaining)
    fleets = outlook.fleets if memory_mb is None else only_memory(problem, outlook, remaining, memory_mb)
    if fleet is None and len(history) not in (0, 2):
        fleet = history[-1].fleet
    if outlook.is_late(history, remaining):
        return None
    if fleet is not None and _can_continue(problem, outlook, remaining, fleet):
        return fleet
    if outlook.is_hopeless(history, remaining):
        return None
    if fleet is not None:
        fleets = only_memory(problem, outlook, remaining, fleet.memory_mb)
    best = _best(problem, outlook.model, remaining, fleets)
    index = best if best is not None else frugal(fleets, fleets.payable)
    return None if index is None else fleets.fleet(index)


def only_memory(problem: FunctionProblem, outlook: EpochForecast, remaining: RemainingEpochs, memory_mb: int) -> Fleets:
    """The candidates of one memory size."""
    fleets = outlook.fleets
    if not (fleets.memory_mb == memory_mb).any():  # the candidates are a selection of sizes: add this one
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
            most_share=most_share(remaining.cap_seconds[index, column], seconds, outlook.model.overhead(rows)),
        )
    return replace(fleets, most_share=np.where(fleets.memory_mb == memory_mb, fleets.most_share, 0.0))


def _best(problem: FunctionProblem, model: EpochModel, remaining: RemainingEpochs, fleets: Fleets) -> int | None:
    """The affordable fleet whose whole epochs to the target take least; None if there is none."""
    value, other, limit = fleets.sides(problem, remaining)
    whole = model.done + model.epochs_left
    need = whole + COVERED_SIGMAS * math.hypot(
        GAIN_DEVIATION, min(model.epochs_left_deviation, MOST_REMAINING_DEVIATION)
    )
    done, epochs = np.full_like(value, model.done), np.zeros_like(value)
    for _ in range(math.ceil(remaining.epochs)):
        going = done < need
        done = done + going * model.gain(fleets.functions, np.minimum(done / whole, 1.0))
        epochs = epochs + going
    fits = fleets.payable & (done >= need) & (other * (epochs - 1 + PLANNING.last_price) <= limit)
    return int(np.where(fits, value * epochs, np.inf).argmin()) if fits.any() else None


def _can_continue(problem: FunctionProblem, outlook: EpochForecast, remaining: RemainingEpochs, fleet: Fleet) -> bool:
    """Whether the ledger pays for one more epoch that takes CONTINUE_MARGIN times as long as predicted."""
    row, column = problem.functions.index(fleet.functions), problem.memory_mb.index(fleet.memory_mb)
    predicted = outlook.model.seconds(np.array([float(fleet.functions)]), np.array([float(fleet.memory_mb)]))
    return bool(remaining.cap_seconds[row, column] >= CONTINUE_MARGIN * predicted[0])
