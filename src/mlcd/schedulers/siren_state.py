"""Siren's state as its network sees it, and how the network's two numbers become a fleet.

The paper's state is (t, loss, P, P^F, P^C, P^U, memory use, CPU use, remaining budget). Here it is scale-free, so that
one policy serves jobs of different sizes. Some features are derived from the others: the remaining epochs with their
deviation, by the loss curves; the even number, the number of functions that would spend what remains evenly over them;
and how much slower half and a quarter of the memory would be, by the epochs so far. The action (log n, log m) is
relative to the even number and to the largest memory.

Not in the paper: two twentieths of an epoch come before the first one, to measure the times, and the last epoch is cut
to what the loss curves say remains.
"""

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mlcd.functions import FunctionProblem
from mlcd.models.epoch_times import EpochTimes
from mlcd.models.epochs import PRIOR
from mlcd.models.loss_curve import floor_shares
from mlcd.models.loss_filter import FilterGrid, remaining_work
from mlcd.schedulers.planning import PLANNING, least_part
from mlcd.trial.epoch import LEAST_SHARE, Epoch, Fleet, RemainingEpochs

Floats = NDArray[np.float64]

FEATURES = 21
START_ACTION = (0.0, 0.8)
"""The action of a policy whose network is 0: spend what remains evenly, with nearly the largest memory. Training starts
from it, so what a trained policy does better is what was learnt."""
LOG_FUNCTIONS, LOG_MEMORY = 1.2, 1.5
"""The range of an action: n between exp(-1.2) and exp(1.2) times the even number, m down to exp(-1.5) of the largest.
Part of the policy: it was trained with these."""
FIRST_FUNCTIONS = 300.0
"""The number of functions at which the prior's times are compared before the first epoch."""
_CURVES = FilterGrid(floors=floor_shares(-1.5, 4.0, 6), noises=(0.01,))
"""The loss curves that are weighed. The policy was trained with these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SirenSettings:
    """What siren does around its policy. Sources: docs/siren.md, "What was chosen on what"; docs/ablations.md."""

    opening_share: float = 0.05
    """The least size of the first parts of an epoch; 1: whole epochs, as in the paper. Chosen on tune-100 to tune-139
    and tune-300 to tune-339."""

    opening_parts: int = 2
    """How many parts have that size: the second can measure another memory size. The policy was trained with it."""

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


SIREN = SirenSettings()


@dataclass(frozen=True, slots=True)
class SirenState:
    """`features` (FEATURES,) are the network's input; the rest turns its output into a fleet.

    share      of an epoch that comes next
    spend_usd  on each epoch, so that what remains is spent evenly
    times      predicted from the epochs so far
    functions  of the last epoch: where `times` is best known
    """

    features: Floats
    share: float
    spend_usd: float
    times: EpochTimes
    functions: float

    def even_functions(self, problem: FunctionProblem, memory_mb: int) -> float:
        """The number of functions with which an epoch costs `spend_usd`; at least as many as hardly cost more."""
        work, update = self.seconds_of_one(memory_mb)
        price = float(problem.prices.usd_per_second(memory_mb))
        even = (self.spend_usd - price * work) / (price * update + problem.usd_per_function)
        return min(max(even, 0.02 * work / max(update, 1e-9), 1.0), float(problem.functions[-1]))

    def seconds_of_one(self, memory_mb: float) -> tuple[float, float]:
        """(of an epoch's shared work on one function, of each function's updates), waiting for slower ones included."""
        n, m = np.array([self.functions]), np.array([float(memory_mb)])
        shared, each = self.times.parts(n, m)
        idle = float((self.times.seconds(n, m) - self.times.overhead(n))[0]) / float(shared[0] + each[0])
        return float(shared[0]) * self.functions * idle, float(each[0]) * idle


def observe(
    problem: FunctionProblem, history: tuple[Epoch, ...], remaining: RemainingEpochs, settings: SirenSettings = SIREN
) -> SirenState:
    """The state before the next epoch. Needs a budget, like the paper's reward."""
    budget = problem.goal.budget.dollars if problem.goal.budget is not None else math.nan
    usd = remaining.usd.dollars if remaining.usd is not None else math.nan
    last = history[-1] if history else None
    memory = float(problem.memory_mb[-1])
    times = EpochTimes.fit(history, samples=problem.samples, puts=max(problem.puts_per_function, 1), prior=PRIOR.times)
    functions = float(last.fleet.functions) if last else FIRST_FUNCTIONS
    state = SirenState(np.zeros(FEATURES), 1.0, 0.0, times, functions)
    work, update = state.seconds_of_one(memory)
    sizes = np.array([memory, memory / 2, memory / 4])
    whole = times.seconds(np.full(3, functions), sizes)
    passes = [0.0, *itertools.accumulate(epoch.fleet.share for epoch in history)]
    epochs, deviation = _epochs_left(problem, history, passes)
    price = float(problem.prices.usd_per_second(problem.memory_mb[-1]))
    # If even few functions could not be paid for so many epochs, no choice would matter.
    needed = min(epochs, settings.payable_share * usd / (price * work)) + settings.spare_epochs
    state = replace(state, spend_usd=settings.spent_share * usd / needed)
    even = state.even_functions(problem, problem.memory_mb[-1])
    cheapest = price * work * (PRIOR.epochs[0] if last is None else passes[-1] + epochs)
    features = [
        passes[-1] / 10 - 0.5,
        *_loss_features(problem, history),
        usd / budget - 0.5,
        math.log(epochs / 5),
        math.log(deviation / epochs + 0.02),
        2 * math.log(whole[1] / whole[0]) - 1,
        2 * math.log(whole[2] / whole[0]) - 2,
        math.log(even / 300) / 1.5,
        math.log(work / update / 200),
        math.log(max(usd, 1e-9) / (price * work * epochs)),
        math.log(budget / max(cheapest, 1e-9)) - 1,
        *_last_features(problem, last, usd),
    ]
    share = _share(problem, epochs, settings, is_opening=len(history) < settings.opening_parts)
    share = min(share, 1.0, max(remaining.epochs, LEAST_SHARE))
    return replace(state, features=np.clip(np.array(features), -5, 5), share=share)


