"""Clouds that serve a model: each lease is a server that answers requests."""

from mlcd.clouds.serving.local import LocalServing
from mlcd.clouds.serving.provider import Endpoint, ServerLease, ServingCloud

__all__ = ["Endpoint", "LocalServing", "ServerLease", "ServingCloud"]
