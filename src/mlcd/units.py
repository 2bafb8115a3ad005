"""Dollars as integer micro-dollars, durations in seconds: their arithmetic, their human forms, their parsers."""

import math
import re
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from typing import Self

MICROS = 1_000_000
HOUR = 3600.0

_AMOUNT = r"([0-9][0-9_,]*(?:\.[0-9]+)?|\.[0-9]+)"
_MONEY = re.compile(rf"^\s*(?:(?:USD|US\$|\$)\s*)?{_AMOUNT}\s*(?:USD|\$|dollars?)?\s*$", re.I)
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(days?|d|hours?|hrs?|h|minutes?|mins?|min|m|seconds?|secs?|s)", re.I)
_SECONDS_PER = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}


@dataclass(frozen=True, slots=True, order=True)
class Usd:
    """An exact amount of US dollars. May be negative (a difference); rates are "per hour" by their name."""

    micros: int

    @classmethod
    def of(cls, dollars: str | int | float | Decimal) -> Self:
        """The amount, rounded up to the micro-dollar. Raises ValueError for what is not a finite number."""
        try:
            exact = Decimal(str(dollars))
            return cls(int((exact * MICROS).to_integral_value(rounding=ROUND_CEILING)))
        except (InvalidOperation, OverflowError, ValueError) as error:
            raise ValueError(f"not an amount of money: {dollars!r}") from error

    @property
    def dollars(self) -> float:
        """For models and pictures; never for accounts."""
        return self.micros / MICROS

    def __add__(self, other: "Usd") -> "Usd":
        return Usd(self.micros + other.micros)

    def __sub__(self, other: "Usd") -> "Usd":
        return Usd(self.micros - other.micros)

    def __mul__(self, count: int) -> "Usd":
        return Usd(self.micros * count)

    def for_seconds(self, seconds: float) -> "Usd":
        """What a rate per hour comes to over `seconds`, rounded up to the micro-dollar."""
        milliseconds = math.ceil(seconds * 1000 - 1e-6)
        return Usd(-(-self.micros * milliseconds // 3_600_000))

    def __str__(self) -> str:
        amount = abs(self.micros) / MICROS
        sign = "-" if self.micros < 0 else ""
        if amount >= 1 or self.micros == 0:
            return f"{sign}${amount:,.2f}"
        return f"{sign}${amount:.4f}" if amount >= 0.0001 else f"{sign}${amount:.6f}"


ZERO = Usd(0)


def parse_usd(text: str | int | float) -> Usd:
    """`100 USD`, `$100`, `100`, `1,000.50` as money. Raises ValueError with the reason."""
    if isinstance(text, bool):
        raise ValueError("not an amount of money")
    if isinstance(text, int | float):
        if not math.isfinite(text) or text < 0:
            raise ValueError("money must be a finite number, not negative")
        return Usd.of(text)
    if (match := _MONEY.match(text)) is None:
        reason = "money must not be negative" if "-" in text else "not an amount of money"
        raise ValueError(f"{reason}; write it as 100 USD or $100")
    return Usd.of(match[1].replace(",", "").replace("_", ""))


def parse_seconds(text: str) -> float:
    """`6h30m`, `90 min`, `45s`, `1d 2h` as seconds. Raises ValueError with the reason; a bare number has no unit."""
    position, total, seen = 0, 0.0, False
    stripped = text.strip()
    while position < len(stripped):
        match = _PART.match(stripped, position)
        if match is None:
            hint = "a duration needs a unit" if re.fullmatch(r"[0-9.]+", stripped) else "not a duration"
            raise ValueError(f"{hint}; write it as 6h30m, 90min or 45s")
        total += float(match[1]) * _SECONDS_PER[match[2][0].lower()]
        position = match.end()
        while position < len(stripped) and stripped[position] in " ,":
            position += 1
        seen = True
    if not seen:
        raise ValueError("not a duration; write it as 6h30m, 90min or 45s")
    return total


def format_seconds(seconds: float) -> str:
    """`7 h 40 min`, `12 min 5 s`, `8.2 s`: two units at most."""
    if seconds < 0:
        return "-" + format_seconds(-seconds)
    if seconds < 10:
        return f"{seconds:.1f} s" if seconds >= 0.05 or seconds == 0 else f"{seconds * 1000:.1f} ms"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        minutes, rest = divmod(whole, 60)
        return f"{minutes} min" + (f" {rest} s" if rest else "")
    minutes = round(seconds / 60)
    if minutes < 48 * 60:
        hours, rest = divmod(minutes, 60)
        return f"{hours} h" + (f" {rest} min" if rest else "")
    days, hours = divmod(round(seconds / 3600), 24)
    return f"{days} d" + (f" {hours} h" if hours else "")
