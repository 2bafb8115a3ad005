"""An epoch as version 0.1 wrote it, in a store and beside the parameters of a training on functions."""

from typing import Any

_MOVED = ("kind", "functions", "memory_mb", "share", "usd_micros")
_LOST = ("mlcd ended before the epoch did", "interrupted")
"""What version 0.1 said of an epoch that failed because mlcd ended."""


def epoch_from_0_1(data: dict[str, Any]) -> dict[str, Any]:
    """The same epoch in today's form (see mlcd.codec), failed or done; unchanged where it has that form already."""
    if "usd_micros" not in data:
        return data
    rest = {key: value for key, value in data.items() if key not in _MOVED}
    fleet = {
        "functions": data["functions"],
        "memory_mb": data["memory_mb"],
        "share": data.get("share", 1.0),  # schema 4 had whole epochs only
    }
    if data["kind"] == "failed":
        rest["lost"] = data["message"] in _LOST
    return {**rest, "fleet": fleet, "usd": data["usd_micros"]}
