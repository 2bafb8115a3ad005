"""A training job as it was recorded with its run, read again."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from mlcd.spec import TrainSpec, parse_train


def stored_spec(data: Mapping[str, Any]) -> TrainSpec:
    """The job of a stored run. One that was stored without environment variables has no `envs`."""
    now = datetime.fromisoformat(data["now"])
    flags = {**data["overrides"], "envs": data.get("envs") or None}
    return parse_train(data["source"], file=data["file"], now=now, flags=flags)
