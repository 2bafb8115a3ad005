"""The nodes of one lease: a batch job and the lease's folder, which the nodes see too."""

import json
import math
import time
from pathlib import Path

from mlcd.clouds.nodes import NodeOrder, NodesState
from mlcd.clouds.provider import LeaseFailed
from mlcd.clouds.slurm import job
from mlcd.clouds.slurm.commands import SlurmRefused, SlurmSilent, ask
from mlcd.clouds.slurm.script import OUTPUT
from mlcd.errors import ProviderError
from mlcd.trial.trial import FailureKind
from mlcd.units import format_seconds

POLL_SECONDS = 1.0
"""Between two questions to the controller; the files of the lease are looked at each time."""
SILENCE_SECONDS = 300.0
"""A controller may be restarted while jobs run; one that is silent for longer is taken for gone."""
QUEUE_SHARE = 0.5
"""Of the authorised seconds that a job may wait in the queue: one that starts later has too little left to be of use,
and nothing was paid for until then."""
FILES_SECONDS = 15.0
"""After a job's end, until what the nodes wrote must be seen here: network file systems keep old views for seconds."""


class SlurmNodes:
    """A batch job's nodes (see mlcd.clouds.nodes.Nodes), which can be suspended where the user may do that."""

    def __init__(self, order: NodeOrder, job_id: str, *, is_cut: bool) -> None:
        self.order, self.job_id = order, job_id
        self._is_cut = is_cut
        self._seen: job.JobView | None = job.JobView("PENDING", "None")
        self._ordered_at = self._asked_at = self._answered_at = time.monotonic()
        self._touched_at = -math.inf
        self._over_since: float | None = None
        self._is_released = False

    @property
    def waits_for(self) -> str:
        """Why the job has not started, in Slurm's word: Resources, Priority, ...; "" once it has."""
        seen = self._seen
        return seen.reason if seen is not None and seen.state in job.WAITING and seen.reason != "None" else ""

    def state(self) -> NodesState:
        """How they are; see Nodes."""
        if self._is_released:
            return NodesState.ENDED
        self._touch()
        exits = [self._exit(rank) for rank in range(self.order.count)]
        if all(found is not None and found.get("code") == 0 for found in exits):
            return NodesState.ENDED
        seen = self._look()
        if seen is not None and (seen.state in job.WAITING or seen.state in job.HELD):
            return self._waiting(seen)
        is_over = seen is None or seen.state not in job.ON_NODES
        if is_over and seen is not None and seen.state in job.BAD_ENDS:
            raise self._bad_end(seen)
        if not is_over and not all(exits):
            return NodesState.RUNNING if self._agents() == self.order.count else NodesState.STARTING
        if is_over and all(exits):
            return NodesState.ENDED
        # All agents have ended and Slurm may yet tell why, or the job has and the agents' files are on their way.
        if self._over_since is None:
            self._over_since = time.monotonic()
        if time.monotonic() - self._over_since < FILES_SECONDS:
            return NodesState.RUNNING
        if all(exits):
            return NodesState.ENDED
        raise self._silent_end(seen, [rank for rank, found in enumerate(exits) if found is None])

    def ask_to_stop(self) -> None:
        """By the file `stop`."""
        (self.order.folder / "stop").touch()

    def used_seconds(self) -> float | None:
        """What the agents wrote at their end; None before."""
        used = []
        for rank in range(self.order.count):
            seconds = (self._exit(rank) or {}).get("cpu_seconds")
            if not isinstance(seconds, int | float):
                return None
            used.append(float(seconds))
        return sum(used)

    def release(self) -> None:
        """Cancel the job and wait until Slurm lists it no more. Raises ProviderError where it cannot be ended."""
        if not self._is_released:
            job.end(self.job_id)
            self._is_released = True

    def suspend(self) -> None:
        """By `scontrol suspend`: Slurm stops the processes within some seconds.

        Raises ProviderError where the user may not do that: many clusters keep it to their operators.
        """
        self._control("suspend")

    def resume(self) -> None:
        """It goes on; the heartbeat is fresh by then. Raises ProviderError."""
        self._touch()
        self._control("resume")

    # ---- what is seen

    def _touch(self) -> None:
        """At most once a second: on a network file system it is a question to the server."""
        if time.monotonic() - self._touched_at >= POLL_SECONDS:
            (self.order.folder / "heartbeat").touch()
            self._touched_at = time.monotonic()

    def _look(self) -> job.JobView | None:
        """What Slurm last said. A silent controller is forgiven for a while: the job runs on without it."""
        now = time.monotonic()
        if now - self._asked_at < POLL_SECONDS:
            return self._seen
        self._asked_at = now
        try:
            self._seen = job.view(self.job_id)
        except SlurmSilent as error:
            if now - self._answered_at > SILENCE_SECONDS:
                message = f"{error}; nothing is known of job {self.job_id} for {SILENCE_SECONDS:.0f} s"
                raise LeaseFailed(FailureKind.LOST, message, seconds=0.0) from error
        else:
            self._answered_at = now
        return self._seen

    def _agents(self) -> int:
        return sum((self._own(rank) / "agent.pid").exists() for rank in range(self.order.count))

    def _exit(self, rank: int) -> dict[str, object] | None:
        """A node's exit.json; None while there is none."""
        try:
            found = json.loads((self._own(rank) / "exit.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):  # not there, or not whole yet on this side of a network file system
            return None
        return found if isinstance(found, dict) and found else None

    def _own(self, rank: int) -> Path:
        return self.order.folder / f"node-{rank}"

    # ---- what it means

    def _waiting(self, seen: job.JobView) -> NodesState:
        if seen.never_starts:
            what = f"Slurm will not start job {self.job_id} ({self._wanted()}): {seen.reason}"
            raise LeaseFailed(FailureKind.CAPACITY, what, seconds=0.0, billed=False)
        waited = time.monotonic() - self._ordered_at
        if seen.state == "PENDING" and waited > QUEUE_SHARE * self.order.seconds:
            what = (
                f"Slurm job {self.job_id} ({self._wanted()}) was still in the queue after {format_seconds(waited)}, "
                f"waiting for: {seen.reason}; give it longer (search.trial.minutes), or come back when nodes are free"
            )
            raise LeaseFailed(FailureKind.CAPACITY, what, seconds=0.0, billed=False)
        return NodesState.STARTING

    def _bad_end(self, seen: job.JobView) -> LeaseFailed:
        kind, words = job.BAD_ENDS[seen.state]
        if seen.state == "TIMEOUT" and self._is_cut:
            # Not the job's fault: it may go on from its checkpoint.
            kind, words = FailureKind.INTERRUPTED, f"partition {self.order.instance} lets no job run longer"
        billed = self._agents() > 0 or seen.state not in ("CANCELLED", "REVOKED", "DEADLINE")
        why = "" if seen.reason in ("", "None") else f" ({seen.reason})"
        return LeaseFailed(kind, f"Slurm job {self.job_id}: {words}{why}", seconds=0.0, billed=billed)

    def _silent_end(self, seen: job.JobView | None, ranks: list[int]) -> LeaseFailed:
        """The job is over and some agents did not say how."""
        said = self._last_words()
        if self._agents() == 0:
            what = f"Slurm job {self.job_id} started nothing on its nodes: {said or 'it said nothing'}"
            return LeaseFailed(FailureKind.LAUNCH, what, seconds=0.0)
        how = "is not known to Slurm any more" if seen is None else f"ended ({seen.state})"
        nodes = ", ".join(map(str, ranks))
        what = f"Slurm job {self.job_id} {how} and nothing came from node {nodes}{': ' + said if said else ''}"
        return LeaseFailed(FailureKind.LOST, what, seconds=0.0)

    def _last_words(self) -> str:
        """The last error that srun or the shell wrote, but that something ended; else their last line."""
        try:
            text = (self.order.folder / OUTPUT).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        errors = [line for line in lines if "error" in line and "Exited with exit code" not in line]
        return (errors or lines or [""])[-1]

    def _wanted(self) -> str:
        return f"{self.order.count} x {self.order.instance}"

    def _control(self, action: str) -> None:
        try:
            ask("scontrol", action, self.job_id)
        except SlurmRefused as error:
            raise ProviderError(
                f"Slurm job {self.job_id} cannot be {action.removesuffix('e')}ed: {error.sentence}"
            ) from error
