"""TensorFlow: TF_CONFIG.

ring   MultiWorkerMirroredStrategy: every node is a `worker`; worker 0 reports and saves
ps     ParameterServerStrategy: every node runs a `worker`, node 0 also the `ps` and the `chief`, which coordinates.
       Workers and parameter server never end by themselves: the job is done when the chief ends. So the other nodes
       have no essential process, and run until the lease is released.
"""

import json

from mlcd.platforms.placement import Placement, Process

TOPOLOGIES = ("ring", "ps")


def processes(placement: Placement) -> tuple[Process, ...]:
    """This node's tasks, each with the whole cluster and its own place in TF_CONFIG."""
    if placement.topology == "ps":
        cluster = {
            "chief": [f"{placement.head}:{placement.port}"],
            "ps": [f"{placement.head}:{placement.port + 1}"],
            "worker": _workers(placement, placement.port + 2),
        }
        worker = _task(cluster, "worker", placement.rank, essential=False)
        if placement.rank > 0:
            return (worker,)
        return (_task(cluster, "ps", 0, essential=False), worker, _task(cluster, "chief", 0))
    return (_task({"worker": _workers(placement, placement.port)}, "worker", placement.rank),)


def _workers(placement: Placement, first: int) -> list[str]:
    # Nodes that share an address (processes of one machine) use consecutive ports.
    return [
        f"{address}:{first + placement.addresses[:rank].count(address)}"
        for rank, address in enumerate(placement.addresses)
    ]


def _task(cluster: dict[str, list[str]], role: str, index: int, *, essential: bool = True) -> Process:
    config = {"cluster": cluster, "task": {"type": role, "index": index}}
    env = {"TF_CONFIG": json.dumps(config)}
    if "ps" in cluster:
        env["GRPC_FAIL_FAST"] = "use_caller"  # TensorFlow's guide: without it, a chief does not wait for workers
    return Process(role=role, env=env, essential=essential)
