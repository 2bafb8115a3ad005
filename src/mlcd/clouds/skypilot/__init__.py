"""Nodes through SkyPilot. `SkyPilotEngine(SkySettings(infra="aws"), state=..., catalog=...)`; `missing("aws")`."""

from mlcd.clouds.skypilot.credentials import ACCOUNTS, cloud_of, missing
from mlcd.clouds.skypilot.engine import SkyPilotEngine
from mlcd.clouds.skypilot.task import SkySettings

__all__ = ["ACCOUNTS", "SkyPilotEngine", "SkySettings", "cloud_of", "missing"]
