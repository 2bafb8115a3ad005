"""The nodes of one lease: a batch job, and the lease's folder, which the nodes share."""

import math
import time
from contextlib import suppress
from pathlib import Path

from mlcd.clouds.exits import NodeExit, read_exit
from mlcd.clouds.lease_records import LeaseRecords, home_of
from mlcd.clouds.nodes import NodeOrder, NodesState, create_stop_file
from mlcd.clouds.provider import LeaseFailed
from mlcd.clouds.slurm import job
from mlcd.clouds.slurm.commands import SlurmUnreachable
from mlcd.clouds.slurm.script import OUTPUT
from mlcd.trial.trial import FailureKind
from mlcd.units import format_seconds
from mlcd.untrusted import Malformed, last_lines, printable

POLL_SECONDS = 1.0
"""The interval between queries to the controller; the lease's files are read on every call."""
CONTROLLER_LOST_SECONDS = 300.0
"""A controller may restart while jobs run; one that does not answer for longer counts as lost."""
MAX_QUEUE_SHARE = 0.5
"""The share of the authorised time that a job may wait in the queue: if it starts later, too little time remains to be
useful. Waiting is not paid for."""
FILES_SECONDS = 15.0
"""How long after a job's end its nodes' files may take to appear: network file systems cache for seconds."""


