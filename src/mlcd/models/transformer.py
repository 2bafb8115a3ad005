"""What a transformer's sizes and the machines' data sheets say about its training: memory and speed, before any trial.

Memory of a worker, in bytes:

    states       16 N: weights, gradients and Adam's moments in fp32 or in mixed precision (Rajbhandari et al., ZeRO,
                 SC 2020), each split over the workers as far as the sharding says
    activations  B L T H (34 + 5 A T / H) in 16 bits, twice that in 32 (Korthikanti et al. 2022, equation 2); without
                 the attention term for kernels that keep no scores; 2 B L T H and one layer where layers are
                 recomputed

with N parameters, L layers, width H, A heads, T tokens a sample and B samples at once on a worker.

Time of a step is that of its FLOPs, a third more with recomputation, at a share of the peak that grows with the tokens
at once; of moving weights and activations; and of exchanging the gradients over the network. All of it is a prior:
mlcd.models.speed gives it a coefficient, and mlcd.models.footprint factors, which trials correct.

Settings are recognised by their usual names (`precision`, `micro_batch`, ...); others have no effect here.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from mlcd.known.gpus import gpu_of
from mlcd.problem import Problem
from mlcd.space import Config, Value, Workers
from mlcd.transformer import Transformer

Floats = NDArray[np.float64]

GIB = 1024.0**3
STATE_BYTES = 16.0
WEIGHT_SHARE, GRADIENT_SHARE = 0.25, 0.25
"""Of the states: weights, gradients; the rest is the optimiser's."""
PEAK_SHARE = 0.45
"""Of the 16-bit peak that large matrix products reach in training: 0.38 to 0.57 in published runs (Narayanan et al.
2021; Chowdhery et al. 2022)."""
HALF_TOKENS = 1024.0
"""Tokens at once at which a worker reaches half of that. Unmeasured: a guess between small and large accelerators."""
FULL_PRECISION_SPEED = 0.25
"""Of 32-bit products over 16-bit ones on tensor cores: 0.07 without TF32 and 0.5 with it (NVIDIA's H100 data sheet)."""
COMPILED_SPEED = 1.15
TRANSFERS = 3.0
"""How often a step moves each weight and activation: forward, backward, update."""
LINK_BYTES_PER_SECOND = 3e9
"""Between nodes whose network is not known: 25 Gbit/s."""
OVERHEAD_GIB = 1.5
"""Context, libraries and fragmentation of an accelerator."""

