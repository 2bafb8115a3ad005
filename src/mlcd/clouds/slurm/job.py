"""One batch job: its state in Slurm, what that means for a lease, and how it is ended."""

import re
import time
from dataclasses import dataclass

from mlcd.clouds.slurm.commands import SlurmRefused, ask, rows
from mlcd.errors import ProviderError
from mlcd.trial.trial import FailureKind

WAITING = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED"})
HELD = frozenset({"REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"})
ON_NODES = frozenset({"RUNNING", "SUSPENDED", "STOPPED", "COMPLETING", "SIGNALING", "RESIZING", "STAGE_OUT"})

FAILED_STATES = {
    "NODE_FAIL": (FailureKind.LOST, "a node of the job went down"),
    "BOOT_FAIL": (FailureKind.LAUNCH, "a node did not start"),
    "PREEMPTED": (FailureKind.INTERRUPTED, "the job was preempted by another one"),
    "OUT_OF_MEMORY": (FailureKind.OUT_OF_MEMORY, "the job used more memory than a node has"),
    "CANCELLED": (FailureKind.LOST, "the job was cancelled, not by mlcd"),
    "DEADLINE": (FailureKind.HANG, "the job's deadline passed"),
    "TIMEOUT": (FailureKind.HANG, "the job's time limit was reached"),
    "REVOKED": (FailureKind.LOST, "another cluster of the federation took the job"),
}
"""Ends that Slurm knows more about than the agents do."""

_PERMANENT_REASON = re.compile(
    r"Partition(NodeLimit|TimeLimit|Config|Down|Inactive)|BadConstraints|Invalid(Account|QOS)|AccountNotAllowed"
    r"|JobHeld\w+|DependencyNeverSatisfied|JobLaunchFailure|launch failed.*|(QOS|Assoc)(Max|Min)\w*Per(Job|Node)\w*"
)
"""Reasons for waiting that do not resolve by themselves."""

CANCEL_SECONDS = 45.0
"""How long to wait before killing a cancelled job: more than the 30 s that Slurm itself gives it (KillWait)."""
KILL_SECONDS = 45.0
"""How long a killed job may stay listed before that is reported."""


@dataclass(frozen=True, slots=True)
class JobView:
    """A job in squeue: a state such as RUNNING, and why the job waits or failed."""

    state: str
    reason: str

    @property
    def never_starts(self) -> bool:
        """Whether it waits for something that will not happen."""
        return self.state in HELD or (self.state in WAITING and _PERMANENT_REASON.fullmatch(self.reason) is not None)


@dataclass(frozen=True, slots=True)
class Listed:
    """A job in the queue, with its working folder."""

    job_id: str
    state: str
    name: str
    folder: str


def view(job_id: str) -> JobView | None:
    """A job's state; for some minutes after its end, how it ended; then None. Raises ProviderError."""
    try:
        output = ask("squeue", "--noheader", "--states=all", f"--jobs={job_id}", "--format=%T|%r")
    except SlurmRefused as error:
        if _is_unknown(error):
            return None
        raise
    found = rows(output, 2, "squeue")
    return JobView(*found[0]) if found else None


def listed(*, user: int, name: str = "") -> tuple[Listed, ...]:
    """The user's jobs that have not ended; with `name`, only those of that name. Raises ProviderError."""
    named = (f"--name={name}",) if name else ()
    output = ask("squeue", "--noheader", f"--user={user}", *named, "--format=%A|%T|%j|%Z")
    return tuple(Listed(*row) for row in rows(output, 4, "squeue"))


def end(job_id: str) -> None:
    """Cancel a job; returns when Slurm no longer lists it. Raises ProviderError where it stays listed."""
    _cancel(job_id)
    if _gone_within(job_id, CANCEL_SECONDS):
        return
    _cancel(job_id, "--signal=KILL", "--full")
    if not _gone_within(job_id, KILL_SECONDS):
        raise ProviderError(
            f"Slurm still lists job {job_id}, {CANCEL_SECONDS + KILL_SECONDS:.0f} s after it was cancelled; "
            f"one of its nodes may not respond: see `scontrol show job {job_id}`, and ask the cluster's administrators"
        )


def _cancel(job_id: str, *options: str) -> None:
    try:
        ask("scancel", *options, job_id)
    except SlurmRefused as error:
        if not _is_unknown(error):
            raise


def _gone_within(job_id: str, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    pause = 0.1
    while _is_listed(job_id):
        if time.monotonic() >= deadline:
            return False
        time.sleep(pause)
        pause = min(2 * pause, 2.0)  # spare the controller, which serves other users too
    return True


def _is_listed(job_id: str) -> bool:
    try:
        return bool(ask("squeue", "--noheader", f"--jobs={job_id}", "--format=%T").strip())
    except SlurmRefused as error:
        if _is_unknown(error):
            return False
        raise


def _is_unknown(error: SlurmRefused) -> bool:
    return any(words in error.sentence for words in ("Invalid job id", "already completing or completed"))
