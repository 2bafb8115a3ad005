"""Clouds that serve a model: each lease is a server that answers requests."""

from mlcd.clouds.serving.command import CommandServing
from mlcd.clouds.serving.local import LocalServing
from mlcd.clouds.serving.provider import Endpoint, ServerLease, ServingCloud

__all__ = ["CommandServing", "Endpoint", "LocalServing", "ServerLease", "ServingCloud"]
