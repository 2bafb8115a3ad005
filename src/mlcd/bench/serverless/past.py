"""Earlier trainings of a workload: runs of a grid search, as `static` is chosen by one; `mpc` may learn from them."""

from mlcd.clouds.functions.provider import EpochOrder
from mlcd.clouds.functions.sim import SimFunctionCloud
from mlcd.clouds.functions.sim.workloads import SimWorkload
from mlcd.goal import Goal, Objective
from mlcd.models.epochs import EpochPrior
from mlcd.models.experience import prior_from_runs
from mlcd.trial.epoch import Epoch, Fleet
from mlcd.units import Usd

PAST_FLEETS = (Fleet(138, 1536), Fleet(482, 1536), Fleet(828, 1536), Fleet(482, 3008))
"""The paper's three grid rows, and one of them with all the memory."""
PAST_SEED = 1_000_000


def past_runs(workload: SimWorkload) -> list[tuple[Epoch, ...]]:
    """One whole training with each fleet; seeds that no benchmark uses."""
    problem = workload.problem(Goal(minimize=Objective.TIME))
    found = []
    for index, fleet in enumerate(PAST_FLEETS):
        cloud = SimFunctionCloud(problem=problem, laws=workload.laws, seed=PAST_SEED + index)
        run: list[Epoch] = []
        while not run or run[-1].loss > problem.target_loss:
            order = EpochOrder(number=len(run) + 1, fleet=fleet, seconds=1e9, usd=Usd.of(1e9))
            run.append(cloud.run_epoch(order))
        found.append(tuple(run))
    return found


def past_prior(workload: SimWorkload) -> EpochPrior:
    """What `mpc` knows of a workload that was trained before."""
    problem = workload.problem(Goal(minimize=Objective.TIME))
    return prior_from_runs(
        past_runs(workload),
        samples=problem.samples,
        puts=problem.puts_per_function,
        target_loss=problem.target_loss,
        first_loss=problem.first_loss,
    )
