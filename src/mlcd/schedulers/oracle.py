"""The limit: dynamic programming on the simulator's truth, over the progress made and the money left."""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from mlcd.functions import FunctionProblem
from mlcd.schedulers.planning import spread_over
from mlcd.trial.epoch import Epoch, EpochLeft, Fleet
from mlcd.units import Usd

Floats = NDArray[np.float64]

ROWS, COLUMNS, COUNTS, SIZES = 800, 120, 64, 3
"""Steps of progress and of money, numbers of functions and memory sizes that are looked at."""
NEVER = 1e12
LATE = 1.12
"""The ledger must pay for an epoch that takes this much longer than its mean: four deviations of the weather."""
SURE = 0.02
"""Effective epochs beyond the target that are aimed at: two deviations of what an epoch brings."""


class Truth(Protocol):
    """What only a simulated cloud can tell; FunctionLaws is one. `functions` may be an array."""

    @property
    def target_epochs(self) -> float: ...  # noqa: D102
    @property
    def working_set_mb(self) -> float: ...  # noqa: D102

    def seconds(self, functions: Floats, memory_mb: float) -> Floats: ...  # noqa: D102
    def gain(self, functions: Floats, progress: float) -> Floats: ...  # noqa: D102
    def progress(self, loss: float) -> float: ...  # noqa: D102
    def __hash__(self) -> int: ...


@dataclass(frozen=True)
class _Fleets:
    functions: Floats
    memory_mb: Floats
    seconds: Floats
    usd: Floats
    worst_usd: Floats


@dataclass(frozen=True, kw_only=True)
class Oracle:
    """Knows the laws, but not what chance will bring: V(k, b) = min T(a) + V(k + gain(a, k), b - usd(a)).

    k is rounded down to a grid and b interpolated; each epoch then picks the fleet with the least T + V from where the
    training really is. For a goal of least time under a budget.
    """

    name: ClassVar[str] = "oracle"
    needs_truth: ClassVar[bool] = True
    truth: Truth
    seed: int = 0

    def decide(self, problem: FunctionProblem, history: tuple[Epoch, ...], left: EpochLeft) -> Fleet | None:
        """The best next fleet, or None when no way on is paid for."""
        fleets, values, step = self._table(problem)
        done = self.truth.progress(history[-1].loss) if history else 0.0
        dollars = left.usd.dollars if left.usd is not None else math.inf
        gains = self.truth.gain(fleets.functions, done)
        rows = np.minimum(((done + gains) / step).astype(int), ROWS)
        after = _interpolate(values[rows], dollars - fleets.usd, self._budget(problem))
        total = np.where(fleets.worst_usd <= dollars, fleets.seconds + after, NEVER)
        best = int(total.argmin())
        if total[best] >= NEVER / 2:
            return None
        return Fleet(int(fleets.functions[best]), int(fleets.memory_mb[best]))

    def ending(self, problem: FunctionProblem, history: tuple[Epoch, ...], left: EpochLeft) -> str:
        """Nothing pays for the rest."""
        needed = self.smallest_budget(problem, history, left)
        return f"no way to the target is paid for; a budget of about {needed} would suffice"

    def smallest_budget(self, problem: FunctionProblem, history: tuple[Epoch, ...], left: EpochLeft) -> Usd | None:  # noqa: ARG002
        """With one fleet throughout, by the truth."""
        fleets, _, _ = self._table(problem)
        slow = fleets.seconds * LATE > problem.longest_epoch_seconds
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
            raise ValueError("the oracle plans for a budget")
        return problem.goal.budget.dollars

    def _table(self, problem: FunctionProblem) -> tuple[_Fleets, Floats, float]:
        return _solve(self.truth, _Key(problem), self._budget(problem))


class _Key:
    """A problem as a key of the cache: two problems of one name are alike but for the goal."""

    def __init__(self, problem: FunctionProblem) -> None:
        self.problem = problem

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and other.problem.name == self.problem.name

    def __hash__(self) -> int:
        return hash(self.problem.name)


@lru_cache(maxsize=64)
def _solve(truth: Truth, key: _Key, budget: float) -> tuple[_Fleets, Floats, float]:
    """(fleets, V with a row a step of progress and a column a step of money, the step of progress)."""
    fleets = _fleets(truth, key.problem)
    step = (truth.target_epochs + SURE) / ROWS
    money = np.linspace(0.0, budget, COLUMNS)
    values = np.full((ROWS + 1, COLUMNS), NEVER)
    values[ROWS] = 0.0
    rest = money[None, :] - fleets.usd[:, None]
    place = np.clip(rest / (budget / (COLUMNS - 1)), 0, COLUMNS - 1.000001)
    low = place.astype(int)
    share = place - low
    refused = (fleets.worst_usd[:, None] > money[None, :]) | (rest < 0)
    for row in range(ROWS - 1, -1, -1):
        after = np.minimum(((row * step + truth.gain(fleets.functions, row * step)) / step).astype(int), ROWS)[:, None]
        then = values[after, low] * (1 - share) + values[after, low + 1] * share
        total = np.where(refused, NEVER, fleets.seconds[:, None] + then)
        values[row] = np.minimum(total.min(axis=0), NEVER)
    return fleets, values, step


def _interpolate(rows: Floats, dollars: Floats, budget: float) -> Floats:
    """Each row of V at its own amount of money."""
    place = np.clip(dollars / (budget / (COLUMNS - 1)), 0, COLUMNS - 1.000001)
    low = place.astype(int)
    share = place - low
    index = np.arange(len(rows))
    result: Floats = rows[index, low] * (1 - share) + rows[index, low + 1] * share
    return np.where(dollars < 0, NEVER, result)


def _fleets(truth: Truth, problem: FunctionProblem) -> _Fleets:
    sizes = [size for size in problem.memory_mb if size >= max(truth.working_set_mb, problem.memory_mb[-1] / 2)]
    found = []
    counts = np.array([float(problem.functions[index]) for index in spread_over(problem.functions, COUNTS)])
    for index in spread_over(sizes, SIZES):
        size = sizes[index]
        price = float(problem.prices.usd_per_second(size))
        seconds = truth.seconds(counts, float(size))
        usd = counts * (price * seconds + problem.usd_per_function)
        calls = counts + np.ceil(problem.repeat_share * counts - 1e-9)
        worst = calls * (price * seconds * LATE * 1.0001 + problem.usd_per_function + price * 0.1)
        kept = seconds * LATE <= problem.longest_epoch_seconds
        found.append(np.stack([counts, np.full(len(counts), float(size)), seconds, usd, worst])[:, kept])
    functions, memory, seconds, usd, worst = np.concatenate(found, axis=1)
    return _Fleets(functions=functions, memory_mb=memory, seconds=seconds, usd=usd, worst_usd=worst)
