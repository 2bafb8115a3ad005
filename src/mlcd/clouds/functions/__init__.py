"""Clouds of functions: the interface, and one folder for each cloud."""

from mlcd.clouds.functions.provider import EpochFailed, EpochOrder, FunctionCloud

__all__ = ["EpochFailed", "EpochOrder", "FunctionCloud"]
