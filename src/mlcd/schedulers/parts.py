"""The best fleets for the remaining effective epochs, and how long to run the first: an epoch, or a part of one.

The remaining progress is cut into equal stretches. A fleet that gains g effective epochs per epoch needs 1/g epochs for
one effective epoch. So minimise sum T(a)/g(a, s) subject to sum usd(a)/g(a, s) <= budget, which a single Lagrange
multiplier solves by enumeration. If cost is minimised, money and time change places. The solution is smooth in the
remaining epochs, so that a wrong estimate of them costs little.

Parts of epochs have two uses. The first ones are small and grow: an unknown workload starts with a hundredth of an
epoch. The last one is cut to the remaining epochs, so that no training goes far past its target.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlcd.functions import FunctionProblem
from mlcd.goal import Objective
from mlcd.models.epochs import EpochModel
from mlcd.schedulers.planning import Fleets, PlanningSettings, frugal, least_part
from mlcd.trial.epoch import LEAST_SHARE, Fleet, RemainingEpochs

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class MpcSettings(PlanningSettings):
    """Options of `mpc:option=value`. Sources: docs/siren.md, "What was chosen on what"; effects: docs/ablations.md."""

    stretches: int = 12
    """Equal pieces of the remaining progress, each with its own fleet. Chosen for speed; 1 is worse from $200 on
    (docs/ablations.md)."""

    kept_back_epochs: float = 0.4
    """Epochs whose price is held back: for the ledger's reserve for the last part, and for one more part if that one
    falls short. Chosen on odd wide-N."""

    kept_back_share: float = 0.25
    """Upper limit of `kept_back_epochs`, as a share of the remaining epochs. Chosen on odd wide-N."""

    doubt_sigmas: float = 1.0
    """Standard deviations by which the remaining epochs are planned above their mean near the target, and less before:
    money kept back for a loss curve that turns out longer, when later epochs can no longer make up for it. Chosen on
    odd wide-N."""

    affordable_share: float = 0.6
    """No more epochs are planned than this share of those that what remains pays for with the cheapest fleet: if more
    are needed, slow epochs now cost more time than they save. Chosen on odd wide-N."""

    hope_sigmas: float = 0.7
    """That undercuts their mean by at most this many deviations, and less near the target. Chosen on odd wide-N."""

    opening_parts: bool = True
    """Whether an unknown workload starts with small parts that grow; off: with whole epochs."""

    known_way_share: float = 0.05
    """The remaining epochs count as known when their deviation is below this share of them; then whole epochs are run.
    Chosen on tune-0 to tune-520."""

    first_functions_divisor: float = 4.0
    """The first part has this many times fewer functions than planned: starting many may take unknown time. Chosen on
    tune-0 to tune-520 and lenet-localhost."""

    memory_gap: float = 0.3
    """Opening parts also measure memory sizes whose logarithm is at least this far from any measured one, down to half
    of the largest: speed may not grow with memory. Chosen on odd wide-N."""

    memory_trials_from: float = 0.03
    """Such parts come only after this share of an epoch: a shorter part does not tell speeds apart. Unmeasured."""

    memory_trials_to: float = 0.3
    """And only before this share of an epoch is done. Unmeasured."""

    part_growth: float = 2.0
    """Each opening part is this many times as large as all before it. Chosen on tune-0 to tune-520."""

    busy_factor: float = 4.0
    """In every part, functions work at least this many times as long as the cloud takes to start them. Chosen on
    lenet-localhost (commit 7016977)."""

    cut_last: bool = True
    """Whether the last epoch is cut to the remaining epochs."""

    plannable_share: float = 0.25
    """A fleet is a candidate if this share of its epoch is payable, or the remaining epochs if less. Chosen on
    tune-0 to tune-520."""

    learn_startup: bool = True
    """Whether the time to start functions, e + f n, is learnt from epochs (commit 5dfce24)."""


MPC = MpcSettings()


def next_part(
    problem: FunctionProblem,
    model: EpochModel,
    remaining: RemainingEpochs,
    fleets: Fleets,
    *,
    passes: float,
    least: float = 0.0,
    settings: MpcSettings = MPC,
) -> Fleet | None:
    """The first fleet of the best plan, with its share of an epoch; None if nothing is payable.

    If no plan fits by the model, which may be wrong, a frugal fleet.

    passes  epochs done, parts counted by their share
    least   the smallest share to run, if that is payable: more than the last part, if that fell short of the target
    """
    need = model.epochs_left / model.gain(fleets.functions, np.array(model.stage))
    usable = fleets.most_share >= np.clip(need, LEAST_SHARE, settings.plannable_share)
    plan = _plan(problem, model, remaining, fleets, usable, settings=settings)
    first = int(plan[0]) if plan is not None else frugal(fleets, fleets.most_share >= LEAST_SHARE, settings)
    if first is None:
        return None
    share = 1.0
    if settings.opening_parts and model.epochs_left_deviation > settings.known_way_share * model.epochs_left:
        if not passes:
            first = _with_fewer(fleets, usable, first, settings.first_functions_divisor)
        elif settings.memory_trials_from <= passes + 1e-9 <= settings.memory_trials_to:
            first = _other_size(fleets, usable, first, model.times.memory_mb, settings.memory_gap)
        share = settings.part_growth * passes if passes else LEAST_SHARE
    share = min(share, float(need[first])) if settings.cut_last else share
    share = max(share, least, _least_share(problem, model, fleets, first, settings))
    return fleets.fleet(first, min(share, float(fleets.most_share[first]), remaining.epochs))


def _with_fewer(fleets: Fleets, usable: NDArray[np.bool_], first: int, divisor: float) -> int:
    """The usable fleet of the same memory with about `divisor` times fewer functions."""
    alike = usable & (fleets.memory_mb == fleets.memory_mb[first])
    distance = np.abs(np.log(fleets.functions * divisor / fleets.functions[first]))
    return int(np.where(alike, distance, np.inf).argmin()) if alike.any() else first


def _other_size(fleets: Fleets, usable: NDArray[np.bool_], first: int, measured_mb: Floats, gap: float) -> int:
    """The usable fleet with as many functions as `first` and the size farthest from any measured one; else `first`."""
    if not usable.any():
        return first
    largest = fleets.memory_mb[usable].max()
    alike = usable & (fleets.functions == fleets.functions[first]) & (fleets.memory_mb >= 0.45 * largest)
    if not alike.any() or not len(measured_mb):
        return first
    distance = np.abs(np.log(fleets.memory_mb[:, None] / measured_mb[None, :])).min(axis=1)
    farthest = int(np.where(alike, distance, -1.0).argmax())
    return farthest if distance[farthest] >= gap else first


def _least_share(
    problem: FunctionProblem, model: EpochModel, fleets: Fleets, index: int, settings: MpcSettings
) -> float:
    """The smallest part worth starting the functions for. Only time counts, since their start costs no money."""
    if problem.goal.minimize is not Objective.TIME:
        return least_part(problem, settings)
    overhead = float(model.overhead(fleets.functions[index : index + 1])[0])
    worth = settings.busy_factor * overhead / max(float(fleets.seconds[index]) - overhead, 1e-9)
    return max(least_part(problem, settings), worth)


def _plan(
    problem: FunctionProblem,
    model: EpochModel,
    remaining: RemainingEpochs,
    fleets: Fleets,
    usable: NDArray[np.bool_],
    *,
    settings: MpcSettings,
) -> NDArray[np.intp] | None:
    """(stretches,) indices of the fleets; None if no plan fits in what remains."""
    if not usable.any():
        return None
    value, other, limit = fleets.sides(problem, remaining)
    payable = float((limit / other * model.usual_gain(fleets.functions))[usable].max())
    epochs_left = _epochs_to_plan(model, payable, settings)
    stretches = settings.stretches
    stage = model.stage + (1 - model.stage) * (np.arange(stretches) + 0.5) / stretches
    epochs = epochs_left / stretches / model.gain(fleets.functions[None, :], stage[:, None])
    worth = np.where(usable[None, :], value[None, :] * epochs, np.inf)
    return _under_limit(
        worth, other[None, :] * epochs, limit * epochs_left / (epochs_left + _held_back_epochs(epochs_left, settings))
    )


def _held_back_epochs(epochs_left: float, settings: MpcSettings) -> float:
    return min(settings.kept_back_epochs, settings.kept_back_share * epochs_left)


def _epochs_to_plan(model: EpochModel, payable: float, settings: MpcSettings) -> float:
    """Effective epochs to plan for: their mean, more near the target if it is uncertain, fewer if not payable.

    payable  epochs for which even the cheapest fleet would use up what remains
    """
    mean, deviation, stage = model.epochs_left, model.epochs_left_deviation, model.stage
    cautious = mean + settings.doubt_sigmas * stage * deviation
    hopeful = mean - settings.hope_sigmas * (1 - stage) * deviation
    return max(min(cautious, settings.affordable_share * payable), hopeful, LEAST_SHARE)


def _under_limit(value: Floats, other: Floats, limit: float) -> NDArray[np.intp] | None:
    """(E,) argmin of value + multiplier x other, a row per stretch, with the smallest multiplier within the limit."""
    rows = np.arange(len(value))

    def pick(multiplier: float) -> tuple[NDArray[np.intp], float]:
        chosen = (value + multiplier * other).argmin(axis=1)
        return chosen, float(other[rows, chosen].sum())

    chosen, total = pick(0.0)
    if total <= limit:
        return chosen
    finite = np.isfinite(value)
    low, high = 0.0, float(value[finite].mean() / other[finite].mean())
    for _ in range(30):
        chosen, total = pick(high)
        if total <= limit:
            break
        low, high = high, high * 4
    else:
        return None
    for _ in range(20):
        middle = (low + high) / 2
        tried, total = pick(middle)
        low, high, chosen = (low, middle, tried) if total <= limit else (middle, high, chosen)
    return chosen
