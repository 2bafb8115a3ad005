"""Readers of single quantities: money, deadlines, minutes, bounded numbers."""

import re
from datetime import UTC, datetime

from mlcd.spec.node import Bounds, YamlNode
from mlcd.spec.record import Reader
from mlcd.units import MOST_USD, Usd, parse_seconds, parse_usd

MOST_DEADLINE_SECONDS = 3650 * 86400.0
_MONEY_FORMS = "an amount such as 100 USD, $100 or 100"
_DEADLINE_FORMS = "a duration such as 6h30m, or a date and time with its zone such as 2026-12-01T18:00Z"
_OTHER_CURRENCY = re.compile(
    r"[€£¥₹₩₽₿]|(?<![a-z])(?:eur|gbp|jpy|cny|rmb|chf|cad|aud|inr|krw|sek|nok|dkk|euros?|pounds?|yen|cents?)(?![a-z])",
    re.IGNORECASE,
)
_ODD_COMMA = re.compile(r",(?![0-9]{3}(?![0-9]))")
_DATE = re.compile(r"\s*[0-9]{4}-[0-9W]")


def number(
    *,
    above: float | None = None,
    least: float | None = None,
    most: float | None = None,
    below: float | None = None,
    unit: str = "",
) -> Reader[float]:
    """A reader of finite numbers within the given bounds; `unit` is used only in messages."""
    bounds = _bounds(above, least, most, below)
    return lambda node: node.number(bounds, unit=unit)


def whole(*, least: int, most: int) -> Reader[int]:
    """A reader of whole numbers from `least` to `most`."""
    bounds = Bounds(least=least, most=most)
    return lambda node: node.whole(bounds)


def minutes(*, above: float | None = None, least: float | None = None, most: float | None = None) -> Reader[float]:
    """A reader of minutes that returns seconds."""
    bounds = _bounds(above, least, most, None)
    return lambda node: node.number(bounds, unit="minutes") * 60.0


def line_of_text(node: YamlNode) -> str:
    """A string that is not blank."""
    return node.line_of_text()


def text(node: YamlNode) -> str:
    """Any string; it may have several lines."""
    return node.text()


def flag(node: YamlNode) -> bool:
    """true or false."""
    return node.flag()


def budget(node: YamlNode) -> Usd:
    """A budget above $0: `100 USD`, `$100`, `1,000.50` or a bare number, which is in US dollars."""
    return _money(node, "a budget")


def price(node: YamlNode) -> Usd:
    """A price above $0, written as a budget is."""
    return _money(node, "a price")


def _money(node: YamlNode, what: str) -> Usd:
    value = node.filled().value
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise node.error("not an amount of money", allowed=_MONEY_FORMS)
    if isinstance(value, str) and _OTHER_CURRENCY.search(value):
        raise node.error("money is in US dollars only", allowed=_MONEY_FORMS)
    if isinstance(value, str) and _ODD_COMMA.search(value):
        raise node.error("a comma separates thousands; write a decimal point as .", allowed=_MONEY_FORMS)
    try:
        usd = parse_usd(value)
    except ValueError as error:
        raise node.error(str(error).partition(";")[0], allowed=_MONEY_FORMS) from error
    if usd.micros <= 0:
        raise node.error(f"{what} must be more than $0", allowed=_MONEY_FORMS)
    if usd > MOST_USD:
        raise node.error("is out of range", allowed=f"at most {MOST_USD}")
    return usd


def deadline(now: datetime | None) -> Reader[float]:
    """A reader of deadlines. It returns the seconds from `now` (None: this moment), which are more than 0.

    `now` has a time zone, and a point in time needs one too. A duration is counted from `now`.
    """

    def read(node: YamlNode) -> float:
        value = node.filled().value
        if isinstance(value, int | float) and not isinstance(value, bool):
            raise node.error("a duration needs a unit", allowed=_DEADLINE_FORMS)
        if not isinstance(value, str):
            raise node.error("not a deadline", allowed=_DEADLINE_FORMS)
        seconds = _until(node, value, now or datetime.now(UTC)) if _DATE.match(value) else _duration(node, value)
        if seconds > MOST_DEADLINE_SECONDS:
            raise node.error("is out of range", allowed="at most 3,650 days")
        return seconds

    return read


def _duration(node: YamlNode, value: str) -> float:
    try:
        seconds = parse_seconds(value)
    except ValueError as error:
        problem = "a deadline must not be negative" if value.strip().startswith("-") else str(error).partition(";")[0]
        raise node.error(problem, allowed=_DEADLINE_FORMS) from error
    if not seconds > 0:
        raise node.error("a deadline must be more than 0 seconds away", allowed=_DEADLINE_FORMS)
    return seconds


def _until(node: YamlNode, value: str, now: datetime) -> float:
    try:
        moment = datetime.fromisoformat(value.strip())
    except ValueError as error:
        raise node.error("not a date and time", allowed=_DEADLINE_FORMS) from error
    if moment.tzinfo is None:
        raise node.error("a date needs a time and its zone, Z or +01:00 at the end", allowed=_DEADLINE_FORMS)
    seconds = (moment - now).total_seconds()
    if not seconds > 0:
        raise node.error(f"is in the past; it is {now:%Y-%m-%dT%H:%M%z} now", allowed=_DEADLINE_FORMS)
    return seconds


def _bounds(above: float | None, least: float | None, most: float | None, below: float | None) -> Bounds:
    ends = {"above": above, "least": least, "most": most, "below": below}
    return Bounds(**{name: end for name, end in ends.items() if end is not None})
