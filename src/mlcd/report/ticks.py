"""Scales and the round numbers on them: plain numbers, money, durations, powers of two."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

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
)

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
        """The coordinate; values outside stay outside."""
        if self.log:
            share = math.log(max(value, 1e-300) / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)


def fitted_scale(values: Sequence[float], start: float, end: float, *, spread_for_log: float, floor: bool) -> Scale:
    """A scale over positive `values` with a margin; logarithmic if max / min exceeds `spread_for_log`.

    floor  whether a linear scale begins at 0
    """
    low, high = min(values), max(values)
    if low > 0 and high / low > spread_for_log:
        air = (high / low) ** 0.07
        return Scale(low=low / air, high=high * air, start=start, end=end, log=True)
    air = (high - low) * 0.08 or high * 0.1 or 1.0
    return Scale(low=0.0 if floor else max(0.0, low - air), high=high + air, start=start, end=end)


def number_ticks(scale: Scale, count: int = 6) -> tuple[Tick, ...]:
    """About `count` round numbers on the scale: steps of 1, 2 or 5 times a power of ten."""
    values = _log_values(scale, count) if scale.log else _linear_values(scale, count)
    return tuple((value, plain_number(value)) for value in values)


def plain_number(value: float) -> str:
    """`1,200`, `0.5`, `0`: all digits, no trailing zeros."""
    return f"{value:,.6f}".rstrip("0").rstrip(".") or "0"


def money_ticks(scale: Scale, count: int = 6) -> tuple[Tick, ...]:
    """Round amounts: `$20`, `$0.05`."""
    ticks = number_ticks(scale, count)
    values = [value for value, _ in ticks]
    step = min((b - a for a, b in pairwise(values)), default=1.0)
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
        step = next((t for t in _TIMES if (scale.high - scale.low) / t <= count), _TIMES[-1])
        first = math.ceil(scale.low / step - 1e-9)
        chosen = [step * k for k in range(first, math.floor(scale.high / step + 1e-9) + 1)]
    return tuple((value, "0" if value == 0 else format_seconds(value)) for value in chosen)


def doubling_ticks(highest: float) -> tuple[Tick, ...]:
    """1, 2, 4, ... up to `highest`."""
    return tuple((float(2**k), f"{2**k:,}") for k in range(int(math.log2(max(1.0, highest)) + 1e-9) + 1))


def _linear_values(scale: Scale, count: int) -> list[float]:
    rough = (scale.high - scale.low) / max(1, count)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 5, 10) if rough <= power * m * (1 + 1e-9))
    first = math.ceil(scale.low / step - 1e-9)
    return [round(step * k, 12) for k in range(first, math.floor(scale.high / step + 1e-9) + 1)]


def _log_values(scale: Scale, count: int) -> Sequence[float]:
    decades = range(math.floor(math.log10(scale.low)), math.ceil(math.log10(scale.high)) + 1)
    for steps in ((1, 2, 5), (1, 3), (1,)):
        values = [m * 10.0**d for d in decades for m in steps if scale.low <= m * 10.0**d <= scale.high]
        if len(values) <= count:
            return values
    return _thinned(values, count)


def _thinned(values: Sequence[float], count: int) -> Sequence[float]:
    every = max(1, math.ceil(len(values) / max(1, count)))
    return values[::every]
