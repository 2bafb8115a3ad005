"""The NodeEngine `slurm`: partitions with the user's prices, and leases as batch jobs."""

import os
import shutil
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from mlcd.catalog import Instance, load_catalog
from mlcd.clouds.lease_records import LeaseRecord, LeaseRecords, home_of
from mlcd.clouds.nodes import PREFIX, Leftover, NodeOrder
from mlcd.clouds.provider import LeaseFailed
from mlcd.clouds.shipping import ship
from mlcd.clouds.slurm import job
from mlcd.clouds.slurm.commands import SlurmRefused, SlurmUnreachable, ask
from mlcd.clouds.slurm.nodes import SlurmNodes
from mlcd.clouds.slurm.partitions import Partition, read_partitions
from mlcd.clouds.slurm.script import SCRIPT, batch_script, is_limited_by_partition, submission
from mlcd.errors import ProviderError, nearest
from mlcd.platforms.agent import HEARTBEAT_SECONDS
from mlcd.trial.trial import FailureKind
from mlcd.units import Usd
from mlcd.untrusted import Malformed

NAME = "slurm"
NOISE = 0.05
"""Two runs on whole nodes of one partition differ by a few percent; the network is shared with other jobs."""
NETWORK_GBPS = 1.0
"""Slurm does not know its nodes' bandwidth. The same value for every partition carries no information for a model;
trials measure what the network allows."""
OBSERVED_SECONDS = 3.0
"""For how long heartbeats are observed whose age says nothing: a running mlcd changes them every second."""

ANSWER_SECONDS = 10.0
"""How long `missing` waits for the controller."""

COMMANDS = ("sinfo", "sbatch", "squeue", "scancel", "scontrol")

_NO_CAPACITY = (
    "Requested node configuration is not available",
    "Requested partition configuration not available now",
    "Node count specification invalid",
    "More processors requested than permitted",
    "Job violates accounting/QOS policy",
    "Requested nodes are busy",
    "Requested time limit is invalid",
    "Invalid generic resource (gres) specification",
    "Memory specification can not be satisfied",
)
"""sbatch's messages when the requested nodes are unavailable; other nodes may still be available."""


class Slurm:
    """The cluster that this machine submits jobs to (see mlcd.clouds.nodes.NodeEngine).

    prices  per node-hour, by partition: `resources.prices` of the job file
    """

    name = NAME
    noise = NOISE

    def __init__(self, prices: Mapping[str, Usd]) -> None:
        self.prices = dict(prices)
        self.notes: tuple[str, ...] = ()
        """What `offer` omitted, and why: one sentence each, for the user."""

    def offer(self) -> tuple[Instance, ...]:
        """The partitions that have a price, accept jobs and have nodes, in the order of `resources.prices`.

        Raises ProviderError that states which line of the job file to change where there is none.
        """
        found = read_partitions()
        self._check_prices(found)
        notes: list[str] = []
        instances = []
        for name in self.prices:
            partition = found.get(name)
            if partition is None:
                notes.append(f"resources.prices: {_no_such(name, found)}")
                continue
            if not partition.is_up or not partition.usable:
                notes.append(f"partition {name} is skipped: none of its nodes accepts jobs now")
                continue
            if partition.mixed:
                notes.append(
                    f"partition {name} has nodes of several sizes: a trial's result depends on which nodes it gets"
                )
            instances.append(self._instance(partition))
        unpriced = [name for name in found if name not in self.prices]
        if unpriced:
            notes.append(f"skipped, because they have no price: {', '.join(unpriced)} (add them to resources.prices)")
        self.notes = tuple(notes)
        if not instances:
            raise ProviderError(f"no partition can be used: {'; '.join(notes)}")
        return tuple(instances)

    def most_nodes(self, instance: str) -> int | None:
        """The nodes of a partition that accept jobs, or its limit for one job where that is lower."""
        return self._partition(instance).most_nodes

    def start(self, order: NodeOrder) -> SlurmNodes:
        """Submit the lease's batch job. Raises LeaseFailed (CAPACITY, unpaid) and ProviderError."""
        partition = self._partition(order.instance)
        if order.count > partition.most_nodes:
            what = f"partition {order.instance} allows a job at most {partition.most_nodes} nodes (got {order.count})"
            raise LeaseFailed(FailureKind.CAPACITY, what, seconds=0.0, billed=False)
        script = batch_script(order, agent=ship(order.folder))
        (order.folder / SCRIPT).write_text(script, encoding="utf-8")
        (order.folder / "heartbeat").touch()
        _record_owner(order)
        try:
            answer = ask(*submission(order, partition))
        except SlurmUnreachable:
            self._cancel_if_submitted(order.lease_id)
            raise
        except SlurmRefused as error:
            if any(error.sentence.startswith(words) for words in _NO_CAPACITY):
                what = f"Slurm refused {order.count} x {order.instance}: {error.sentence}"
                raise LeaseFailed(FailureKind.CAPACITY, what, seconds=0.0, billed=False) from error
            raise
        job_id = answer.strip().partition(";")[0]  # "ID" or "ID;CLUSTER"
        if not job_id.isdigit():
            self._cancel_if_submitted(order.lease_id)
            raise ProviderError(f"mlcd cannot read what Slurm's sbatch answered: {answer.strip()!r}")
        return SlurmNodes(
            order, job_id, is_limited_by_partition=is_limited_by_partition(order.seconds, partition.max_minutes)
        )

    def leftovers(self) -> tuple[Leftover, ...]:
        """This user's jobs with mlcd's prefix, of any home. Raises ProviderError."""
        listed = [found for found in job.listed(user=os.getuid()) if found.name.startswith(PREFIX)]
        owned = _owned(listed)
        return tuple(
            Leftover(
                cloud=NAME,
                lease_id=found.name,
                what=f"job {found.job_id} ({found.state.lower()})",
                owned=found.name in owned,
            )
            for found in listed
        )

    def end(self, leftover: Leftover) -> None:
        """Cancel every job of the lease and wait until Slurm lists none. Raises ProviderError."""
        for found in job.listed(user=os.getuid(), name=leftover.lease_id):
            job.end(found.job_id)
            with suppress(OSError):
                _records(Path(found.folder)).forget(leftover.lease_id)

    def _partition(self, name: str) -> Partition:
        found = read_partitions()
        if name not in found:
            raise ProviderError(_no_such(name, found))
        return found[name]

    def _check_prices(self, found: Mapping[str, Partition]) -> None:
        if not self.prices:
            example = ", ".join(f"{name}: 1.00 USD" for name in found)
            raise ProviderError(
                "Slurm does not know what its nodes cost; add the price of a node-hour, by partition, "
                f"to the job file: `resources: {{infra: slurm, prices: {{{example}}}}}`"
            )
        for name, usd in self.prices.items():
            if usd.micros <= 0:
                raise ProviderError(f"resources.prices.{name}: must be more than $0 a node-hour (got {usd})")

    def _instance(self, partition: Partition) -> Instance:
        tflops, memory_gib = _known_gpu(partition.gpu)
        return Instance(
            cloud=NAME,
            name=partition.name,
            vcpus=float(partition.cpus),
            memory_gib=partition.memory_mib / 1024,
            network_gbps=NETWORK_GBPS,
            usd_per_hour=self.prices[partition.name],
            accelerator=partition.gpu or None,
            accelerators=partition.gpus,
            accelerator_tflops=tflops,
            accelerator_memory_gib=memory_gib,
        )

    def _cancel_if_submitted(self, lease_id: str) -> None:
        """Cancel, by name, a job that may have been submitted; where Slurm is unreachable, leave it to `mlcd down`."""
        try:
            self.end(Leftover(cloud=NAME, lease_id=lease_id, what="a job that may have been submitted"))
        except ProviderError:
            return


