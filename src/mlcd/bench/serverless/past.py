"""Earlier trainings of a workload, which `mpc` may learn from: runs of a grid search like the one for `static`."""

from mlcd.bench.serverless.training import train
from mlcd.clouds.functions.sim import SimFunctionCloud
from mlcd.clouds.functions.sim.workloads import SimWorkload
from mlcd.goal import Goal, Objective
from mlcd.jobs.earlier_trainings import prior_of
from mlcd.models.epochs import EpochPrior
from mlcd.schedulers.static import Static
from mlcd.trial.epoch import Epoch, Fleet

PAST_FLEETS = (Fleet(138, 1536), Fleet(482, 1536), Fleet(828, 1536), Fleet(482, 3008))
"""The paper's three grid rows, and one of them with the largest memory."""
PAST_SEED = 1_000_000


def past_runs(workload: SimWorkload) -> list[tuple[Epoch, ...]]:
    """The epochs of one whole training with each fleet, with seeds that no benchmark uses."""
    problem = workload.problem(Goal(minimize=Objective.TIME))
    return [
        train(
            problem,
            SimFunctionCloud(problem=problem, laws=workload.laws, seed=PAST_SEED + index),
            Static(functions=fleet.functions, memory=fleet.memory_mb),
        ).epochs
        for index, fleet in enumerate(PAST_FLEETS)
    ]


def past_prior(workload: SimWorkload) -> EpochPrior | None:
    """What `mpc` knows of a workload that was trained before, as `mlcd serverless` reads it from the store."""
    return prior_of(past_runs(workload), workload.problem(Goal(minimize=Objective.TIME)))
