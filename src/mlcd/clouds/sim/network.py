"""How long the nodes take to exchange a step's gradients."""

import math

from mlcd.catalog.instance import Instance
from mlcd.clouds.chance import share
from mlcd.clouds.sim.models import SimModel

BUCKET_BYTES = 64 * 2.0**20
"""Gradients are fused into buckets of this size before they are sent (Horovod's default fusion threshold)."""

HOP_SECONDS = 3.0e-4
"""One message between two busy nodes over TCP within a rack; queues lengthen it in large clusters."""


def bytes_per_second(instance: Instance) -> float:
    """Gradient bytes a node's link carries: small types burst above their baseline, fast links are used less fully."""
    gbps = instance.network_gbps * (1.25 if instance.network_gbps < 10 else 1.0)
    return gbps * 1e9 / 8 * 0.92 / (1 + 0.2 * math.pow(gbps / 10, 0.4))


def racks(instance: Instance, nodes: int) -> int:
    """How many racks the placement spans; a type's racks hold 12, 16 or 20 of its nodes."""
    size = (12, 16, 20)[int(3 * share("rack", instance.cloud, instance.name.split(".")[0]))]
    return math.ceil(nodes / size)


def exchange_seconds(instance: Instance, model: SimModel, topology: str, nodes: int) -> float:
    """Time to sum gradients over all nodes (and, for a sharded model, to gather weights twice), without overlap."""
    return _within(instance, model) + (_between(instance, model, topology, nodes) if nodes > 1 else 0.0)


def _volume(instance: Instance, model: SimModel) -> float:
    is_16_bit = instance.accelerators > 0 and instance.accelerator_tflops >= 20
    return model.parameters * (model.tensor_gradient_bytes if is_16_bit else model.gradient_bytes)


def _within(instance: Instance, model: SimModel) -> float:
    """Among the accelerators of a node: over PCIe on small or pre-V100 machines, over NVLink on the large ones."""
    count = instance.accelerators
    if count < 2:
        return 0.0
    per_second = 9e9 if instance.accelerator_tflops < 100 or count < 4 else 60e9
    rounds = 3 if model.sharded else 2
    return rounds * (count - 1) / count * _volume(instance, model) / per_second + 2e-4 * count


def _between(instance: Instance, model: SimModel, topology: str, nodes: int) -> float:
    volume, link = _volume(instance, model), bytes_per_second(instance)
    spanned = racks(instance, nodes)
    # Up-links are oversubscribed: each additional rack reduces the bandwidth, the second rack the most.
    link /= 1 + 0.12 * math.sqrt(spanned - 1)
    hop = HOP_SECONDS * (1 + 0.35 * math.log(spanned)) * (1 + math.pow(nodes / 55, 1.6))
    buckets = math.ceil(volume / BUCKET_BYTES)
    if topology == "ring" or model.sharded:
        rounds = 3.0 if model.sharded else 2.0
        # Recursive halving-doubling replaces the ring for powers of two; an odd ring leaves one link idle each round.
        shape = 0.98 if nodes & (nodes - 1) == 0 else 1.015 if nodes % 2 else 1.0
        return shape * (rounds * (nodes - 1) / nodes * volume / link + rounds * (nodes - 1) * min(buckets, 24) * hop)
    if topology == "ps":
        # Every node serves a shard to all others at once: incast grows with the number of senders.
        incast = 1 + 0.035 * nodes + (0.2 if nodes > 24 else 0.0)
        return 2 * (nodes - 1) / nodes * volume / link * incast + 2.5 * hop * nodes * (1 + 0.2 * buckets)
    return 1.25 * (nodes - 1) * volume / link + 1.2 * hop * nodes
