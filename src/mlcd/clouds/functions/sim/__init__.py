"""`sim/lambda`: functions that train in simulated time. The laws were fixed before any policy was trained on them."""

from mlcd.clouds.functions.sim.cloud import SimFunctionCloud
from mlcd.clouds.functions.sim.laws import NO_DEVIATION, Chance, FunctionLaws

__all__ = ["NO_DEVIATION", "Chance", "FunctionLaws", "SimFunctionCloud"]
