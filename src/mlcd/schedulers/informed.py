"""A plan by someone who is told the laws: dynamic programming on the simulator's truth, over progress and money.

Not a bound: its grids and margins cost it up to 4% at tight budgets, and it does not know chance. Another scheduler may
be faster, in a single run and on average.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from mlcd.errors import BadInput
from mlcd.functions import FunctionProblem
from mlcd.schedulers.planning import spread_over
from mlcd.trial.epoch import LEAST_SHARE, Epoch, Fleet, RemainingEpochs
from mlcd.units import Usd

Floats = NDArray[np.float64]

PROGRESS_STEPS, MONEY_STEPS, FUNCTION_COUNTS, MEMORY_SIZES = 300, 100, 48, 8
"""Grid sizes: steps of progress and of money, function counts and memory sizes considered."""
MEMORY_RANGE = 4.0
"""The largest memory size over the smallest considered."""
UNPAYABLE_SECONDS = 1e12
"""Seconds of a plan that the budget does not pay for."""
SLOW_EPOCH_FACTOR = 1.12
"""The ledger must pay for an epoch that takes this much longer than its mean: four standard deviations."""
BEYOND_TARGET_EPOCHS = 0.02
"""Effective epochs planned beyond the target: two standard deviations of an epoch's gain."""

SPARE_SHARE, SPARE_DEVIATIONS = 0.04, 1.5
"""What must be payable after each epoch, in case it gains less than its mean: this share of an epoch, and deviations of
the epochs at which the measured loss reaches the target. Unmeasured."""


class EpochTruth(Protocol):
    """What only a simulated cloud knows; FunctionLaws is one. `functions` may be an array."""

    @property
    def target_epochs(self) -> float: ...  # noqa: D102
    @property
    def working_set_mb(self) -> float: ...  # noqa: D102
    @property
    def target_deviation(self) -> float: ...  # noqa: D102 - effective epochs, because measured losses deviate

    def seconds(self, functions: Floats, memory_mb: float) -> Floats: ...  # noqa: D102
    def waiting_seconds(self, functions: Floats) -> Floats: ...  # noqa: D102
    def gain(self, functions: Floats, progress: float) -> Floats: ...  # noqa: D102
    def progress(self, history: Sequence[Epoch]) -> float: ...  # noqa: D102
    def __hash__(self) -> int: ...


@dataclass(frozen=True)
class _Fleets:
    functions: Floats
    memory_mb: Floats
    seconds: Floats
    waiting: Floats
    usd: Floats
    worst_usd: Floats

    def part_seconds(self, share: Floats) -> Floats:
        """Seconds of a part of an epoch with each fleet."""
        result: Floats = (self.seconds - self.waiting) * share + self.waiting
        return result


