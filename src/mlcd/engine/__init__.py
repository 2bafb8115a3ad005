"""The only loop: ask the strategy, authorise, measure, store; then choose and train."""

from mlcd.engine.engine import Engine

__all__ = ["Engine"]
