"""One call of a function, as it was billed."""

from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionCall:
    """Frozen; kept with its price, since prices change.

    shard, attempt  which part of the epoch's samples, and the how manieth call for it
    seconds         of the function, as its cloud bills it before rounding
    usd             exact: GB-seconds with the cloud's rounding, the request, its storage requests
    peak_mb         the most memory it used; None where it did not tell
    ending          `done`, `handed-over` (its time was up), `failed`, `overtaken` (another call was quicker)
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
