"""Where functions run: the seam, and one folder a cloud."""

from mlcd.clouds.functions.provider import EpochFailed, EpochOrder, FunctionCloud

__all__ = ["EpochFailed", "EpochOrder", "FunctionCloud"]
