"""A simulated cloud: speeds from a machine model that no strategy knows; its time and money are not real."""

from mlcd.clouds.sim.cloud import REHEARSALS, Rates, SimCloud
from mlcd.clouds.sim.models import ALIASES, MODELS, TOPOLOGIES, SimJob, SimModel, nearest_model
from mlcd.clouds.sim.paper import PAPER_JOBS, PaperJob

__all__ = [
    "ALIASES",
    "MODELS",
    "PAPER_JOBS",
    "REHEARSALS",
    "TOPOLOGIES",
    "PaperJob",
    "Rates",
    "SimCloud",
    "SimJob",
    "SimModel",
    "nearest_model",
]
