"""What can be chosen: knobs, configurations, and the finite space of them."""

from mlcd.space.config import Config, Value
from mlcd.space.space import Encoding, Knob, Space

__all__ = ["Config", "Encoding", "Knob", "Space", "Value"]
