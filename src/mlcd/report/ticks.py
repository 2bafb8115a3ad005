"""Scales and the round numbers on them: plain numbers, money, durations, powers of two."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from mlcd.units import format_seconds

_TIMES = (
    *(1, 2, 5, 10, 15, 30),
    *(60 * m for m in (1, 2, 5, 10, 15, 30)),
    *(3600 * h for h in (1, 2, 3, 6, 12)),
    *(86400 * d for d in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)),
)
_LOG_TIMES = (
    *(1, 5, 15, 60, 300, 900),
    *(3600 * h for h in (1, 2, 4, 8, 16)),
    *(86400 * d for d in (1, 2, 4, 8, 16, 32, 64, 128)),
    *(86400.0 * 10**power for power in range(3, 250)),
)
_SMALLEST, _LARGEST = 1e-250, 1e250
"""Values beyond are drawn at these ends: their ratios and differences would not be numbers."""
MOST_TICKS = 24
"""No axis has more, whatever its values."""

Tick = tuple[float, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Maps values to coordinates: `low` to `start`, `high` to `end`, linear or logarithmic."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __post_init__(self) -> None:
        if not self.low < self.high or (self.log and not self.low > 0):
            raise ValueError("a scale needs low < high, and low above 0 if it is logarithmic")

    def __call__(self, value: float) -> float:
        """The coordinate; values outside stay outside, at most one length of the scale away."""
        if self.log:
            low = math.log(self.low)
            share = (math.log(max(value, _SMALLEST)) - low) / (math.log(self.high) - low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + min(max(share, -1.0), 2.0) * (self.end - self.start)


def fitted_scale(values: Sequence[float], start: float, end: float, *, spread_for_log: float, floor: bool) -> Scale:
    """A scale over positive `values` with a margin; logarithmic if max / min exceeds `spread_for_log`.

    floor  whether a linear scale begins at 0
    """
    low, high = _drawable(min(values)), _drawable(max(values))
    if low > 0 and high / spread_for_log > low:
        air = math.exp(0.07 * (math.log(high) - math.log(low)))
        return Scale(low=low / air, high=high * air, start=start, end=end, log=True)
    air = (high - low) * 0.08 or high * 0.1 or 1.0
    return Scale(low=0.0 if floor else max(0.0, low - air), high=high + air, start=start, end=end)


def number_ticks(scale: Scale, count: int = 6) -> tuple[Tick, ...]:
    """About `count` round numbers on the scale: steps of 1, 2 or 5 times a power of ten."""
    values = _log_values(scale, count) if scale.log else _linear_values(scale, count)
    return tuple((value, plain_number(value)) for value in values)


def plain_number(value: float) -> str:
    """`1,200`, `0.5`, `0`: no trailing zeros; `1e+20` and `3e-09` where all digits would be too long."""
    if value and not 1e-6 <= abs(value) < 1e15:
        return f"{value:.3g}"
    if abs(value) >= 1e9:
        return f"{value:,.0f}"
    return f"{value:,.6f}".rstrip("0").rstrip(".") or "0"


def money_ticks(scale: Scale, count: int = 6) -> tuple[Tick, ...]:
    """Round amounts: `$20`, `$0.05`."""
    ticks = number_ticks(scale, count)
    values = [value for value, _ in ticks]
    step = min((b - a for a, b in pairwise(values)), default=1.0)
    if any(value and not 1e-9 <= abs(value) < 1e15 for value in values):
        return tuple((value, f"${value:.3g}") for value in values)
    if not scale.log:
        places = 0 if step >= 1 else max(2, -math.floor(math.log10(step)))
        return tuple((value, f"${value:,.{places}f}") for value in values)
    return tuple((value, f"${value:,.0f}" if value >= 1 else f"${value:.12f}".rstrip("0")) for value in values)


def time_ticks(scale: Scale, count: int = 6) -> tuple[Tick, ...]:
    """Round durations: `30 min`, `2 h`, `5 d`."""
    if scale.log:
        chosen: Sequence[float] = [float(t) for t in _LOG_TIMES if scale.low <= t <= scale.high]
        chosen = _thinned(chosen, count)
    else:
        span = scale.high - scale.low
        step: float = next((t for t in _TIMES if span / t <= count), 0)
        chosen = _multiples(scale, step or 86400 * _round_step(span / 86400 / max(1, count)))
    return tuple((value, "0" if value == 0 else format_seconds(value)) for value in chosen)


def doubling_ticks(highest: float) -> tuple[Tick, ...]:
    """1, 2, 4, ... up to `highest`; where that would be too many, only some of them."""
    powers = range(int(math.log2(min(max(1.0, highest), _LARGEST)) + 1e-9) + 1)
    return tuple((2.0**k, plain_number(2.0**k)) for k in _thinned(powers, MOST_TICKS))


def _drawable(value: float) -> float:
    """`value` at the nearest end of what can be drawn; 0 and negative ones as they are."""
    return min(max(value, _SMALLEST), _LARGEST) if value > 0 else max(value, -_LARGEST)


def _linear_values(scale: Scale, count: int) -> list[float]:
    step = _round_step((scale.high - scale.low) / max(1, count))
    return [round(value, 12) if step > 1e-9 else value for value in _multiples(scale, step)]


def _round_step(rough: float) -> float:
    """1, 2 or 5 times a power of ten, at least `rough`."""
    power = 10.0 ** math.floor(math.log10(min(max(rough, _SMALLEST), _LARGEST)))
    return next((power * m for m in (1, 2, 5) if rough <= power * m * (1 + 1e-9)), power * 10)


def _multiples(scale: Scale, step: float) -> list[float]:
    """The multiples of `step` on the scale; none where they are too close together to be told apart."""
    first, last = math.ceil(scale.low / step - 1e-9), math.floor(scale.high / step + 1e-9)
    if not 0 <= last - first < MOST_TICKS:
        return []
    return [step * k for k in range(first, last + 1)]


def _log_values(scale: Scale, count: int) -> Sequence[float]:
    decades = range(math.floor(math.log10(scale.low)), math.ceil(math.log10(scale.high)) + 1)
    for steps in ((1, 2, 5), (1, 3), (1,)):
        values = [m * 10.0**d for d in decades for m in steps if scale.low <= m * 10.0**d <= scale.high]
        if len(values) <= count:
            return values
    return _thinned(values, count)


_Value = TypeVar("_Value")


def _thinned(values: Sequence[_Value], count: int) -> Sequence[_Value]:
    every = max(1, math.ceil(len(values) / max(1, count)))
    return values[::every]
