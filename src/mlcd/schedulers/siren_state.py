"""Siren's state as its network sees it, and how the network's two numbers become a fleet.

The paper's state is (t, loss, P, P^F, P^C, P^U, memory use, CPU use, remaining budget). Here it is scale-free, so that
one policy serves jobs of different sizes. Two features are derived from the others: the remaining epochs, by the loss
curve, and the even number, the number of functions that would spend what remains evenly over them. The action (log n,
log m) is relative to the even number and to the largest memory.

Not in the paper: a twentieth of an epoch comes before the first one, to measure the times, and the last epoch is cut to
what the loss curve says remains. The policy does not know about either.
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlcd.functions import FunctionProblem
from mlcd.models.epochs import PRIOR, REFERENCE_MB
from mlcd.models.loss_curve import by_levels, floor_shares
from mlcd.schedulers.planning import PLANNING, least_part
from mlcd.trial.epoch import LEAST_SHARE, Epoch, Fleet, RemainingEpochs

Floats = NDArray[np.float64]

FEATURES = 18
LOG_FUNCTIONS, LOG_MEMORY = 1.2, 1.5
"""The range of an action: n between exp(-1.2) and exp(1.2) times the even number, m down to exp(-1.5) of the largest.
Part of the policy: it was trained with these."""
_FLOORS = floor_shares(-1.5, 4.0, 24)
"""Floors of the loss curve. The policy was trained with this grid and `curve_noise`: refit it with both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SirenSettings:
    """What siren does around its policy. Sources: docs/siren.md, "What was chosen on what"; docs/ablations.md."""

    opening_share: float = 0.05
    """The least size of the first part of an epoch; 1: a whole epoch, as in the paper. Chosen on tune-100 to tune-139
    and tune-300 to tune-339."""

    cut_last: bool = True
    """Whether the last epoch is cut to what remains by the loss curve; off: whole epochs, as in the paper."""

    time_margin: float = 1.12
    """An epoch's authorisation must last this many times its predicted time. A safety margin; unmeasured."""

    payable_share: float = 0.75
    """Upper limit of the epochs that what remains is spread over, as a share of those it pays for with one function.
    Chosen as above."""

    spent_share: float = 0.96
    """The share of what remains that is spent evenly. The policy was trained with it; unmeasured."""

    spare_epochs: float = 0.25
    """Epochs added to the remaining ones when what remains is spread over them. The policy was trained with it;
    unmeasured."""

    curve_noise: float = 0.03
    """Deviation of a loss from its curve, in epochs. Chosen as above."""


SIREN = SirenSettings()


@dataclass(frozen=True, slots=True)
class SirenState:
    """`features` (FEATURES,) are the network's input; the rest turns its output into a fleet.

    share         of an epoch that comes next
    work_seconds, update_seconds  of an epoch on one function, and of each function's updates, at `memory_mb`
    """

    features: Floats
    share: float
    even_functions: float
    work_seconds: float
    update_seconds: float
    memory_mb: int

    def seconds(self, functions: Floats, memory_mb: float) -> Floats:
        """A rough prediction, from the last epoch alone."""
        slowness = (self.memory_mb / memory_mb) ** PRIOR.memory_power[0]
        result: Floats = (self.work_seconds / functions + self.update_seconds) * slowness
        return result


def observe(
    problem: FunctionProblem, history: tuple[Epoch, ...], remaining: RemainingEpochs, settings: SirenSettings = SIREN
) -> SirenState:
    """The state before the next epoch. Needs a budget, like the paper's reward."""
    budget = problem.goal.budget.dollars if problem.goal.budget is not None else math.nan
    usd = remaining.usd.dollars if remaining.usd is not None else math.nan
    last = history[-1] if history else None
    memory = last.fleet.memory_mb if last else problem.memory_mb[-1]
    if last is None:
        slowness = (REFERENCE_MB / memory) ** PRIOR.memory_power[0]
        work = PRIOR.seconds_per_sample[0] * problem.samples * slowness
        update = PRIOR.seconds_per_put[0] * max(problem.puts_per_function, 1) * slowness
    else:
        stretch = last.seconds / max(_phases(last), 1e-9) / last.fleet.share
        work = (last.fetch.mean_seconds + last.compute.mean_seconds) * last.fleet.functions * stretch
        update = last.update.mean_seconds * stretch
    passes = [0.0, *itertools.accumulate(epoch.fleet.share for epoch in history)]
    epochs = _epochs_left(problem, history, passes, settings.curve_noise)
    price = float(problem.prices.usd_per_second(memory))
    # If even few functions could not be paid for so many epochs, no choice would matter.
    needed = min(epochs, settings.payable_share * usd / (price * work)) + settings.spare_epochs
    spend = settings.spent_share * usd / needed
    even = (spend - price * work) / (price * update + problem.usd_per_function)
    even = min(max(even, 0.02 * work / max(update, 1e-9), 1.0), float(problem.functions[-1]))
    cheapest = price * work * (PRIOR.epochs[0] if last is None else passes[-1] + epochs)
    features = [
        passes[-1] / 10 - 0.5,
        *_loss_features(problem, history),
        usd / budget - 0.5,
        math.log(epochs / 5),
        math.log(even / 300) / 1.5,
        math.log(work / update / 200),
        math.log(max(usd, 1e-9) / (price * work * epochs)),
        math.log(budget / max(cheapest, 1e-9)) - 1,
        *_last_features(problem, last, usd),
    ]
    share = _share(problem, epochs, settings, is_first=last is None)
    share = min(share, 1.0, max(remaining.epochs, LEAST_SHARE))
    return SirenState(np.clip(np.array(features), -5, 5), share, even, work, update, memory)


