"""Measurements of other models: their operators, and their latency in every configuration."""

from mlcd.known.tables import Known, KnownModel, OperatorCurve, OperatorUse, TargetModel

__all__ = ["Known", "KnownModel", "OperatorCurve", "OperatorUse", "TargetModel"]
