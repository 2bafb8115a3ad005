"""A load generator: how many requests a second a server sustains, and how long they take.

    result = measure_load("http://127.0.0.1:8000", "resnet", inputs, slo_seconds=0.05, seconds=10)

runs it as a separate process; `python -m mlcd.loadgen ADDRESS` does the same from a shell. It uses the standard library
only, so that it starts quickly and takes little of the machine that it measures.
"""

from mlcd.loadgen.cores import CoreSplit, split_cores
from mlcd.loadgen.measure import measure_load
from mlcd.loadgen.plan import LoadInput, LoadPlan, Scenario
from mlcd.loadgen.result import LoadResult, LoadStep

__all__ = ["CoreSplit", "LoadInput", "LoadPlan", "LoadResult", "LoadStep", "Scenario", "measure_load", "split_cores"]
