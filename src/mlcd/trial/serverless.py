"""Everything known of one training on functions: what the store keeps and what reports and the command line show."""

from dataclasses import dataclass

from mlcd.functions import FunctionProblem
from mlcd.trial.epoch import Epoch, FailedEpoch
from mlcd.trial.outcome import Status
from mlcd.units import Usd


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochRow:
    """One go at an epoch with its leave. `go` counts from 1, whatever became of it."""

    go: int
    authorised_usd: Usd
    authorised_seconds: float
    outcome: Epoch | FailedEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainInstance:
    """What the same training would have taken on one instance, estimated from the functions' compute time."""

    name: str
    usd_per_hour: Usd
    seconds: float
    usd: Usd


@dataclass(frozen=True, kw_only=True)
class ServerlessRecord:
    """A training on functions, from its question to its receipt.

    rows             every go at an epoch, failed ones too, in order
    stopped          why it ended, in words; "" while it runs
    smallest_budget  what it would have needed, where it ended short of its target and can tell
    instances        plain instances to compare with, the cheapest first
    elapsed_seconds  since the first start, deciding and downtime included
    """

    run_id: str
    created: str
    cloud: str
    simulated: bool
    strategy: str
    seed: int
    version: str
    sync: str
    model: str
    problem: FunctionProblem
    status: Status
    rows: tuple[EpochRow, ...] = ()
    stopped: str = ""
    smallest_budget: Usd | None = None
    instances: tuple[PlainInstance, ...] = ()
    elapsed_seconds: float = 0.0

    @property
    def epochs(self) -> tuple[Epoch, ...]:
        """Those that came to their barrier."""
        return tuple(row.outcome for row in self.rows if isinstance(row.outcome, Epoch))

    @property
    def failed(self) -> tuple[FailedEpoch, ...]:
        """Those that did not, paid all the same."""
        return tuple(row.outcome for row in self.rows if isinstance(row.outcome, FailedEpoch))

    @property
    def total_usd(self) -> Usd:
        """All epochs, failed ones too."""
        return Usd(sum(row.outcome.usd.micros for row in self.rows))

    @property
    def training_seconds(self) -> float:
        """All epochs, failed ones too."""
        return sum(row.outcome.seconds for row in self.rows)

    @property
    def reached(self) -> bool:
        """Whether the last loss is the target, or better."""
        return bool(self.epochs) and self.epochs[-1].loss <= self.problem.target_loss
