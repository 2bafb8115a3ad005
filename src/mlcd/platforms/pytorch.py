"""PyTorch: torchrun's variables, one process per GPU, or one process without a GPU.

Both topologies have the same variables: with `ps`, mlcd.torch.parallel sends gradients through rank 0 (MLCD_TOPOLOGY).
"""

from mlcd.platforms.interface import interface_of
from mlcd.platforms.placement import Placement, Process

TOPOLOGIES = ("ring", "ps")


def processes(placement: Placement) -> tuple[Process, ...]:
    """This node's workers, in the order of their ranks."""
    each = max(1, placement.gpus)
    shared = {
        "WORLD_SIZE": str(placement.nodes * each),
        "LOCAL_WORLD_SIZE": str(each),
        "GROUP_RANK": str(placement.rank),
        "GROUP_WORLD_SIZE": str(placement.nodes),
        "NODE_RANK": str(placement.rank),
        "MASTER_ADDR": placement.head,
        "MASTER_PORT": str(placement.port),
    }
    # Gloo uses the interface of the machine's host name, which may not reach the other nodes.
    interface = interface_of(placement.addresses[placement.rank])
    if interface is not None:
        shared["GLOO_SOCKET_IFNAME"] = interface
        if placement.gpus:
            shared["NCCL_SOCKET_IFNAME"] = interface
    return tuple(
        Process(env={**shared, "RANK": str(placement.rank * each + local), "LOCAL_RANK": str(local)})
        for local in range(each)
    )
