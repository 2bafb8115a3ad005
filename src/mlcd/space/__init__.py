"""Knobs, configurations, and the finite space of configurations that may be chosen."""

from mlcd.space.config import Config, Value
from mlcd.space.space import Encoding, Knob, Space, WorkerMemory, Workers

__all__ = ["Config", "Encoding", "Knob", "Space", "Value", "WorkerMemory", "Workers"]
