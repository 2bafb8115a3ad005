"""What reports say of a run beyond its steps, computed when it was decided and stored with it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Receipt, rejected configurations, predictions and comparisons of a run."""