_PRECISION = re.compile(r"precision|dtype|amp|bf16|fp16|half", re.IGNORECASE)
_MICRO_BATCH = re.compile(r"micro_?batch|per_device_(?:train_)?batch|batch_size_per", re.IGNORECASE)
_RECOMPUTE = re.compile(r"recompute|checkpointing|remat", re.IGNORECASE)
_SHARDING = re.compile(r"shard|fsdp|zero|^strategy$", re.IGNORECASE)
_ATTENTION = re.compile(r"attention|attn", re.IGNORECASE)
_COMPILE = re.compile(r"compile", re.IGNORECASE)
_ON = (True, 1, "true", "on", "yes", "full", "1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """What the settings of a configuration say, as far as their names are known."""

    half: bool = False
    micro_batch: float | None = None
    recompute: bool = False
    sharding: str = "none"
    keeps_scores: bool = True
    compiled: bool = False


def roles(settings: Mapping[str, Value]) -> Roles:
    """The settings' roles by their names and values."""
    return _roles(tuple(settings.items()))


@lru_cache(maxsize=100_000)
def _roles(settings: tuple[tuple[str, Value], ...]) -> Roles:
    found: dict[str, object] = {}
    for name, value in settings:
        text = str(value).lower()
        if _COMPILE.search(name):
            found["compiled"] = value in _ON or text not in ("false", "off", "no", "none", "0")
        elif _MICRO_BATCH.search(name) and isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
            found["micro_batch"] = float(value)
        elif _RECOMPUTE.search(name):
            found["recompute"] = value in _ON or text in ("full", "selective", "block")
        elif _SHARDING.search(name):
            found["sharding"] = _sharding(text)
        elif _ATTENTION.search(name):
            found["keeps_scores"] = text in ("eager", "math", "naive", "plain")
        elif _PRECISION.search(name):
            found["half"] = "16" in text or (value is True and "16" in name)
    return Roles(**found)  # type: ignore[arg-type]  # the fields above


def _sharding(text: str) -> str:
    """`none`, `optimiser`, `gradients` (and optimiser) or `all`."""
    if re.search(r"full|^fsdp|zero-?3|^3$", text):
        return "all"
    if re.search(r"grad|zero-?2|^2$", text):
        return "gradients"
    return "optimiser" if re.search(r"optim|zero-?1|^1$", text) else "none"


def memory_gib(problem: Problem) -> tuple[Floats, Floats] | None:
    """(N,) each: what the states and what the activations of a worker take; None if the model is not described."""
    model, machines = problem.transformer, problem.space.machines
    if model is None or machines is None:
        return None
    found = [_memory(model, config, each, problem.samples_per_step) for config, each in _rows(problem, machines)]
    states, activations = np.array(found).T
    return states / GIB + OVERHEAD_GIB, activations / GIB


def log_speed(problem: Problem) -> Floats | None:
    """(N,) ln samples/s of each configuration; None if the model is not described, or a machine's peak is not known."""
    model, machines = problem.transformer, problem.space.machines
    if model is None or machines is None or not all(each.tflops for each in machines):
        return None
    rows = [_seconds(model, config, each, problem.samples_per_step) for config, each in _rows(problem, machines)]
    return np.asarray(-np.log(np.array(rows)))


def _rows(problem: Problem, machines: list[Workers]) -> list[tuple[Config, Workers]]:
    return list(zip(problem.space.configs, machines, strict=True))


def _held(config: Config, machine: Workers, batch: float | None, wanted: float | None) -> tuple[float, float]:
    """(samples at once, samples of a step) of a worker."""
    workers = machine.count * config.nodes
    step = max((batch or workers) / workers, 1.0)
    return (min(wanted, step) if wanted is not None and batch is not None else wanted or step), step


def _memory(model: Transformer, config: Config, machine: Workers, batch: float | None) -> tuple[float, float]:
    """Bytes of (states, activations) on a worker."""
    role = roles(config.settings)
    workers = machine.count * config.nodes
    at_once, _ = _held(config, machine, batch, role.micro_batch)
    split = {
        "none": 0.0,
        "optimiser": 1 - WEIGHT_SHARE - GRADIENT_SHARE,
        "gradients": 1 - WEIGHT_SHARE,
        "all": 1.0,
    }[role.sharding]
    states = STATE_BYTES * model.parameters * (1 - split + split / workers)
    layer = at_once * _layer_bytes(model, role)
    kept = 2 * at_once * model.sequence * model.hidden * (1.0 if role.half else 2.0)
    return states, kept * model.layers + layer if role.recompute else layer * model.layers


def _layer_bytes(model: Transformer, role: Roles) -> float:
    """Activations of one sample in one layer, in bytes."""
    scores = 5.0 * model.heads * model.sequence / model.hidden if role.keeps_scores else 0.0
    return model.sequence * model.hidden * (1.0 if role.half else 2.0) * (34 + scores)


def _seconds(model: Transformer, config: Config, machine: Workers, batch: float | None) -> float:
    """Seconds of a sample of the whole job."""
    role = roles(config.settings)
    workers = machine.count * config.nodes
    at_once, step = _held(config, machine, batch, role.micro_batch)
    tokens = at_once * model.sequence
    peak = machine.tflops * 1e12 * PEAK_SHARE * tokens / (tokens + HALF_TOKENS)
    if not role.half and machine.accelerator:
        peak *= FULL_PRECISION_SPEED
    if role.compiled:
        peak *= COMPILED_SPEED
    flops = model.flops_per_sample * (4 / 3 if role.recompute else 1.0)
    sheet = gpu_of(machine.accelerator) if machine.accelerator else None
    weights = model.parameters * (2.0 if role.half else 4.0)
    seconds = flops / peak
    if sheet is not None:
        moved = weights / at_once + _layer_bytes(model, role) * model.layers
        seconds += TRANSFERS * moved / (sheet.gb_per_second * 1e9)
    if workers > 1:
        link = machine.network_gbps * 1e9 / 8 or LINK_BYTES_PER_SECOND
        if sheet is not None and config.nodes == 1:
            link = sheet.link_gb_per_second * 1e9 / 2
        rounds = 3.0 if role.sharding == "all" else 2.0
        seconds += rounds * weights * (workers - 1) / workers / link / step
    return seconds / workers