def missing() -> str:
    """Why there is no cluster: commands that are not on PATH, or what Slurm says; "" where its controller answers."""
    lacking = [name for name in COMMANDS if shutil.which(name) is None]
    if lacking:
        return f"not on PATH: {', '.join(lacking)}; run mlcd where you submit jobs to a cluster"
    try:
        ask("squeue", "--noheader", f"--user={os.getuid()}", seconds=ANSWER_SECONDS)
    except ProviderError as error:
        return str(error)
    return ""


def _no_such(name: str, found: Mapping[str, Partition]) -> str:
    alike = nearest(name, tuple(found))
    hint = f"; did you mean {alike!r}?" if alike else ""
    return f"Slurm has no partition {name!r}; it has: {', '.join(found) or 'none'}{hint}"


def _known_gpu(gpu: str) -> tuple[float, float]:
    """(TFLOPS, GiB) of a GPU whose name in Slurm is also in the catalog; else (0, 0)."""
    for instance in load_catalog().instances:
        if gpu and instance.accelerator is not None and instance.accelerator.lower() == gpu.lower().replace("_", "-"):
            return instance.accelerator_tflops, instance.accelerator_memory_gib
    return 0.0, 0.0


def _records(folder: Path) -> LeaseRecords:
    return LeaseRecords(home_of(folder))


def forget_owners(home: Path, run_id: str) -> None:
    """Forget who held the leases of a deleted run, unless somebody here still does; jobs are found by their names."""
    records = LeaseRecords(home)
    for old in records.all()[0]:
        if old.cloud == NAME and old.run_id == run_id and not old.is_owned:
            with suppress(OSError):
                records.forget(old.lease_id)


def _record_owner(order: NodeOrder) -> None:
    """Record that this process owns the lease, and forget this machine's leases that nobody owns any more."""
    records = _records(order.folder)
    mine = LeaseRecord(lease_id=order.lease_id, cloud=NAME, folder=str(order.folder))
    for old in records.all()[0]:
        if old.cloud == NAME and old.host == mine.host and not old.is_owned:
            records.forget(old.lease_id)
    records.save(mine)


def _owned(listed: Iterable[job.Listed]) -> set[str]:
    """The leases that a running mlcd uses: its process runs here, or on another machine and touches the heartbeat.

    Where a record is missing or not proved, the heartbeat alone decides: what may be in use is not ended unasked. Its
    age is taken by one clock, that of the file system; where that says nothing (times of several machines), the file is
    observed for OBSERVED_SECONDS.
    """
    owned, unclear = set(), {}
    for found in listed:
        folder = Path(found.folder)
        record = None
        with suppress(Malformed):
            record = _records(folder).get(found.name)
        is_owned = record is not None and record.is_owned
        if record is not None and record.is_here and not is_owned:
            continue
        heartbeat = folder / "heartbeat"
        if is_owned or _age_seconds(heartbeat) < HEARTBEAT_SECONDS:
            owned.add(found.name)
        elif (changed := _changed_at(heartbeat)) is not None:
            unclear[found.name] = (heartbeat, changed)
    if unclear:
        time.sleep(OBSERVED_SECONDS)
    return owned | {name for name, (file, before) in unclear.items() if _changed_at(file) != before}


def _age_seconds(file: Path) -> float:
    """The difference between the file's time and that of one touched now beside it: both by the file system's clock."""
    probe = file.with_name(f"{file.name}.probe-{os.getpid()}")
    try:
        probe.touch()
        return abs(probe.stat().st_mtime - file.stat().st_mtime)
    except OSError:
        return float("inf")
    finally:
        with suppress(OSError):
            probe.unlink()


def _changed_at(file: Path) -> int | None:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return None
