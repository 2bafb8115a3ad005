"""The only place that starts a step: one loop, and one performer for each kind of step."""

from mlcd.engine.loop import Engine

__all__ = ["Engine"]
