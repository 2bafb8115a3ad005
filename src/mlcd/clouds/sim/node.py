"""How long one node takes for its share of a step, and whether the share fits in its memory."""

import math
from fnmatch import fnmatchcase

from mlcd.catalog.instance import Instance
from mlcd.clouds.sim.models import SimModel

GIB = 1024.0**3
CORES_BEFORE_THREADS_COLLIDE = 8
"""With one framework process per node and default thread pools, speed grows as sqrt(cores) beyond this many."""

_CPUS: tuple[tuple[str, float, float], ...] = (
    # glob, sustained all-core GHz, fp32 FLOPs a cycle and core: vendors' pages; AVX-512 counted below its nominal 64
    # because clocks drop and one of the two ports is shared.
    ("c4.*", 2.9, 32),
    ("c5.*", 3.4, 48),
    ("c5a.*", 3.3, 32),
    ("c5n.*", 3.3, 48),
    ("c6a.*", 3.5, 32),
    ("c6g.*", 2.5, 16),
    ("c6i.*", 3.5, 52),
    ("c7g.*", 2.6, 32),
    ("c7i.*", 3.5, 56),
    ("m4.*", 2.4, 32),
    ("m5.*", 3.1, 46),
    ("m5n.*", 3.1, 46),
    ("m6i.*", 3.5, 50),
    ("m7i.*", 3.5, 54),
    ("r4.*", 2.3, 32),
    ("r5.*", 3.1, 44),
    ("r6i.*", 3.5, 48),
    ("t3.*", 2.5, 30),
    ("Standard_D*", 3.5, 50),
    ("Standard_F*", 3.4, 48),
    ("c2-*", 3.8, 48),
    ("c3-*", 3.3, 56),
    ("n1-*", 2.3, 32),
    ("n2-*", 3.4, 48),
    ("*", 2.6, 32),
)
_ARM = ("c6g.*", "c7g.*")


def fits(instance: Instance, model: SimModel, *, nodes: int, samples: int) -> bool:
    """Whether states, activations of `samples` and the framework itself fit on a node."""
    devices = max(1, instance.accelerators)
    states_gib = model.parameters * model.state_bytes / GIB / (nodes * devices if model.sharded else 1)
    activations_gib = math.ceil(samples / devices) * model.activation_mib / 1024
    if instance.accelerators:
        return states_gib + activations_gib + 0.9 <= instance.accelerator_memory_gib
    return 1.15 * (states_gib + activations_gib) + 1.2 <= instance.memory_gib


def compute_seconds(instance: Instance, model: SimModel, samples: int) -> float:
    """Forward and backward pass over `samples` on one node, its devices synchronised."""
    feeding = samples * model.host_ms / 1000 / instance.vcpus
    if instance.accelerators:
        return max(_device_seconds(instance, model, math.ceil(samples / instance.accelerators)), feeding)
    return _cpu_seconds(instance, model, samples) + 0.3 * feeding


def _cpu_seconds(instance: Instance, model: SimModel, samples: int) -> float:
    _, ghz, flops = next(row for row in _CPUS if fnmatchcase(instance.name, row[0]))
    cores = instance.vcpus if any(fnmatchcase(instance.name, glob) for glob in _ARM) else instance.vcpus / 2
    useful = cores**2 / (cores + 0.5)  # the exchange and the system take about half a core
    if cores > CORES_BEFORE_THREADS_COLLIDE:
        useful *= math.sqrt(CORES_BEFORE_THREADS_COLLIDE / cores)
    if cores > 20:
        useful *= 0.9  # two sockets: half of the memory is remote
    # A thread needs about a third of a sample to stay busy.
    busy = samples / (samples + 0.3 * useful)
    # Working set against last-level cache: a node with few samples runs from cache, one with many from memory.
    pressure = math.log(max(1.0, samples * model.activation_mib / (1.4 * cores * 6)))
    from_memory = 1 + 0.16 * math.tanh(pressure)
    gflops = useful * ghz * flops * model.cpu_efficiency
    return samples * model.gflop_per_sample / gflops / busy * from_memory


def _device_seconds(instance: Instance, model: SimModel, samples: int) -> float:
    is_fp32 = instance.accelerator_tflops < 20
    efficiency = model.fp32_efficiency if is_fp32 else model.tensor_efficiency
    # Tiles of eight: nine samples cost almost as much as sixteen.
    padded = samples + 0.3 * (-samples % 8)
    speed = instance.accelerator_tflops * 1000 * efficiency * samples / (samples + model.half_batch)
    launch_seconds = 12e-6 if is_fp32 else 7e-6
    arithmetic = padded * model.gflop_per_sample / speed
    launches = model.kernels * launch_seconds
    # Launches hide behind long kernels, not behind short ones.
    return math.cbrt(arithmetic**3 + launches**3) + 0.15 * launches
