"""The settings under which `mlcd bench train` runs every strategy alike."""

from dataclasses import dataclass
from enum import StrEnum

BUDGET_FACTOR = 1.5
"""The budget of `budget`, as a multiple of the cheapest configuration's training cost."""
DEADLINE_FACTOR = 2.5
"""The deadline of `cheapest`, as a multiple of the fastest configuration's training time."""
MOVE_SECONDS = 120.0
"""What a move of the training takes where nothing else is said: the simulator's machines need 1.5 to 3 minutes from the
order to the first sample."""
START_SECONDS = MOVE_SECONDS
"""Of a trial that reports, until its first sample: the same machines."""
REPORT_SECONDS = 15.0
"""Between two reports of it, as in the simulator."""


class Work(StrEnum):
    """What becomes of the work that a trial does, as in the job file's `search.work`.

    thrown  it is lost: the training starts after the search, from the beginning
    kept    a trial is a stretch of the training, which continues from its checkpoint
    beside  the training starts on the first configuration that fits; trials run beside it, and their work is lost
    """

    THROWN = "thrown"
    KEPT = "kept"
    BESIDE = "beside"

    @property
    def default_restart_seconds(self) -> float:
        """0 where nothing is moved."""
        return 0.0 if self is Work.THROWN else MOVE_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainProtocol:
    """One setting of the benchmark; strategy and seed come on top.

    hours            what the fastest training is scaled to
    noise            relative deviation between two trials of one configuration
    run_noise        deviation of the final run from the true mean: a separate experiment, 0 in every headline figure
    restart_seconds  every lease that continues the training takes at least so long to its first sample
    budget_factor    the budget over the cheapest training's cost
    deadline_factor  the deadline over the fastest training's time
    trial_seconds    a trial on one node, start included; None: the bed's own, 10 minutes
    types            only this many instance types, drawn by workload and seed; None: all
    most_nodes       only deployments with at most so many nodes; None: all
    report_noise     of tables: relative deviation between two reports of a trial, which starts and reports as on rented
                     nodes, under the rules of their trials, so that a strategy may end it early; None: a trial takes
                     exactly its planned time. Simulated jobs always report
    """

    hours: float = 6.0
    noise: float = 0.03
    run_noise: float = 0.0
    work: Work = Work.THROWN
    restart_seconds: float = 0.0
    budget_factor: float = BUDGET_FACTOR
    deadline_factor: float = DEADLINE_FACTOR
    trial_seconds: float | None = None
    types: int | None = None
    most_nodes: int | None = None
    report_noise: float | None = None

    def __post_init__(self) -> None:
        if not self.hours > 0:
            raise ValueError("hours must be more than 0")
        if not self.restart_seconds >= 0:
            raise ValueError("restart_seconds must not be negative")
        if min(self.budget_factor, self.deadline_factor) < 1:
            raise ValueError("a limit of less than 1 time the least fits nothing")
        for name in ("types", "most_nodes"):
            count = getattr(self, name)
            if count is not None and count < 1:
                raise ValueError(f"{name} must be at least 1")
