"""The engine `minicloud`: real isolated nodes on this one Linux machine."""

import weakref
from contextlib import ExitStack

from mlcd.catalog import Instance
from mlcd.clouds.minicloud.cgroup import (
    Group,
    allocated_cores,
    allocated_gib,
    groups_of,
    leases_with_groups,
)
from mlcd.clouds.minicloud.facilities import missing
from mlcd.clouds.minicloud.leased import MiniNodes, end_lease
from mlcd.clouds.minicloud.network import free_subnet, leases_with_network, links_of, make_network, namespaces_of
from mlcd.clouds.minicloud.record import LeaseRecord, machine_lock, read_records, unproved_records
from mlcd.clouds.minicloud.types import (
    NAME,
    instance_types,
    machine_cores,
    total_cores_for_nodes,
    total_gib_for_nodes,
)
from mlcd.clouds.minicloud.warm import WarmWorkers
from mlcd.clouds.nodes import Leftover, NodeOrder, Unproved
from mlcd.clouds.provider import LeaseFailed
from mlcd.errors import ProviderError, nearest
from mlcd.trial.trial import FailureKind

_MOST_NODES = 250
"""Addresses of a /24 network that are available to nodes."""
_ROUNDING_TOLERANCE = 1e-6


class MiniCloud:
    """Nodes are network namespaces, each with its own share of a core, memory limit and bandwidth.

    warm  keep a process that has imported PyTorch, and fork the nodes' processes from it; see docs/clouds/minicloud.md.
          `close` ends it; otherwise it ends with mlcd.
    """

    name = NAME
    noise = 0.11
    """Deviation between repeats of one deployment, pooled over 24 deployments on a 2-core machine (November 2026,
    benchmarks/results/minicloud/bed.csv)."""

    shares_this_machine = True
    """Other programs on it slow its nodes down."""

    def __init__(self, *, warm: bool = False) -> None:
        self._warm = WarmWorkers() if warm else None
        if self._warm is not None:
            weakref.finalize(self, self._warm.close)  # also when the interpreter ends

    def close(self) -> None:
        """End the warm worker, if there is one; the next lease would start it again."""
        if self._warm is not None:
            self._warm.close()

    def offer(self) -> tuple[Instance, ...]:
        """As in NodeEngine; the error names everything that is missing."""
        if lacks := missing():
            raise ProviderError("minicloud cannot run here: " + "; ".join(lacks))
        return instance_types(machine_cores())

    def most_nodes(self, instance: str) -> int | None:
        """How many nodes of a type fit on the machine when nothing else is leased on it."""
        kind = self._type(instance)
        by_cores = int(total_cores_for_nodes() / kind.vcpus + _ROUNDING_TOLERANCE)
        by_memory = int(total_gib_for_nodes() / kind.memory_gib + _ROUNDING_TOLERANCE)
        return max(0, min(by_cores, by_memory, _MOST_NODES))

    def start(self, order: NodeOrder) -> MiniNodes:
        """As in NodeEngine; first ends what killed mlcd processes left running."""
        kind = self._type(order.instance)
        if order.count < 1:
            raise ValueError(f"count: a lease needs at least one node (got {order.count})")
        env = {} if self._warm is None else {"MLCD_WARM_SOCKET": self._warm.socket()}
        with ExitStack() as undo:
            try:
                record = self._claim(order, kind, undo)
                nodes = MiniNodes(record, kind, order.folder)
                make_network(record, kind.network_gbps * 1000)
                nodes.start_agents(env)
            except (OSError, ProviderError) as error:
                message = f"{order.lease_id}: the nodes could not be created: {error}"
                raise LeaseFailed(FailureKind.LAUNCH, message, seconds=0.0, billed=False) from error
            undo.pop_all()
        return nodes

    def _claim(self, order: NodeOrder, kind: Instance, undo: ExitStack) -> LeaseRecord:
        """Record the lease and create its control groups, under the machine's lock: no two processes claim the same."""
        with machine_lock():
            end_abandoned()
            if order.lease_id in _known_leases():
                raise ValueError(f"{order.lease_id} is already leased")
            _refuse_beyond_capacity(kind, order.count)
            record = LeaseRecord(
                lease_id=order.lease_id,
                instance=kind.name,
                count=order.count,
                subnet=free_subnet(record.subnet for record in read_records().values()),
                folder=str(order.folder),
            )
            undo.callback(end_lease, order.lease_id)
            record.save()
            for rank in range(order.count):
                Group(order.lease_id, str(rank)).create(cpus=kind.vcpus, memory_gib=kind.memory_gib)
        return record

    def leftovers(self) -> tuple[Leftover, ...]:
        """As in NodeEngine: one for each lease, of this process or any other.

        Only root can give groups and namespaces a lease's name, so they prove what belongs to it. A lease whose record
        is not proved may be in use, and counts as such.
        """
        return tuple(
            Leftover(cloud=self.name, lease_id=lease_id, what=_describe(lease_id), owned=owned)
            for lease_id, owned in _known_leases().items()
        )

    def unproved(self) -> tuple[Unproved, ...]:
        """See mlcd.clouds.nodes.ListsUnproved: the records whose owner nobody knows."""
        return tuple(
            Unproved(
                cloud=self.name,
                lease_id=lease_id,
                what=error.source,
                reason=f"{error.problem}; whether a running mlcd owns that lease is not known; delete it once"
                " nothing of that lease runs",
            )
            for lease_id, error in unproved_records().items()
        )

    def end(self, leftover: Leftover) -> None:
        """As in NodeEngine."""
        if lacks := missing():
            raise ProviderError(f"cannot end {leftover.lease_id}: " + "; ".join(lacks))
        end_lease(leftover.lease_id)

    def _type(self, name: str) -> Instance:
        offered = {instance.name: instance for instance in self.offer()}
        if name not in offered:
            alike = nearest(name, tuple(offered))
            hint = f"; did you mean {alike!r}?" if alike else ""
            raise ProviderError(f"minicloud has no type {name!r} on this machine; allowed: {', '.join(offered)}{hint}")
        return offered[name]


