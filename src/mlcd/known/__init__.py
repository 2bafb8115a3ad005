"""What is known of other models: their operators, and how they were served in every configuration."""

from mlcd.known.tables import Known, KnownModel, OperatorCurve, OperatorUse, TargetModel

__all__ = ["Known", "KnownModel", "OperatorCurve", "OperatorUse", "TargetModel"]
