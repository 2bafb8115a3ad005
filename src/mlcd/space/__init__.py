"""Knobs, configurations, and the finite space of configurations that may be chosen."""

from mlcd.space.config import DEPLOYMENT, MARKET, ON_DEMAND, SPOT, UNSET, Config, Value, value_text
from mlcd.space.space import Encoding, Knob, Space, WorkerMemory, Workers

__all__ = [
    "DEPLOYMENT",
    "MARKET",
    "ON_DEMAND",
    "SPOT",
    "UNSET",
    "Config",
    "Encoding",
    "Knob",
    "Space",
    "Value",
    "WorkerMemory",
    "Workers",
    "value_text",
]
