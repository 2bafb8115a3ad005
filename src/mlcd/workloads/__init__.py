"""Models that functions train, over flat parameter vectors, and their data as rows of fixed width. numpy only."""

from mlcd.workloads.data import Layout, Samples
from mlcd.workloads.model import BUILT_IN, Model, NotAModel, built_in, checked

__all__ = ["BUILT_IN", "Layout", "Model", "NotAModel", "Samples", "built_in", "checked"]
