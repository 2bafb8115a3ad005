"""MXNet: the variables of its parameter server, for `kvstore='dist_sync'`.

Every node runs a worker; node 0 also runs the scheduler and one server. All run the user's command: in the scheduler
and the server, `import mxnet` takes on that role and does not return before the workers have ended.
"""

from mlcd.platforms.interface import interface_of
from mlcd.platforms.placement import Placement, Process

TOPOLOGIES = ("ps",)


def processes(placement: Placement) -> tuple[Process, ...]:
    """This node's worker and, on node 0, the scheduler and the server."""
    own = placement.addresses[placement.rank]
    shared = {
        "DMLC_PS_ROOT_URI": placement.head,
        "DMLC_PS_ROOT_PORT": str(placement.port),
        "DMLC_NUM_SERVER": "1",
        "DMLC_NUM_WORKER": str(placement.nodes),
        "DMLC_NODE_HOST": own,  # otherwise it announces the address of an arbitrary interface
    }
    interface = interface_of(own)
    if interface is not None:
        shared["DMLC_INTERFACE"] = interface
    roles = ("scheduler", "server", "worker") if placement.rank == 0 else ("worker",)
    return tuple(Process(role=role, env={**shared, "DMLC_ROLE": role}, essential=role == "worker") for role in roles)
