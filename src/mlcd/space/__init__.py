"""Knobs, configurations, and the finite space of configurations that may be chosen."""

from mlcd.space.config import Config, Value
from mlcd.space.space import Encoding, Knob, Space

__all__ = ["Config", "Encoding", "Knob", "Space", "Value"]