@dataclass(frozen=True, kw_only=True)
class Informed:
    """Knows the laws, but not the random outcomes: V(k, b) = min T(a) + V(k + gain(a, k), b - usd(a)).

    k is rounded down to a grid and b interpolated; each epoch then picks the fleet with the least T + V from the
    actual progress. An epoch that would go past the target is cut, but not below `least_share`. Only for minimal time
    under a budget.
    """

    name: ClassVar[str] = "informed"
    needs_truth: ClassVar[bool] = True
    truth: EpochTruth
    least_share: float = LEAST_SHARE
    seed: int = 0

    def decide(self, problem: FunctionProblem, history: tuple[Epoch, ...], remaining: RemainingEpochs) -> Fleet | None:
        """The best next fleet, or None if the budget pays for no plan."""
        fleets, values, step = self._table(problem)
        done = self.truth.progress(history)
        dollars = remaining.usd.dollars if remaining.usd is not None else math.inf
        gains = self.truth.gain(fleets.functions, done)
        share = _share(self.truth.target_epochs + BEYOND_TARGET_EPOCHS - done, gains, self.least_share)
        rows = np.minimum(((done + gains * share) / step + 1e-9).astype(int), PROGRESS_STEPS)
        after = _interpolate(values[rows], dollars - fleets.usd * share, self._budget(problem))
        total = np.where(_allowed(problem, remaining, fleets), fleets.part_seconds(share) + after, UNPAYABLE_SECONDS)
        for spare in (_spare(self.truth), 0.0):  # near the end, the spare share may be used
            paid = np.where(fleets.worst_usd * (share + spare) <= dollars, total, UNPAYABLE_SECONDS)
            best = int(paid.argmin())
            if paid[best] < UNPAYABLE_SECONDS / 2:
                break
        else:
            return None
        return Fleet(int(fleets.functions[best]), int(fleets.memory_mb[best]), float(share[best]))

    def ending(self, problem: FunctionProblem, history: tuple[Epoch, ...], remaining: RemainingEpochs) -> str:
        """The budget does not suffice."""
        needed = self.smallest_budget(problem, history, remaining)
        return f"what remains pays for no plan that reaches the target; a budget of about {needed} would suffice"

    def smallest_budget(
        self,
        problem: FunctionProblem,
        history: tuple[Epoch, ...],  # noqa: ARG002
        remaining: RemainingEpochs,  # noqa: ARG002
    ) -> Usd | None:
        """The least cost with one fleet throughout, by the truth."""
        fleets, _, _ = self._table(problem)
        slow = fleets.seconds * SLOW_EPOCH_FACTOR > problem.longest_epoch_seconds
        epochs = np.array([self._epochs(n) for n in fleets.functions])
        usd = np.where(slow, np.inf, (epochs - 1) * fleets.usd + fleets.worst_usd)
        return Usd.of(round(math.ceil(float(usd.min()) * 1.02 * 10) / 10, 6))

    def _epochs(self, functions: float) -> int:
        done, count = 0.0, 0
        while done < self.truth.target_epochs:
            done += float(self.truth.gain(np.array(functions), done))
            count += 1
        return count

    def _budget(self, problem: FunctionProblem) -> float:
        if problem.goal.budget is None:
            raise BadInput("goal.budget: missing; informed needs a budget")
        return problem.goal.budget.dollars

    def _table(self, problem: FunctionProblem) -> tuple[_Fleets, Floats, float]:
        return _solve(self.truth, _Key(problem), self._budget(problem), self.least_share)


_FIELDS = tuple(field.name for field in fields(FunctionProblem) if field.name != "goal")


class _Key:
    """A problem as a cache key, without its goal."""

    def __init__(self, problem: FunctionProblem) -> None:
        self.problem = problem

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Key):
            return False
        mine, its = self.problem, other.problem
        return mine is its or all(getattr(mine, name) == getattr(its, name) for name in _FIELDS)

    def __hash__(self) -> int:
        return hash(self.problem.name)


@lru_cache(maxsize=64)
def _solve(truth: EpochTruth, key: _Key, budget: float, least_share: float) -> tuple[_Fleets, Floats, float]:
    """(fleets, V with a row per step of progress and a column per step of money, the step of progress)."""
    fleets = _fleets(truth, key.problem)
    step = (truth.target_epochs + BEYOND_TARGET_EPOCHS) / PROGRESS_STEPS
    money = np.linspace(0.0, budget, MONEY_STEPS)
    values = np.full((PROGRESS_STEPS + 1, MONEY_STEPS), UNPAYABLE_SECONDS)
    values[PROGRESS_STEPS] = 0.0
    spare = _spare(truth)
    places = _places(fleets, np.ones_like(fleets.usd), money, spare)
    for row in range(PROGRESS_STEPS - 1, -1, -1):
        gains = truth.gain(fleets.functions, row * step)
        share = _share(truth.target_epochs + BEYOND_TARGET_EPOCHS - row * step, gains, least_share)
        low, part, refused = places if share.min() == 1 else _places(fleets, share, money, spare)
        after = np.minimum((row + gains * share / step + 1e-9).astype(int), PROGRESS_STEPS)[:, None]
        then = values[after, low] * (1 - part) + values[after, low + 1] * part
        total = np.where(refused, UNPAYABLE_SECONDS, fleets.part_seconds(share)[:, None] + then)
        values[row] = np.minimum(total.min(axis=0), UNPAYABLE_SECONDS)
    return fleets, values, step


