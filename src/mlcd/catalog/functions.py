"""Prices of functions: GB-seconds with their rounding, requests, storage requests. Dated tables, no network access."""

import csv
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import cache
from pathlib import Path

from mlcd.errors import BadInput, CatalogError, nearest
from mlcd.units import Usd

TABLE = Path(__file__).parent / "snapshots" / "functions-2026-08.csv"
DEFAULT_PRICES = "aws-lambda"


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionPrices:
    """A cloud's prices for functions and for the storage they use, with its limits.

    usd_per_gb_second   for the memory of a call while it runs; a GB is 1,024 MB
    usd_per_request     for each call, failed ones included
    granule_seconds     a call's duration is rounded up to a multiple of this
    usd_per_put, usd_per_get   for requests to object storage
    memory_mb           allowed sizes: from, to, step; or the tiers of `tier_usd_per_second`
    tier_usd_per_second for clouds that price each size separately: MB to US dollars per second, instead of GB-seconds
    limit_seconds       a call that runs longer is ended
    concurrency         number of concurrent calls that a new account may make
    """

    name: str
    usd_per_gb_second: Decimal
    usd_per_request: Decimal
    granule_seconds: Decimal
    usd_per_put: Decimal
    usd_per_get: Decimal
    memory_mb: tuple[int, int, int]
    limit_seconds: float
    concurrency: int
    date: date
    source: str
    tier_usd_per_second: Mapping[int, Decimal] | None = None

    def __post_init__(self) -> None:
        prices = (self.usd_per_gb_second, self.usd_per_request, self.usd_per_put, self.usd_per_get)
        if min(prices) < 0 or self.usd_per_gb_second <= 0 or self.granule_seconds <= 0:
            raise ValueError(f"{self.name}: prices must not be negative; GB-seconds and the granule must be above 0")
        low, high, step = self.memory_mb
        if not (0 < low <= high and step > 0) or self.limit_seconds <= 0 or self.concurrency < 1:
            raise ValueError(f"{self.name}: memory, time limit and concurrency must be more than 0")

    @property
    def memory_sizes(self) -> tuple[int, ...]:
        """Every allowed memory size, in MB."""
        if self.tier_usd_per_second is not None:
            return tuple(sorted(self.tier_usd_per_second))
        low, high, step = self.memory_mb
        return tuple(range(low, high + 1, step))

    def offers(self, memory_mb: int) -> bool:
        """Whether this memory size is allowed."""
        if self.tier_usd_per_second is not None:
            return memory_mb in self.tier_usd_per_second
        low, high, step = self.memory_mb
        return low <= memory_mb <= high and (memory_mb - low) % step == 0

    def usd_per_second(self, memory_mb: int) -> Decimal:
        """US dollars per second of one running call. Raises BadInput for a size that is not offered."""
        if not self.offers(memory_mb):
            raise BadInput(f"memory: {self.name} has no functions of {memory_mb} MB; allowed: {self.sizes_in_words}")
        if self.tier_usd_per_second is not None:
            return self.tier_usd_per_second[memory_mb]
        return self.usd_per_gb_second * memory_mb / 1024

    @property
    def sizes_in_words(self) -> str:
        """The allowed sizes, for a message."""
        if self.tier_usd_per_second is not None:
            return ", ".join(f"{size:,}" for size in self.memory_sizes) + " MB"
        low, high, step = self.memory_mb
        return f"{low} to {high:,} MB" + (f" in steps of {step}" if step > 1 else "")

    def billed_seconds(self, seconds: float) -> Decimal:
        """The billed duration of a call: rounded up to the granule."""
        if not 0 <= seconds < math.inf:
            raise ValueError("the duration of a call must be finite and not negative")
        # The binary rounding error of a whole granule (0.3 s is 0.30000000000000004 s) must not add another granule.
        return math.ceil(Decimal(repr(round(seconds, 9))) / self.granule_seconds) * self.granule_seconds

    def charge(
        self,
        *,
        memory_mb: int,
        call_seconds: Iterable[float],
        puts: int = 0,
        gets: int = 0,
        requests: int | None = None,
    ) -> Usd:
        """The exact price of calls with one memory size, rounded up to the micro-dollar once.

        sum over calls of (price of m) x ceil(d / granule) granule, plus requests (one per call unless `requests` is
        given) and storage requests.
        """
        alike = Counter(call_seconds)
        return self.charge_alike(memory_mb=memory_mb, calls=alike.items(), puts=puts, gets=gets, requests=requests)

    def charge_alike(
        self,
        *,
        memory_mb: int,
        calls: Iterable[tuple[float, int]],
        puts: int = 0,
        gets: int = 0,
        requests: int | None = None,
    ) -> Usd:
        """`charge` for calls given as (seconds, number of such calls)."""
        count, billed = 0, Decimal(0)
        for seconds, alike in calls:
            count += alike
            billed += self.billed_seconds(seconds) * alike
        asked = count if requests is None else requests
        if min(asked, puts, gets) < 0:
            raise ValueError("numbers of requests must not be negative")
        extra = self.usd_per_request * asked + self.usd_per_put * puts + self.usd_per_get * gets
        return Usd.of(self.usd_per_second(memory_mb) * billed + extra)


def function_prices(name: str = DEFAULT_PRICES) -> FunctionPrices:
    """The table's entry with this name. Raises BadInput with the nearest name."""
    known = all_function_prices()
    if name not in known:
        near = nearest(name, list(known))
        hint = f"; did you mean {near!r}?" if near else ""
        raise BadInput(f"prices: unknown function prices {name!r}; allowed: {', '.join(known)}{hint}")
    return known[name]


@cache
def all_function_prices() -> Mapping[str, FunctionPrices]:
    """Every entry of the packaged table, by name. Raises CatalogError for an invalid row."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    found: dict[str, FunctionPrices] = {}
    for line, row in enumerate(rows, start=2):
        try:
            prices = _prices(row)
        except (KeyError, ValueError, ArithmeticError) as error:
            raise CatalogError(f"{TABLE.name}:{line}: {error}") from error
        if found.setdefault(prices.name, prices) is not prices:
            raise CatalogError(f"{TABLE.name}:{line}: {prices.name} is in the file twice")
    return found


def _prices(row: Mapping[str, str]) -> FunctionPrices:
    tiers = dict(pair.split(":") for pair in row["tier_usd_per_second"].split())
    low, high, step = (int(part) for part in row["memory_mb"].split())
    return FunctionPrices(
        name=row["name"],
        usd_per_gb_second=Decimal(row["usd_per_gb_second"]),
        usd_per_request=Decimal(row["usd_per_request"]),
        granule_seconds=Decimal(row["granule_seconds"]),
        usd_per_put=Decimal(row["usd_per_put"]),
        usd_per_get=Decimal(row["usd_per_get"]),
        memory_mb=(low, high, step),
        limit_seconds=float(row["limit_seconds"]),
        concurrency=int(row["concurrency"]),
        date=date.fromisoformat(row["date"]),
        source=row["source"],
        tier_usd_per_second={int(size): Decimal(usd) for size, usd in tiers.items()} or None,
    )
