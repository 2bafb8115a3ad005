"""Ask/tell: mlcd decides and keeps the limits, the caller runs the trials."""

from mlcd.asktell.objective import Best
from mlcd.asktell.search import RemainingLimits, Search

__all__ = ["Best", "RemainingLimits", "Search"]
