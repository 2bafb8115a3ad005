"""A serverless training problem: what may be chosen for each epoch, what is trained, the goal, the prices."""

import itertools
import math
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mlcd.catalog.functions import FunctionPrices
from mlcd.errors import BadInput
from mlcd.goal import Goal, Objective

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class FunctionProblem:
    """The problem that every scheduler and the epoch ledger receive. Frozen.

    functions       the allowed numbers of functions, in ascending order
    memory_mb       the allowed memory sizes, in ascending order; `prices` offers each of them
    samples, batch  samples of an epoch, and of one mini-batch
    model_bytes     size of the parameters, as they are fetched and pushed
    target_loss     the training ends at the first epoch whose loss is at most this
    first_loss      loss before the first epoch, if known (ln 2 for two classes that are equally likely)
    max_epochs      the training is given up after this many epochs
    limit_seconds   time limit of one call, at most the cloud's own limit; longer work is split into successive calls
    puts_per_function, gets_per_function   upper bounds of the storage requests of one function in an epoch
    repeat_share    calls that may be repeated in an epoch (failed, slow), as a share of its functions, rounded up;
                    an epoch that needs more fails
    longest_epoch_seconds   no epoch runs longer than this, whatever the budget
    """

    name: str
    functions: tuple[int, ...]
    memory_mb: tuple[int, ...]
    samples: int
    batch: int
    model_bytes: int
    target_loss: float
    max_epochs: int
    goal: Goal
    prices: FunctionPrices
    limit_seconds: float = 900.0
    puts_per_function: int = 1
    gets_per_function: int = 2
    repeat_share: float = 0.1
    first_loss: float | None = None
    longest_epoch_seconds: float = 6 * 3600.0

    def __post_init__(self) -> None:
        for field, values in (("functions", self.functions), ("memory", self.memory_mb)):
            if not values or values[0] < 1 or any(a >= b for a, b in itertools.pairwise(values)):
                raise BadInput(f"{field}: must be distinct whole numbers above 0, ascending (got {_short(values)})")
        for size in self.memory_mb:
            if not self.prices.offers(size):
                raise BadInput(
                    f"memory: {self.prices.name} has no functions of {size} MB; allowed: {self.prices.sizes_in_words}"
                )
        for field, number in (("samples", self.samples), ("batch", self.batch), ("max_epochs", self.max_epochs)):
            if number < 1:
                raise BadInput(f"workload.{field}: must be at least 1 (got {number})")
        if self.functions[0] > self.samples:
            raise BadInput(
                f"functions: {self.functions[0]} functions but only {self.samples} samples: some would get none"
            )
        if not math.isfinite(self.target_loss):
            raise BadInput(f"workload.target_loss: must be a finite number (got {self.target_loss})")
        if self.first_loss is not None and not self.target_loss < self.first_loss < math.inf:
            raise BadInput(
                f"workload.target_loss: {self.target_loss:g} is not below the loss before training, {self.first_loss:g}"
            )
        if self.goal.minimize is Objective.KNEE:
            raise BadInput("goal.minimize: functions are scheduled for time or cost; allowed: time, cost")
        self._check_rules()

    def _check_rules(self) -> None:
        if not 0 < self.limit_seconds <= self.prices.limit_seconds:
            raise BadInput(
                f"limit: {self.prices.name} ends a call after {self.prices.limit_seconds:g} s"
                f" (got {self.limit_seconds:g} s)"
            )
        if min(self.model_bytes, self.puts_per_function, self.gets_per_function) < 0:
            raise BadInput("workload: bytes and storage requests must not be negative")
        if not 0 <= self.repeat_share <= 1:
            raise BadInput(f"repeat_share: must be in [0, 1] (got {self.repeat_share})")
        if not 0 < self.longest_epoch_seconds < math.inf:
            raise BadInput("longest_epoch_seconds: must be more than 0 and finite")

    @property
    def shape(self) -> tuple[int, int]:
        """(F, M): the number of function counts and of memory sizes. Arrays over fleets have this shape."""
        return len(self.functions), len(self.memory_mb)

    def repeats(self, functions: int) -> int:
        """The number of calls that may be repeated in an epoch with this number of functions."""
        return math.ceil(self.repeat_share * functions - 1e-9)

    @cached_property
    def functions_array(self) -> Floats:
        """(F, 1) the numbers of functions."""
        return np.array(self.functions, dtype=np.float64)[:, None]

    @cached_property
    def memory_array(self) -> Floats:
        """(1, M) the memory sizes in MB."""
        return np.array(self.memory_mb, dtype=np.float64)[None, :]

    @cached_property
    def slot_terms(self) -> tuple[tuple[Decimal, Decimal], ...]:
        """For each memory size, exact upper bounds in US dollars: (fixed cost of a call slot in an epoch, per second).

        A slot makes one call at first and another one every `limit_seconds`; each may be rounded up by one granule.
        """
        prices, limit = self.prices, Decimal(repr(self.limit_seconds))
        storage = prices.usd_per_put * self.puts_per_function + prices.usd_per_get * self.gets_per_function
        found = []
        for size in self.memory_mb:
            price = prices.usd_per_second(size)
            once = prices.usd_per_request + price * prices.granule_seconds
            found.append((once + storage, price + once / limit))
        return tuple(found)

    @cached_property
    def slot_term_arrays(self) -> tuple[Floats, Floats]:
        """`slot_terms` as two arrays (1, M)."""
        fixed, per_second = zip(*self.slot_terms, strict=True)
        return np.array(fixed, dtype=np.float64)[None, :], np.array(per_second, dtype=np.float64)[None, :]

    @cached_property
    def usd_per_second(self) -> Floats:
        """(1, M) price of one running function, for models; accounting uses `prices`."""
        return np.array([float(self.prices.usd_per_second(size)) for size in self.memory_mb])[None, :]

    @cached_property
    def usd_per_function(self) -> float:
        """Cost of a function in an epoch without its seconds: its request and its storage requests; for models."""
        prices = self.prices
        return float(
            prices.usd_per_request
            + prices.usd_per_put * self.puts_per_function
            + prices.usd_per_get * self.gets_per_function
        )


def _short(values: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, values[:6]))
    return shown + (", ..." if len(values) > 6 else "")
