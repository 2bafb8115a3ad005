"""One billed call of a function."""

from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionCall:
    """One call, stored with its price because prices change. Frozen.

    shard, attempt  the part of the epoch's samples, and the number of this call for the shard, starting at 1
    seconds         duration of the function, as its cloud bills it before rounding
    usd             exact: GB-seconds with the cloud's rounding, the request, its storage requests
    peak_mb         peak memory; None if the call did not report it
    ending          `done`, `handed-over` (its time was up), `failed`, `overtaken` (another call was faster)
    """

    epoch: int
    shard: int
    attempt: int
    memory_mb: int
    seconds: float
    usd: Decimal
    fetch_seconds: float
    compute_seconds: float
    update_seconds: float
    waited_seconds: float
    puts: int
    gets: int
    cold: bool
    ending: str
    peak_mb: float | None = None
    message: str = ""