def _allowed(problem: FunctionProblem, remaining: RemainingEpochs, fleets: _Fleets) -> NDArray[np.bool_]:
    """(A,) whether the ledger would authorise an epoch of each fleet now."""
    rows = np.searchsorted(problem.functions_array[:, 0], fleets.functions)
    columns = np.searchsorted(problem.memory_array[0], fleets.memory_mb)
    return remaining.allowed[rows, columns]


def _share(remaining: float, gains: Floats, least: float) -> Floats:
    """The share of an epoch to run: less than 1 if it would go past the target."""
    result: Floats = np.clip(remaining / gains, least, 1.0)
    return result


def _spare(truth: EpochTruth) -> float:
    return SPARE_SHARE + SPARE_DEVIATIONS * truth.target_deviation


def _places(
    fleets: _Fleets, share: Floats, money: Floats, spare: float
) -> tuple[NDArray[np.intp], Floats, NDArray[np.bool_]]:
    """(A, B) column of V after paying for the part, fraction towards the next column, whether it is too expensive."""
    rest = money[None, :] - (fleets.usd * share)[:, None]
    place = np.clip(rest / (money[-1] / (MONEY_STEPS - 1)), 0, MONEY_STEPS - 1.000001)
    low = place.astype(int)
    return low, place - low, ((fleets.worst_usd * (share + spare))[:, None] > money[None, :]) | (rest < 0)


def _interpolate(rows: Floats, dollars: Floats, budget: float) -> Floats:
    """Each row of V at its own amount of money."""
    place = np.clip(dollars / (budget / (MONEY_STEPS - 1)), 0, MONEY_STEPS - 1.000001)
    low = place.astype(int)
    share = place - low
    index = np.arange(len(rows))
    result: Floats = rows[index, low] * (1 - share) + rows[index, low + 1] * share
    return np.where(dollars < 0, UNPAYABLE_SECONDS, result)


def _fleets(truth: EpochTruth, problem: FunctionProblem) -> _Fleets:
    least_mb = max(truth.working_set_mb, problem.memory_mb[-1] / MEMORY_RANGE)
    sizes = [size for size in problem.memory_mb if size >= least_mb] or [problem.memory_mb[-1]]
    counts = np.array([float(problem.functions[index]) for index in spread_over(problem.functions, FUNCTION_COUNTS)])
    waiting = truth.waiting_seconds(counts)
    found, fastest = [], np.full(len(counts), np.inf)
    for index in spread_over(sizes, MEMORY_SIZES):  # from the cheapest second up
        size = sizes[index]
        price = float(problem.prices.usd_per_second(size))
        seconds = truth.seconds(counts, float(size))
        usd = counts * (price * (seconds - waiting) + problem.usd_per_function)
        calls = counts + np.ceil(problem.repeat_share * counts - 1e-9)
        worst = calls * (price * seconds * SLOW_EPOCH_FACTOR * 1.0001 + problem.usd_per_function + price * 0.1)
        kept = (seconds * SLOW_EPOCH_FACTOR <= problem.longest_epoch_seconds) & (seconds < fastest * (1 - 1e-9))
        fastest = np.minimum(fastest, seconds)
        found.append(np.stack([counts, np.full(len(counts), float(size)), seconds, waiting, usd, worst])[:, kept])
    functions, memory, seconds, waiting, usd, worst = np.concatenate(found, axis=1)
    return _Fleets(functions=functions, memory_mb=memory, seconds=seconds, waiting=waiting, usd=usd, worst_usd=worst)
