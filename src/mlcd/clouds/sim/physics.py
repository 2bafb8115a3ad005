"""The true mean speed of a deployment: a step has computation, exchange, waiting, and deviations from any formula.

Differs on purpose from the models of the strategies: work is split in whole samples, part of the exchange overlaps the
backward pass, the slowest of n nodes sets the pace, racks fill up, and each instance type has its own deviations.
"""

import math
from statistics import NormalDist

from mlcd.catalog.instance import Instance
from mlcd.clouds.chance import share
from mlcd.clouds.sim.models import SimJob
from mlcd.clouds.sim.network import exchange_seconds
from mlcd.clouds.sim.node import compute_seconds, fits

_NORMAL = NormalDist()


def samples_per_second(instance: Instance, job: SimJob, nodes: int) -> float | None:
    """Global batch size over the mean step time; None where a node has no sample or too little memory for its share."""
    if nodes > job.batch:
        return None
    samples = math.ceil(job.batch / nodes)
    if not fits(instance, job.spec, nodes=nodes, samples=samples):
        return None
    computing = compute_seconds(instance, job.spec, samples) * waiting_factor(instance, nodes)
    exchange = exchange_seconds(instance, job.spec, job.topology, nodes)
    # During the backward pass (two thirds of the time) the exchange runs at a fraction of its speed.
    overlap_speed = 0.7 if instance.accelerators else 0.5
    exposed = exchange - min(0.9 * exchange, overlap_speed * computing * 2 / 3)
    bookkeeping = 0.006 + 0.0009 * math.pow(nodes, 0.7)
    return job.batch / (computing + exposed + bookkeeping) * deviation_factor(instance, job, nodes)


def waiting_factor(instance: Instance, nodes: int) -> float:
    """Expected slowest of `nodes` over the mean (Blom's approximation of a normal maximum)."""
    spread = 0.12 if instance.name.startswith("t3") else 0.025 if instance.accelerators else 0.035
    return 1 + spread * max(0.0, _NORMAL.inv_cdf((nodes - 0.375) / (nodes + 0.25))) if nodes > 1 else 1.0


def deviation_factor(instance: Instance, job: SimJob, nodes: int) -> float:
    """The factor peculiar to a type with a job: a constant, and two waves over the number of nodes."""
    key = instance.cloud, instance.name, job.spec.name, job.topology
    level = 1 + 0.05 * (2 * share("level", *key) - 1)
    doublings = math.log2(nodes)
    slow = math.sin(2 * math.pi * (doublings / (2.6 + share("slow", *key)) + share("slow-at", *key)))
    quick = math.sin(2 * math.pi * (doublings / (0.9 + 0.4 * share("quick", *key)) + share("quick-at", *key)))
    return level * (1 + 0.055 * slow + 0.035 * quick)
