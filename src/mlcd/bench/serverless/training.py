"""One whole training on a cloud of functions: a run of `mlcd serverless` that is not stored."""

from mlcd.bench.new_run import new_run
from mlcd.clouds.functions.provider import FunctionCloud
from mlcd.deciders.epochs import EpochDecider
from mlcd.engine import Engine
from mlcd.engine.epochs import EpochPerformer
from mlcd.functions import FunctionProblem
from mlcd.run.kind import Kind
from mlcd.run.run import EpochRun
from mlcd.schedulers.scheduler import Scheduler


def train(problem: FunctionProblem, cloud: FunctionCloud, scheduler: Scheduler) -> EpochRun:
    """The run from its first epoch to its verdict."""
    return Engine(
        run=new_run(Kind.SERVERLESS, problem, cloud=cloud.name, strategy=scheduler.name),
        decider=EpochDecider(scheduler=scheduler),
        performer=EpochPerformer(cloud=cloud),
    ).drive()
