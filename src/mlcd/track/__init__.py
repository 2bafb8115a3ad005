"""`--track`: a run told to MLflow or Weights & Biases, by a process of its own that cannot hurt the run."""

from mlcd.track.reporting import TRACKERS, checked_trackers, tracked

__all__ = ["TRACKERS", "checked_trackers", "tracked"]
