"""Ask/tell: mlcd decides and keeps the limits, the caller runs the trials."""

from mlcd.asktell.objective import Best
from mlcd.asktell.search import Remaining, Search

__all__ = ["Best", "Remaining", "Search"]
