"""A serverless job as the user wrote it, frozen. Parsed by mlcd.spec.functions, resolved by mlcd.jobs."""

from dataclasses import dataclass, field

from mlcd.goal import Goal
from mlcd.spec.place import PlacedSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionResources:
    """Where to run.

    infra     lithops/BACK_END, or sim/lambda
    prices    name of the price table; "" means the one that belongs to the infra
    settings  a Lithops configuration file, relative to the job file's folder; "" means Lithops' default
    """

    infra: str = "lithops/localhost"
    prices: str = ""
    settings: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSpec:
    """What is trained.

    model        a built-in name, MODULE:FUNCTION of the user's own file, or a simulated workload's name
    data         a folder with x.npy and y.npy; "" means generated data, for a built-in model
    batch        samples of one step over all functions together
    rate         learning rate of a step; None means the model's default
    target_loss  None only if a simulated workload has its own
    """

    model: str
    data: str = ""
    batch: int | None = None
    rate: float | None = None
    target_loss: float | None = None
    max_epochs: int = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSearch:
    """How to schedule, and what a function may do.

    pushes         how often a function sends its updates to the others in an epoch
    fan_in         from how many other functions it reads updates before the barrier
    repeats        calls that may be repeated in an epoch, as a share of its functions
    limit_seconds  time limit of one call; None means the cloud's limit
    """

    strategy: str = "mpc"
    pushes: int = 25
    fan_in: int = 16
    repeats: float = 0.25
    limit_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerlessSpec(PlacedSpec):
    """A whole job file of `mlcd serverless`."""

    name: str
    workload: WorkloadSpec
    goal: Goal
    functions: tuple[int, ...] = tuple(range(1, 65))
    memory_mb: tuple[int, ...] = (512, 1024, 1769, 3008)
    sync: str = "hsp"
    resources: FunctionResources = field(default_factory=FunctionResources)
    search: FunctionSearch = field(default_factory=FunctionSearch)
