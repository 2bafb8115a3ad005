"""Which log belongs to which step of a run."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mlcd.home.logs import LeaseLogs, NodeLog
from mlcd.run.attempt import Attempt, Ending
from mlcd.run.step import Step
from mlcd.trial.trial import Failure

CLOCK_SECONDS = 2.0
"""File systems may round the times of files by this much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLogs:
    """The logs of one lease of a step; `step` is None for a server that was deployed after the run."""

    step: Step | None
    lease: str
    nodes: tuple[NodeLog, ...]


def step_logs(steps: Sequence[Step], leases: Sequence[LeaseLogs]) -> tuple[StepLogs, ...]:
    """The leases with their steps, in order.

    A lease belongs to the last step that had started when it was made, among those on its type of nodes.
    """
    return tuple(StepLogs(step=_step(steps, lease), lease=lease.lease, nodes=lease.nodes) for lease in leases)


def failed_log(logs: Sequence[StepLogs]) -> Path | None:
    """The log of the newest step that failed: of the first node that wrote something; None where nothing failed."""
    for each in reversed(logs):
        if each.step is not None and has_failed(each.step) and each.nodes:
            return next((log.path for log in each.nodes if log_bytes(log.path)), each.nodes[0].path)
    return None


def log_bytes(path: Path) -> int:
    """How much a node has written; 0 where its log is gone: a job may remove its own log at any time."""
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def has_failed(step: Step) -> bool:
    """Whether a step ended as a failure."""
    outcome = step.outcome
    return isinstance(outcome, Failure) or (isinstance(outcome, Attempt) and outcome.ending is Ending.FAILED)


def _step(steps: Sequence[Step], lease: LeaseLogs) -> Step | None:
    begun = [step for step in steps if step.started_at <= lease.at + CLOCK_SECONDS]
    same = [step for step in begun if not lease.instance or step.config.instance == lease.instance]
    return max(same or begun, key=lambda step: step.started_at, default=None)