def end_abandoned() -> None:
    """End every lease whose mlcd process was killed. Call it with the machine's lock held."""
    for lease_id, owned in _known_leases().items():
        if not owned:
            end_lease(lease_id)


def _known_leases() -> dict[str, bool]:
    """Every lease of which anything exists, and whether a running mlcd process owns it.

    A lease's record is written before anything else and deleted last: what has no record has no owner. One whose record
    is not proved may have an owner: only a user who says so (`mlcd down -y`) ends it.
    """
    found = leases_with_groups() | leases_with_network()
    records, unproved = read_records(), unproved_records()  # last: what was created meanwhile has its record by now
    owned = {lease_id for lease_id, record in records.items() if record.owned} | unproved.keys()
    return {lease_id: lease_id in owned for lease_id in sorted(found | records.keys())}


def _describe(lease_id: str) -> str:
    groups = groups_of(lease_id)
    counts = {
        "process": len({pid for group in groups for pid in group.pids()}),
        "namespace": len(namespaces_of(lease_id)),
        "link": len(links_of(lease_id)),
        "control group": len(groups),
    }
    parts = [f"{n} {name}{'' if n == 1 else 'es' if name.endswith('s') else 's'}" for name, n in counts.items() if n]
    return ", ".join(parts) or "its record"


def _refuse_beyond_capacity(kind: Instance, count: int) -> None:
    """Raises LeaseFailed when existing and requested nodes together do not fit on the machine."""
    for what, unit, each, total, given in (
        ("CPU", "cores", kind.vcpus, total_cores_for_nodes(), allocated_cores()),
        ("memory", "GiB", kind.memory_gib, total_gib_for_nodes(), allocated_gib()),
    ):
        if given + count * each > total + _ROUNDING_TOLERANCE:
            taken = f", of which {given:.3g} are already leased" if given > _ROUNDING_TOLERANCE else ""
            raise LeaseFailed(
                FailureKind.CAPACITY,
                f"{count} x {kind.name} need {count * each:.3g} {unit} of {what}; this machine has {total:.3g} "
                f"{unit} for nodes{taken}",
                seconds=0.0,
                billed=False,
            )
