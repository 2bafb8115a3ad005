"""Dollars as integer micro-dollars, durations in seconds: arithmetic, parsing and formatting."""

import math
import re
import sys
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from fractions import Fraction
from numbers import Rational, Real
from typing import Literal, Self, overload

MICROS = 1_000_000
HOUR = 3600.0
_MOST_DIGITS = 40
"""Digits before the point of an amount that is read: no sum of money has more."""
_MOST_PLAIN = 10**15
"""Numbers from here on are written with an exponent, so that every number fits a column."""

_AMOUNT = r"([0-9][0-9_,]*(?:\.[0-9]+)?|\.[0-9]+)"
_MONEY = re.compile(rf"^\s*(?:(?:USD|US\$|\$)\s*)?{_AMOUNT}(?:\s*(?:USD|\$|dollars?))?\s*$", re.I)
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(days?|d|hours?|hrs?|h|minutes?|mins?|min|m|seconds?|secs?|s)", re.I)
_ALIGNS = re.compile(r"(?:.?[<>^])?(?:[1-9][0-9]*)?s?", re.S)
_SECONDS_PER = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}

Number = int | float | Decimal | Fraction
"""What an amount can be compared with, multiplied and divided by; numpy numbers are included."""


@dataclass(frozen=True, slots=True, init=False, repr=False, eq=False)
class Usd:
    """An exact amount of US dollars, used like a number. May be negative (a difference).

    `Usd("12.34")` and `Usd.of(12.34)` take dollars; `Usd(12_340_000)` takes micro-dollars. `repr` gives the first form.

    Amounts are added to amounts only (and to 0, so that `sum` needs no start value): adding a bare number is a
    TypeError, because its unit is not known. They are multiplied and divided by numbers; the result is rounded up to
    the micro-dollar, and a float counts as the decimal it is written as. An amount divided by an amount is a float.
    Comparison with numbers, in dollars, is exact, as with Decimal: `Usd("0.1") == Decimal("0.1")`, but the float 0.1 is
    slightly more. Every amount is truthy, even $0: compare with 0.
    """

    micros: int

    def __init__(self, micros: int | str) -> None:
        """Micro-dollars as an int, or dollars as text. Raises TypeError for other types, ValueError for other text."""
        if isinstance(micros, str):
            micros = _micros_up(micros)
        elif isinstance(micros, bool) or not isinstance(micros, int):
            raise TypeError(f"Usd() takes micro-dollars or text, Usd.of() dollars as a number (got {micros!r})")
        object.__setattr__(self, "micros", micros)

    @classmethod
    def of(cls, dollars: str | int | float | Decimal) -> Self:
        """The amount, rounded up to the micro-dollar. Raises ValueError for what is not a finite number."""
        return cls(_micros_up(dollars))

    @property
    def dollars(self) -> float:
        """The dollars as a float: for models and plots, never for accounting. At most the largest float."""
        try:
            return self.micros / MICROS
        except OverflowError:
            return sys.float_info.max if self.micros > 0 else -sys.float_info.max

    @property
    def exact(self) -> Decimal:
        """The exact dollars, without trailing zeros."""
        return Decimal(self._digits())

    def for_seconds(self, seconds: float) -> "Usd":
        """The cost of `seconds` at this rate per hour, rounded up to the micro-dollar; of at most 1e300 seconds."""
        milliseconds = math.ceil(min(seconds, 1e300) * 1000 - 1e-6)
        return Usd(-(-self.micros * milliseconds // 3_600_000))

    # ---- arithmetic

    def __add__(self, other: "Usd | Literal[0]") -> "Usd":
        if isinstance(other, Usd):
            return Usd(self.micros + other.micros)
        return self if _is_zero(other) else NotImplemented

    def __radd__(self, other: int) -> "Usd":
        return self if _is_zero(other) else NotImplemented

    def __sub__(self, other: "Usd | Literal[0]") -> "Usd":
        if isinstance(other, Usd):
            return Usd(self.micros - other.micros)
        return self if _is_zero(other) else NotImplemented

    def __mul__(self, factor: Number) -> "Usd":
        if isinstance(factor, int):
            return Usd(self.micros * factor)
        ratio = _ratio(factor)
        return NotImplemented if ratio is None else Usd(-(-self.micros * ratio[0] // ratio[1]))

    __rmul__ = __mul__

    @overload
    def __truediv__(self, other: "Usd") -> float: ...
    @overload
    def __truediv__(self, other: Number) -> "Usd": ...
    def __truediv__(self, other: "Usd | Number") -> "Usd | float":
        if isinstance(other, Usd):
            return self.micros / other.micros
        ratio = _ratio(other)
        if ratio is None:
            return NotImplemented
        above, below = (-ratio[0], -ratio[1]) if ratio[0] < 0 else ratio
        return Usd(-(-self.micros * below // above))

    def __neg__(self) -> "Usd":
        return Usd(-self.micros)

    def __pos__(self) -> "Usd":
        return self

    def __abs__(self) -> "Usd":
        return Usd(abs(self.micros))

    def __float__(self) -> float:
        return self.dollars

    @overload
    def __round__(self, digits: None = None) -> int: ...
    @overload
    def __round__(self, digits: int) -> "Usd": ...
    def __round__(self, digits: int | None = None) -> "Usd | int":
        """Rounded to `digits` after the decimal point, half to even; without `digits`, whole dollars as an int."""
        if digits is None:
            return round(self.micros, -6) // MICROS
        return Usd(round(self.micros, digits - 6))

    # ---- comparison

    def _order(self, other: object) -> int | float | None:
        """A number with the sign of self - other (NaN if `other` is NaN), or None if `other` is not an amount."""
        if isinstance(other, Usd):
            return self.micros - other.micros
        if isinstance(other, Rational):
            return self.micros * int(other.denominator) - int(other.numerator) * MICROS
        if not isinstance(other, Real | Decimal):
            return None
        if not math.isfinite(other):
            return -float(other)
        above, below = (other if isinstance(other, Decimal) else float(other)).as_integer_ratio()
        return self.micros * below - above * MICROS

    def __eq__(self, other: object) -> bool:
        order = self._order(other)
        return NotImplemented if order is None else order == 0

    def __lt__(self, other: "Usd | Number") -> bool:
        order = self._order(other)
        return NotImplemented if order is None else order < 0

    def __le__(self, other: "Usd | Number") -> bool:
        order = self._order(other)
        return NotImplemented if order is None else order <= 0

    def __gt__(self, other: "Usd | Number") -> bool:
        order = self._order(other)
        return NotImplemented if order is None else order > 0

    def __ge__(self, other: "Usd | Number") -> bool:
        order = self._order(other)
        return NotImplemented if order is None else order >= 0

    def __hash__(self) -> int:
        return hash(Fraction(self.micros, MICROS))  # equal to the hash of every number it equals

    # ---- text

    def _digits(self) -> str:
        whole, rest = divmod(abs(self.micros), MICROS)
        return ("-" if self.micros < 0 else "") + f"{whole}.{rest:06d}".rstrip("0").rstrip(".")

    def __repr__(self) -> str:
        return f"Usd({self._digits()!r})"

    def __str__(self) -> str:
        sign = "-" if self.micros < 0 else ""
        if abs(self.micros) >= _MOST_PLAIN * MICROS:
            return f"{sign}${Decimal(abs(self.micros)) / MICROS:.2e}"
        amount = abs(self.micros) / MICROS
        if amount >= 1 or self.micros == 0:
            return f"{sign}${amount:,.2f}"
        return f"{sign}${amount:.4f}" if amount >= 0.0001 else f"{sign}${amount:.6f}"

    def __format__(self, spec: str) -> str:
        """`str()`, aligned, if the spec only aligns (`>12`); otherwise the dollars as a number (`,.2f`)."""
        return format(str(self), spec) if _ALIGNS.fullmatch(spec) else format(self.exact, spec)


def _micros_up(dollars: str | int | float | Decimal) -> int:
    try:
        amount = Decimal(str(dollars))
        if amount.is_finite() and amount.adjusted() >= _MOST_DIGITS:
            raise ValueError(f"more than {_MOST_DIGITS} digits")
        return int((amount * MICROS).to_integral_value(rounding=ROUND_CEILING))
    except (InvalidOperation, OverflowError, ValueError) as error:
        shown = repr(dollars)
        shown = shown if len(shown) <= 2 * _MOST_DIGITS else f"{shown[:_MOST_DIGITS]}..."
        raise ValueError(f"not an amount of money: {shown}") from error


def _ratio(number: object) -> tuple[int, int] | None:
    """`number` as a fraction, a float as the decimal it is written as; None if it is not a number.

    Raises ValueError for infinities and NaN.
    """
    if isinstance(number, Rational):
        return int(number.numerator), int(number.denominator)
    if isinstance(number, Real):
        number = Decimal(repr(float(number)))
    if not isinstance(number, Decimal):
        return None
    if not number.is_finite():
        raise ValueError(f"not a finite number: {number}")
    return number.as_integer_ratio()


def _is_zero(other: object) -> bool:
    return isinstance(other, int) and other == 0


ZERO = Usd(0)
MOST_USD = Usd(10**12 * MICROS)
"""The most that a run may be authorised to spend, with or without a budget: the books hold integers of 64 bits."""
MOST_SECONDS = 36_525 * 86_400.0
"""The longest training that is planned, with or without a deadline: a century."""


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


def duration_text(seconds: float) -> str:
    """`seconds` in a form that `parse_seconds` reads: all digits, no exponent."""
    return f"{Decimal(repr(float(seconds))):f}s"


def format_seconds(seconds: float) -> str:
    """`7 h 40 min`, `12 min 5 s`, `8.2 s`: two units at most."""
    if seconds < 0:
        return "-" + format_seconds(-seconds)
    if not seconds < _MOST_PLAIN:
        return f"{seconds / 86400:.3g} d" if math.isfinite(seconds) else "no limit" if seconds > 0 else "unknown"
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
    return f"{days} d" + (f" {hours} h" if hours and days < 10_000 else "")


def latency_text(seconds: float) -> str:
    """`8.4 ms`, `120 ms`, `1.2 s`."""
    milliseconds = seconds * 1000
    if milliseconds >= 999.5:
        return f"{seconds:.3g} s"
    return f"{milliseconds:.3g} ms"


def speed_text(samples_per_second: float) -> str:
    """Three significant digits: `1,230`, `45.6`, `0.0123`, very large and small ones `1e+300`. Without its unit."""
    if samples_per_second <= 0:
        return "0"
    if not 1e-9 <= samples_per_second < _MOST_PLAIN:
        return f"{samples_per_second:.3g}"
    digits = 2 - math.floor(math.log10(samples_per_second))
    return f"{round(samples_per_second, digits):,.{max(0, digits)}f}"


def chance_text(chance: float) -> str:
    """`64%`, `>99%`, `<1%`: an expected probability, which is never certain."""
    return ">99%" if chance >= 0.995 else "<1%" if chance < 0.005 else f"{chance:.0%}"


def percent_text(fraction: float) -> str:
    """`12%`, `3.4%`, `under 0.1%`: the size of a difference, without its sign."""
    size = abs(fraction) * 100
    if 0 < size < 0.1:
        return "under 0.1%"
    if size >= _MOST_PLAIN:
        return f"{size:.3g}%"
    return f"{size:.1f}%" if 0 < size < 9.95 else f"{size:,.0f}%"
