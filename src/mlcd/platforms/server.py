"""A server on every node, or on several: one process per node, which listens where $HOST and $PORT say.

No platform of a training: `mlcd serve` starts it (mlcd.clouds.serving.on_nodes).
"""

from mlcd.platforms.placement import Placement, Process


def processes(placement: Placement) -> tuple[Process, ...]:
    """One process; its port differs from those of the other nodes, because some nodes share a machine.

    Where a server is spread over several nodes, each knows its rank in it, the address of the first with a port there
    for their own use, and the addresses of all.
    """
    env = {"HOST": placement.own_address, "PORT": str(placement.port + placement.rank)}
    nodes = placement.server_nodes
    if nodes > 1:
        server, rank = divmod(placement.rank, nodes)
        addresses = placement.addresses[server * nodes : (server + 1) * nodes] or (placement.own_address,)
        env |= {
            "NODES": str(nodes),
            "NODE_RANK": str(rank),
            "HEAD": addresses[0],
            "HEAD_PORT": str(placement.port + placement.nodes + server),
            "ADDRESSES": ",".join(addresses),
        }
    return (Process(role="server", env=env),)
