"""`sim/lambda`: functions that train in simulated time. The laws were fixed before any policy was trained on them."""

from mlcd.clouds.functions.sim.cloud import SimFunctionCloud
from mlcd.clouds.functions.sim.laws import CALM, Chance, FunctionLaws

__all__ = ["CALM", "Chance", "FunctionLaws", "SimFunctionCloud"]
