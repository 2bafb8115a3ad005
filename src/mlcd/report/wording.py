"""How numbers are written: speeds, ratios, short durations, confidence. One form each for all reports."""

import re

from mlcd.run.attempt import Attempt, Ending
from mlcd.trial.watched import Watch
from mlcd.units import format_seconds, percent_text, speed_text

__all__ = [
    "assurance_text",
    "percent_text",
    "plural",
    "restart_text",
    "sentence",
    "short_seconds",
    "shortened",
    "speed_text",
    "watch_text",
]


def assurance_text(assurance: float) -> str:
    """`99.9999%`, `95%`: a probability with all its digits."""
    return f"{assurance * 100:.10f}".rstrip("0").rstrip(".") + "%"


def watch_text(watch: Watch) -> str:
    """How likely a watched training is to fit, and what happens if it does not."""
    chance = f"{min(watch.chance, 0.999):.1%}".replace(".0%", "%")
    after = f"if it is too slow after {format_seconds(watch.seconds)}"
    if watch.fallback is None:
        return f"expected to fit ({chance} likely), and nothing measured is certain to; {after}, it ends"
    if watch.renews:
        where = f"it moves on demand ({watch.fallback.config} is certain to fit) while that still fits"
        return f"expected to fit ({chance} likely) with the interruptions of spot nodes; near a limit {where}"
    where = f"it moves to {watch.fallback.config}, whose upper bound fits"
    return f"expected to fit ({chance} likely); {after}, {where}"


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
    if seconds >= 1e11:
        return f"{seconds / 86400:.2g}d"
    hours = round(seconds / 3600)
    return f"{hours // 24}d{hours % 24:02d}h"


def shortened(text: str, width: int, ellipsis: str = "…") -> str:
    """`text` in at most `width` characters, with its middle cut out."""
    if len(text) <= width:
        return text
    keep = width - len(ellipsis)
    tail = keep // 2
    return text[: keep - tail] + ellipsis + text[len(text) - tail :]


def plural(count: int, noun: str) -> str:
    """`1 trial`, `12 trials`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def sentence(text: str) -> str:
    """`text` with a capital first letter; `p99` stays."""
    return text if re.match(r"p\d", text) else text[:1].upper() + text[1:]


def restart_text(run: Attempt) -> str:
    """Why the training was restarted after an attempt: `died with mlcd`, `restarted (node 1 is gone)`."""
    words = {
        Ending.LOST: "died with mlcd",
        Ending.INTERRUPTED: "interrupted",
        Ending.RESTARTED: "restarted",
        Ending.MOVED: f"moved off {run.config}",
        Ending.CONTINUED: f"on {run.config} so far",
    }
    return words[run.ending]
