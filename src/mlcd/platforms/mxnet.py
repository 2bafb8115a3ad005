"""MXNet: the variables of its parameter server, for `kvstore='dist_sync'`.

Every node runs a worker; node 0 also the scheduler and one server. All run the user's command: `import mxnet` turns the
scheduler and the server into what they are and does not return before the workers have ended.
"""

from mlcd.platforms.interface import interface_of
from mlcd.platforms.placement import Placement, Process

TOPOLOGIES = ("ps",)


def processes(placement: Placement) -> tuple[Process, ...]:
    """This node's scheduler and server, where it has them, and its worker."""
    own = placement.addresses[placement.rank]
    shared = {
        "DMLC_PS_ROOT_URI": placement.head,
        "DMLC_PS_ROOT_PORT": str(placement.port),
        "DMLC_NUM_SERVER": "1",
        "DMLC_NUM_WORKER": str(placement.nodes),
        "DMLC_NODE_HOST": own,  # else it announces the address of any interface
    }
    interface = interface_of(own)
    if interface is not None:
        shared["DMLC_INTERFACE"] = interface
    roles = ("scheduler", "server", "worker") if placement.rank == 0 else ("worker",)
    return tuple(Process(role=role, env={**shared, "DMLC_ROLE": role}, essential=role == "worker") for role in roles)
