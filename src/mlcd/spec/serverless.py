"""A training on functions as the user wrote it, frozen. Parsed by mlcd.spec.functions, resolved by mlcd.jobs."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from mlcd.errors import SpecError
from mlcd.goal import Goal
from mlcd.spec.train import Place


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionResources:
    """Where.

    infra     lithops/BACK_END, or sim/lambda
    prices    the table of prices; "" is what goes with the infra
    settings  a configuration file of Lithops, seen from the job file's folder; "" is Lithops' own
    """

    infra: str = "lithops/localhost"
    prices: str = ""
    settings: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionWorkload:
    """What is trained.

    model        a built-in name, MODULE:FUNCTION of the user's own file, or a simulated workload's name
    data         a folder with x.npy and y.npy; "" is data made for a built-in model
    batch        samples of a step of all functions together
    rate         of a step; None: the model's own
    target_loss  None only where a simulated workload has its own
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

    pushes         how often a function tells the others of its steps in an epoch
    fan_in         of how many others it takes them in before the barrier
    repeats        calls that may be repeated in an epoch, as a share of its functions
    limit_seconds  of one call; None: the cloud's own
    """

    strategy: str = "mpc"
    pushes: int = 25
    fan_in: int = 16
    repeats: float = 0.25
    limit_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerlessSpec:
    """A whole job file of `mlcd serverless`. `source` is its text, kept with the run so that it can be resumed."""

    name: str
    workload: FunctionWorkload
    goal: Goal
    functions: tuple[int, ...] = tuple(range(1, 65))
    memory_mb: tuple[int, ...] = (512, 1024, 1769, 3008)
    sync: str = "hsp"
    resources: FunctionResources = field(default_factory=FunctionResources)
    search: FunctionSearch = field(default_factory=FunctionSearch)
    file: str = ""
    source: str = ""
    places: Mapping[str, Place] = field(default_factory=dict, compare=False, repr=False)

    def error(
        self, name: str, problem: str, *, value: object = None, allowed: str = "", nearest: str = ""
    ) -> SpecError:
        """The error about the field `name`, at its line or its section's; to be raised by the caller."""
        place = self.places.get(name)
        if place is None:
            above = self.places.get(name.partition(".")[0])
            place = Place(name, self.file, above.line if above is not None and above.file else None)
        return SpecError(
            problem, file=place.file, line=place.line, field=place.field, value=value, allowed=allowed, nearest=nearest
        )
