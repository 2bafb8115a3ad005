"""An epoch as JSON and back: as the store keeps it, and as a cloud of functions writes it beside the parameters."""

from dataclasses import asdict
from typing import Any

from mlcd.trial.epoch import Epoch, FailedEpoch, Fleet, Phase
from mlcd.units import Usd

Json = dict[str, Any]


def outcome_to_json(outcome: Epoch | FailedEpoch) -> Json:
    """An epoch that came to its barrier, or one that did not."""
    shared: Json = {
        "number": outcome.number,
        "functions": outcome.fleet.functions,
        "memory_mb": outcome.fleet.memory_mb,
        "share": outcome.fleet.share,
        "seconds": outcome.seconds,
        "usd_micros": outcome.usd.micros,
    }
    if isinstance(outcome, FailedEpoch):
        return {**shared, "kind": "failed", "message": outcome.message}
    return {
        **shared,
        "kind": "done",
        "loss": outcome.loss,
        "fetch": asdict(outcome.fetch),
        "compute": asdict(outcome.compute),
        "update": asdict(outcome.update),
        "calls": outcome.calls,
        "failed": outcome.failed,
        "cold_starts": outcome.cold_starts,
        "memory_share": outcome.memory_share,
        "cpu_share": outcome.cpu_share,
    }


def outcome_from_json(data: Json) -> Epoch | FailedEpoch:
    """The inverse of `outcome_to_json`."""
    fleet = Fleet(data["functions"], data["memory_mb"], data.get("share", 1.0))  # older runs had whole epochs only
    usd = Usd(data["usd_micros"])
    if data["kind"] == "failed":
        return FailedEpoch(
            number=data["number"], fleet=fleet, seconds=data["seconds"], usd=usd, message=data["message"]
        )
    return Epoch(
        number=data["number"],
        fleet=fleet,
        loss=data["loss"],
        seconds=data["seconds"],
        usd=usd,
        fetch=Phase(**data["fetch"]),
        compute=Phase(**data["compute"]),
        update=Phase(**data["update"]),
        calls=data["calls"],
        failed=data["failed"],
        cold_starts=data["cold_starts"],
        memory_share=data["memory_share"],
        cpu_share=data["cpu_share"],
    )
