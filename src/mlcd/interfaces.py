"""All names that a plug-in needs, in one place: the interfaces and the values that pass through them.

docs/plugins.md explains how to use them. These names stay stable when the modules behind them move.
"""

from mlcd.catalog import Instance
from mlcd.clouds.functions.provider import EpochFailed, EpochOrder, FunctionCloud
from mlcd.clouds.nodes import Leftover, NodeEngine, NodeOrder, Nodes, NodesState, Unproved, agent_command
from mlcd.clouds.plugin import CloudJob, CloudOffer, CloudPlugin
from mlcd.clouds.provider import Cloud, JobProgress, Lease, LeaseFailed, Order, Purpose, Settled
from mlcd.errors import BadInput, ProviderError
from mlcd.functions import FunctionProblem
from mlcd.goal import Goal, Objective
from mlcd.problem import Problem, TrialPolicy
from mlcd.schedulers.scheduler import Scheduler
from mlcd.search.strategy import MeasuredStrategy, Strategy
from mlcd.space import Config
from mlcd.trial.epoch import Epoch, FailedEpoch, Fleet, Phase, RemainingEpochs
from mlcd.trial.node_metrics import NodeMetrics
from mlcd.trial.plan import Plan, Remaining, best_fitting
from mlcd.trial.trial import Failure, FailureKind, History, Measurement, Suggestion
from mlcd.units import Usd

__all__ = [
    "BadInput",
    "Cloud",
    "CloudJob",
    "CloudOffer",
    "CloudPlugin",
    "Config",
    "Epoch",
    "EpochFailed",
    "EpochOrder",
    "FailedEpoch",
    "Failure",
    "FailureKind",
    "Fleet",
    "FunctionCloud",
    "FunctionProblem",
    "Goal",
    "History",
    "Instance",
    "JobProgress",
    "Lease",
    "LeaseFailed",
    "Leftover",
    "MeasuredStrategy",
    "Measurement",
    "NodeEngine",
    "NodeMetrics",
    "NodeOrder",
    "Nodes",
    "NodesState",
    "Objective",
    "Order",
    "Phase",
    "Plan",
    "Problem",
    "ProviderError",
    "Purpose",
    "Remaining",
    "RemainingEpochs",
    "Scheduler",
    "Settled",
    "Strategy",
    "Suggestion",
    "TrialPolicy",
    "Unproved",
    "Usd",
    "agent_command",
    "best_fitting",
]
