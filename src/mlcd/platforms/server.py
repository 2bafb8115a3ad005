"""A server on every node: one process per node, which listens where $HOST and $PORT say.

No platform of a training: `mlcd serve` starts it (mlcd.clouds.serving.on_nodes).
"""

from mlcd.platforms.placement import Placement, Process


def processes(placement: Placement) -> tuple[Process, ...]:
    """One server; its port differs from those of the other nodes, because some nodes share a machine."""
    env = {"HOST": placement.own_address, "PORT": str(placement.port + placement.rank)}
    return (Process(role="server", env=env),)