class SlurmNodes:
    """A batch job's nodes (see mlcd.clouds.nodes.Nodes)."""

    def __init__(self, order: NodeOrder, job_id: str, *, is_limited_by_partition: bool) -> None:
        self.order, self.job_id = order, job_id
        self._is_limited_by_partition = is_limited_by_partition
        self._seen: job.JobView | None = job.JobView("PENDING", "None")
        self._ordered_at = self._asked_at = self._answered_at = time.monotonic()
        self._touched_at = -math.inf
        self._over_since: float | None = None
        self._is_released = False

    @property
    def waits_for(self) -> str:
        """Slurm's reason why the job has not started: Resources, Priority, ...; "" once it has."""
        seen = self._seen
        return seen.reason if seen is not None and seen.state in job.WAITING and seen.reason != "None" else ""

    def state(self) -> NodesState:
        """See mlcd.clouds.nodes.Nodes."""
        if self._is_released:
            return NodesState.ENDED
        self._touch()
        exits = [self._exit(rank) for rank in range(self.order.count)]
        if all(found is not None and found.code == 0 for found in exits):
            return NodesState.ENDED
        seen = self._poll_slurm()
        if seen is not None and (seen.state in job.WAITING or seen.state in job.HELD):
            return self._waiting(seen)
        is_over = seen is None or seen.state not in job.ON_NODES
        if is_over and seen is not None and seen.state in job.FAILED_STATES:
            raise self._failed_state(seen)
        if not is_over and not all(exits):
            return NodesState.RUNNING if self._agents_started() == self.order.count else NodesState.STARTING
        if is_over and all(exits):
            return NodesState.ENDED
        # All agents have ended and Slurm may still report why; or the job has ended and the agents' files are late.
        if self._over_since is None:
            self._over_since = time.monotonic()
        if time.monotonic() - self._over_since < FILES_SECONDS:
            return NodesState.RUNNING
        if all(exits):
            return NodesState.ENDED
        raise self._end_without_exit_file(seen, [rank for rank, found in enumerate(exits) if found is None])

    def ask_to_stop(self) -> None:
        """See mlcd.clouds.nodes.Nodes."""
        create_stop_file(self.order.folder)

    def used_seconds(self) -> float | None:
        """The sum that the agents reported when they ended; None before."""
        used = []
        for rank in range(self.order.count):
            found = self._exit(rank)
            if found is None or found.cpu_seconds is None:
                return None
            used.append(found.cpu_seconds)
        return sum(used)

    def release(self) -> None:
        """Cancel the job and wait until Slurm no longer lists it. Raises ProviderError where it cannot be ended."""
        if not self._is_released:
            job.end(self.job_id)
            self._is_released = True
            with suppress(OSError):
                LeaseRecords(home_of(self.order.folder)).forget(self.order.lease_id)

    # ---- observing the job

    def _touch(self) -> None:
        """Refresh the heartbeat, at most once a second: on a network file system each touch is a request."""
        if time.monotonic() - self._touched_at >= POLL_SECONDS:
            (self.order.folder / "heartbeat").touch()
            self._touched_at = time.monotonic()

    def _poll_slurm(self) -> job.JobView | None:
        """The job's last known state. Tolerates an unreachable controller for a while: the job runs without it."""
        now = time.monotonic()
        if now - self._asked_at < POLL_SECONDS:
            return self._seen
        self._asked_at = now
        try:
            self._seen = job.view(self.job_id)
        except SlurmUnreachable as error:
            if now - self._answered_at > CONTROLLER_LOST_SECONDS:
                message = f"{error}; no news of job {self.job_id} for {CONTROLLER_LOST_SECONDS:.0f} s"
                raise LeaseFailed(FailureKind.LOST, message, seconds=0.0) from error
        else:
            self._answered_at = now
        return self._seen

    def _agents_started(self) -> int:
        return sum((self._node_folder(rank) / "agent.pid").exists() for rank in range(self.order.count))

    def _exit(self, rank: int) -> NodeExit | None:
        """A node's exit.json; None while it does not exist. What is wrong with it is reported by the lease."""
        try:
            return read_exit(self.order.folder, rank)
        except (OSError, Malformed):  # also: still incomplete on this side of a network file system
            return None

    def _node_folder(self, rank: int) -> Path:
        return self.order.folder / f"node-{rank}"

    # ---- interpreting its state

    def _waiting(self, seen: job.JobView) -> NodesState:
        if seen.never_starts:
            what = f"Slurm will not start job {self.job_id} ({self._requested()}): {seen.reason}"
            raise LeaseFailed(FailureKind.CAPACITY, what, seconds=0.0, billed=False)
        waited = time.monotonic() - self._ordered_at
        if seen.state == "PENDING" and waited > MAX_QUEUE_SHARE * self.order.seconds:
            what = (
                f"Slurm job {self.job_id} ({self._requested()}) was still in the queue after {format_seconds(waited)}, "
                f"waiting for: {seen.reason}; allow more time (search.trial.minutes), or try again when nodes are free"
            )
            raise LeaseFailed(FailureKind.CAPACITY, what, seconds=0.0, billed=False)
        return NodesState.STARTING

    def _failed_state(self, seen: job.JobView) -> LeaseFailed:
        kind, words = job.FAILED_STATES[seen.state]
        if seen.state == "TIMEOUT" and self._is_limited_by_partition:
            # Not the job's fault: it may continue from its checkpoint.
            kind, words = FailureKind.INTERRUPTED, f"partition {self.order.instance} allows no longer run"
        billed = self._agents_started() > 0 or seen.state not in ("CANCELLED", "REVOKED", "DEADLINE")
        why = "" if seen.reason in ("", "None") else f" ({seen.reason})"
        return LeaseFailed(kind, f"Slurm job {self.job_id}: {words}{why}", seconds=0.0, billed=billed)

    def _end_without_exit_file(self, seen: job.JobView | None, ranks: list[int]) -> LeaseFailed:
        """The job has ended, and some agents left no exit.json."""
        error = self._last_error()
        if self._agents_started() == 0:
            what = f"Slurm job {self.job_id} started nothing on its nodes: {error or 'no output'}"
            return LeaseFailed(FailureKind.LAUNCH, what, seconds=0.0)
        how = "is no longer known to Slurm" if seen is None else f"ended ({seen.state})"
        nodes = ", ".join(map(str, ranks))
        what = f"Slurm job {self.job_id} {how}; node {nodes} left no exit.json{': ' + error if error else ''}"
        return LeaseFailed(FailureKind.LOST, what, seconds=0.0)

    def _last_error(self) -> str:
        """The last error of srun or the shell, except "Exited with exit code"; else their last line."""
        lines = [line.strip() for line in last_lines(self.order.folder / OUTPUT) if line.strip()]
        errors = [line for line in lines if "error" in line and "Exited with exit code" not in line]
        return printable((errors or lines or [""])[-1])

    def _requested(self) -> str:
        return f"{self.order.count} x {self.order.instance}"