def _share(problem: FunctionProblem, epochs_left: float, settings: SirenSettings, *, is_first: bool) -> float:
    """The share of the next epoch: a small part first, then whole epochs, the last cut to what remains."""
    if is_first:
        return max(settings.opening_share, least_part(problem))
    if not settings.cut_last:
        return 1.0
    return max(epochs_left, LEAST_SHARE)


def choose(
    problem: FunctionProblem,
    remaining: RemainingEpochs,
    state: SirenState,
    action: Floats,
    settings: SirenSettings = SIREN,
) -> Fleet | None:
    """The payable fleet nearest to the action; None if the ledger pays for none.

    n = even exp(1.2 a_0), m = largest exp(0.75 (a_1 - 1)), both rounded to allowed values, a clipped to [-1, 1].
    """
    wanted = np.clip(action, -1, 1)
    memory = math.log(problem.memory_mb[-1]) + LOG_MEMORY * (float(wanted[1]) - 1) / 2
    column = int(np.abs(np.log(problem.memory_array[0]) - memory).argmin())
    log_n = math.log(state.even_functions) + LOG_FUNCTIONS * float(wanted[0])
    for index in (column, *range(len(problem.memory_mb) - 1, -1, -1)):
        seconds = state.seconds(problem.functions_array[:, 0], problem.memory_mb[index])
        margin = settings.time_margin * state.share + (PLANNING.part_margin if state.share < 1 else 0.0)
        payable = remaining.cap_seconds[:, index] >= seconds * margin
        for failure in remaining.failed:
            if problem.memory_mb[index] <= failure.fleet.memory_mb:
                payable &= problem.functions_array[:, 0] > failure.fleet.functions
        if payable.any():
            distance = np.abs(np.log(problem.functions_array[:, 0]) - log_n)
            row = int(np.where(payable, distance, np.inf).argmin())
            return Fleet(problem.functions[row], problem.memory_mb[index], state.share)
    return None


def _phases(epoch: Epoch) -> float:
    return epoch.fetch.mean_seconds + epoch.compute.mean_seconds + epoch.update.mean_seconds


def _epochs_left(
    problem: FunctionProblem, history: tuple[Epoch, ...], passes: list[float], curve_noise: float
) -> float:
    """By the loss curve; by the general prior while losses are too few or do not fall."""
    losses = np.array(([problem.first_loss] if problem.first_loss is not None else []) + [e.loss for e in history])
    guess = max(PRIOR.epochs[0] - passes[-1], 1.0)
    if len(losses) < 2 or losses[-1] >= losses[0]:
        return guess
    work = np.array(passes[-len(losses) :])
    found = by_levels(losses, work, problem.target_loss, shares=_FLOORS, noise=curve_noise, prior=PRIOR.curve)
    return guess if found is None else max(found.mean_left, 0.02)


def _loss_features(problem: FunctionProblem, history: tuple[Epoch, ...]) -> tuple[float, float, float]:
    """The distance of the loss from its target, its rate of decrease, and how much slower that has become."""
    losses = ([problem.first_loss] if problem.first_loss is not None else []) + [e.loss for e in history]
    if len(losses) < 2:
        return 0.0, 0.0, 0.0
    shares = [1.0, *(e.fleet.share for e in history)]
    scale = max(losses[0] - problem.target_loss, 1e-9)
    gap = max(losses[-1] - problem.target_loss, 1e-6)
    fall = max(losses[-2] - losses[-1], 1e-9) / shares[-1]
    before = max(losses[-3] - losses[-2], 1e-9) / shares[-2] if len(losses) > 2 else fall
    return 0.3 * math.log(gap / scale + 0.01), 0.3 * math.log(fall / gap), 0.5 * math.log(fall / before)


def _last_features(problem: FunctionProblem, last: Epoch | None, usd: float) -> tuple[float, ...]:
    """(log P, log n, log m, share of P^F, P^U and the budget, memory use, CPU use) of the last epoch."""
    if last is None:
        return (0.0,) * 8
    whole = max(_phases(last), 1e-9)
    return (
        math.log(max(last.seconds / last.fleet.share, 1e-3) / 200),
        math.log(last.fleet.functions / 300) / 1.5,
        math.log(last.fleet.memory_mb / problem.memory_mb[-1]),
        last.fetch.mean_seconds / whole,
        last.update.mean_seconds / whole,
        math.log(max(last.usd.dollars / last.fleet.share, 1e-9) / max(usd, 1e-9)) / 2,
        last.memory_share if last.memory_share is not None else 0.0,
        last.cpu_share if last.cpu_share is not None else 0.0,
    )
