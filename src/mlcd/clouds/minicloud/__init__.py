"""Real isolated nodes on one Linux machine: namespaces, bandwidth limits, CPU quotas, memory limits. Needs root."""

from mlcd.clouds.minicloud.cloud import MiniCloud
from mlcd.clouds.minicloud.facilities import missing

__all__ = ["MiniCloud", "missing"]
