"""The form of an epoch in version 0.1, in a store and next to the parameters of a serverless training."""

from typing import Any

_MOVED = ("kind", "functions", "memory_mb", "share", "usd_micros")
_LOST_MESSAGES = ("mlcd ended before the epoch did", "interrupted")
"""The messages of version 0.1 for an epoch that failed because mlcd ended."""


def epoch_from_0_1(data: dict[str, Any]) -> dict[str, Any]:
    """The same epoch, failed or done, in today's form (see mlcd.codec); unchanged if it already has that form."""
    if "usd_micros" not in data:
        return data
    rest = {key: value for key, value in data.items() if key not in _MOVED}
    fleet = {
        "functions": data["functions"],
        "memory_mb": data["memory_mb"],
        "share": data.get("share", 1.0),  # schema 4 had whole epochs only
    }
    if data["kind"] == "failed":
        rest["lost"] = data["message"] in _LOST_MESSAGES
    return {**rest, "fleet": fleet, "usd": data["usd_micros"]}