def _share(problem: FunctionProblem, epochs_left: float, settings: SirenSettings, *, is_opening: bool) -> float:
    """The share of the next epoch: small parts first, then whole epochs, the last cut to what remains."""
    if is_opening:
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

    n = even exp(1.2 a_0), m = largest exp(0.75 (a_1 - 1)), both rounded to allowed values, a clipped to [-1, 1]; `even`
    is the even number with that memory.
    """
    wanted = np.clip(action, -1, 1)
    memory = math.log(problem.memory_mb[-1]) + LOG_MEMORY * (float(wanted[1]) - 1) / 2
    column = int(np.abs(np.log(problem.memory_array[0]) - memory).argmin())
    log_n = math.log(state.even_functions(problem, problem.memory_mb[column])) + LOG_FUNCTIONS * float(wanted[0])
    for index in (column, *range(len(problem.memory_mb) - 1, -1, -1)):
        counts = problem.functions_array[:, 0]
        seconds = state.times.seconds(counts, np.full(len(counts), float(problem.memory_mb[index])))
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


def _epochs_left(problem: FunctionProblem, history: tuple[Epoch, ...], passes: list[float]) -> tuple[float, float]:
    """(mean, deviation) by the loss curves; by the general prior while losses are too few or do not fall."""
    losses = np.array(([problem.first_loss] if problem.first_loss is not None else []) + [e.loss for e in history])
    guess = max(PRIOR.epochs[0] - passes[-1], 1.0)
    if len(losses) < 2 or losses[-1] >= losses[0]:
        return guess, guess * PRIOR.epochs[1]
    work = np.array(passes[-len(losses) :])[None, :]
    found = remaining_work(
        losses, work, problem.target_loss, grid=_CURVES, whole=PRIOR.epochs, floor_share=PRIOR.floor_share
    )
    return max(found.mean, 0.02), found.deviation


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
