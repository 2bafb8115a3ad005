"""MXNet: its parameter server, and Horovod's ring all-reduce.

ps     the variables for `kvstore='dist_sync'`. Every node runs a worker; node 0 also runs the scheduler and one server.
       All run the user's command: in the scheduler and the server, `import mxnet` takes on that role and does not
       return before the workers have ended.
ring   the variables of Horovod's Gloo controller, for `horovod.mxnet.init()`. Every node runs a worker; node 0 also
       runs the rendezvous, where the workers exchange their addresses. `horovodrun` is not needed.
"""

import sys
from pathlib import Path

from mlcd.platforms.interface import interface_of
from mlcd.platforms.placement import Placement, Process

TOPOLOGIES = ("ps", "ring")
GLOO_TIMEOUT_SECONDS = 1800
"""How long Horovod's workers wait for each other; its default of 30 s is shorter than setups of nodes may differ. A
worker that dies is noticed at once."""


def processes(placement: Placement) -> tuple[Process, ...]:
    """This node's worker and, on node 0, what the topology needs besides."""
    return _ring(placement) if placement.topology == "ring" else _parameter_server(placement)


def _parameter_server(placement: Placement) -> tuple[Process, ...]:
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


def _ring(placement: Placement) -> tuple[Process, ...]:
    rank, nodes = str(placement.rank), str(placement.nodes)
    env = {
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": placement.head,
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(placement.port),
        "HOROVOD_GLOO_TIMEOUT_SECONDS": str(GLOO_TIMEOUT_SECONDS),
        "HOROVOD_HOSTNAME": f"node-{rank}",  # addresses may be the same: processes of one machine
        "HOROVOD_RANK": rank,
        "HOROVOD_SIZE": nodes,
        "HOROVOD_LOCAL_RANK": "0",
        "HOROVOD_LOCAL_SIZE": "1",
        "HOROVOD_CROSS_RANK": rank,
        "HOROVOD_CROSS_SIZE": nodes,
    }
    interface = interface_of(placement.addresses[placement.rank])
    if interface is not None:
        env["HOROVOD_GLOO_IFACE"] = interface
    rendezvous = (sys.executable, "-I", str(Path(__file__).with_name("rendezvous.py")))
    where = (placement.head, str(placement.port))
    worker = Process(env=env, prefix=(*rendezvous, "await", *where))
    if placement.rank > 0:
        return (worker,)
    return (Process(role="rendezvous", command=(*rendezvous, "serve", *where), essential=False), worker)
