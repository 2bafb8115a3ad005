"""How numbers are said: speeds, ratios, short durations, confidence. One form each, for every report."""

import math
from collections.abc import Sequence

from mlcd.run.attempt import Attempt, Ending


def speed_text(samples_per_second: float) -> str:
    """Three significant digits without exponent: `1,230`, `45.6`, `0.0123`. The unit is the caller's."""
    if samples_per_second <= 0:
        return "0"
    digits = 2 - math.floor(math.log10(samples_per_second))
    return f"{round(samples_per_second, digits):,.{max(0, digits)}f}"


def percent_text(fraction: float) -> str:
    """`12%`, `3.4%`, `under 0.1%`: the size of a difference, its sign left to the words around it."""
    size = abs(fraction) * 100
    if 0 < size < 0.1:
        return "under 0.1%"
    return f"{size:.1f}%" if 0 < size < 9.95 else f"{size:,.0f}%"


def assurance_text(assurance: float) -> str:
    """`99.9999%`, `95%`: a probability with all the digits that it was given with."""
    return f"{assurance * 100:.10f}".rstrip("0").rstrip(".") + "%"


def short_seconds(seconds: float) -> str:
    """`3h12m`, `12m05s`, `8.2s`, `2d04h`: at most six characters up to 99 days, for narrow columns."""
    if seconds < 0:
        return "-" + short_seconds(-seconds)
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    minutes = round(seconds / 60)
    if minutes < 48 * 60:
        return f"{minutes // 60}h{minutes % 60:02d}m"
    hours = round(seconds / 3600)
    return f"{hours // 24}d{hours % 24:02d}h"


def shortened(text: str, width: int, ellipsis: str = "…") -> str:
    """`text` in at most `width` characters, cut in its middle where the least is told apart."""
    if len(text) <= width:
        return text
    keep = width - len(ellipsis)
    tail = keep // 2
    return text[: keep - tail] + ellipsis + text[len(text) - tail :]


def listed(names: Sequence[str], noun: str, *, width: int = 34) -> str:
    """`a, b and 3 more types`: the first names, as many as `width` has room for and at least one."""
    shown = [names[0]]
    while len(shown) < len(names) and len(", ".join([*shown, names[len(shown)]])) <= width:
        shown.append(names[len(shown)])
    rest = len(names) - len(shown)
    if rest:
        return f"{', '.join(shown)} and {rest:,} more {noun}{'s' * (rest > 1)}"
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def plural(count: int, noun: str) -> str:
    """`1 trial`, `12 trials`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def sentence(text: str) -> str:
    """`text` with a capital at its beginning."""
    return text[:1].upper() + text[1:]


def begun_again(run: Attempt) -> str:
    """Why an attempt at the training was not the last: `lost with mlcd`, `restarted (node 1 is gone)`."""
    words = {Ending.LOST: "lost with mlcd", Ending.RESTARTED: "restarted", Ending.MOVED: f"moved off {run.config}"}
    return words[run.ending]
