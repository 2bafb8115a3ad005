"""The paper's space of 1,440 configurations, simulated from measured operator latencies.

What is measured: how long an operator takes by GPU and batch, in tables of the form of shared/measured/falcon
(operators.csv.gz: instance, operator, shape, batch, seconds). What is simulated: how models are composed of operators
(paper_models.py), the host's time, memory, and the effect of a power limit. A batch of b items on c cores takes

    host_ms b / c^0.9  +  kernels launch(gpu) (1 + 0.3 / c)  +  sum over operators of count x curve(gpu, b) / power^e

with e = 0.35 for conv2d and dense and 0.1 for the rest, all times a misfit specific to the model (fused operators,
cache, clocks); without it an additive model of operators would be exact by construction. It runs out of memory where

    weights + activations x b + 0.25 GiB > the GPU memory given to it,

and slows down by up to a quarter as it approaches that limit.

Five of the tables' fifteen operators are copies of others times 1.02 (concat, split, transpose, conv1d, batch_norm);
they are not measurements and are not used. Nor is strided_slice, whose times jump up and down with the batch. The rest
share a floor of about 3 ms, the runtime's call, which is subtracted; the remainder is scaled by one factor for all,
because a tuned kernel that leaves its data on the GPU is that much faster.
"""

import csv
import gzip
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mlcd.bench.serve.case import Bed
from mlcd.bench.serve.paper_models import PAPER_MODELS, TARGETS, PaperModel, Shape
from mlcd.catalog import Instance, load_catalog
from mlcd.clouds.chance import generator
from mlcd.errors import BadInput
from mlcd.known import Known, KnownModel, OperatorCurve, OperatorUse, TargetModel
from mlcd.space import Config

Floats = NDArray[np.float64]

OPERATORS = Path("../shared/measured/falcon")
TRIAL_SECONDS = 900.0
"""Duration of a trial in the paper: six take an hour and a half."""

CPUS = (1, 2, 3, 4, 5)
GPUS = ("M60", "T4", "K80", "V100")
GPU_MEMORY = (0.8, 1.2, 1.6, 2.4)
BATCHES = (4, 8, 16, 32, 64, 128)
POWER = (0.5, 0.75, 1.0)

MEASURED_ON = {"M60": "g3.4xlarge", "T4": "g4dn.4xlarge", "K80": "p2.8xlarge", "V100": "p3.2xlarge"}
PRICED_BY = {"M60": "g3s.xlarge", "T4": "g4dn.xlarge", "K80": "p2.xlarge", "V100": "p3.2xlarge"}
"""The cheapest instance with one such GPU."""
CORE_PRICED_BY = "c5.xlarge"

KERNEL_SCALE = 1 / 400
"""Factor on all tabled times; with it, ResNet-50's convolutions take their published time on a V100."""
LEAST_SHARE = 0.01
"""Least time of a batch, as a share of the largest batch's: the net time of small batches is below the noise."""
LAUNCH_US = {"M60": 11.0, "T4": 7.0, "K80": 13.0, "V100": 7.0}
CONTEXT_GIB = 0.25
MISFIT = {"operator": 0.1, "gpu": 0.08, "cell": 0.03}
"""Standard deviations of the logarithms: per operator in a model, per model on a GPU, per both and batch."""

_MEASURED_AS = {
    "conv2d": "nn.conv2d",
    "dense": "nn.dense",
    "relu": "nn.relu",
    "bias_add": "nn.bias_add",
    "add": "add",
    "multiply": "multiply",
    "sigmoid": "sigmoid",
    "tanh": "tanh",
    "subtract": "subtract",
}
_FILTERS, _WINDOW, _CHANNELS, _OUTPUTS = 32, 9, 3, 50
_REFERENCE = Config.of({"cpus": 4, "gpu": "V100", "gpu_memory": 2.4, "batch": 32, "power": 1.0})


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One operator at one size: seconds of a batch without the call, (GPU, batch) in the order of GPUS and BATCHES."""

    seconds: Floats
    flops: float
    bytes: float

    def at(self, config: Config) -> float:
        """Seconds in one configuration, including the effect of its power limit."""
        operator_seconds = self.seconds[GPUS.index(str(config["gpu"])), BATCHES.index(int(config["batch"]))]
        return float(operator_seconds * self.slowed(float(config["power"])))

    def slowed(self, power: float) -> float:
        """Factor on its time under a power limit: large for arithmetic, small for data movement."""
        return float(power ** -(0.35 if self.flops > 10 * self.bytes / 4 else 0.1))


def paper_bed(folder: Path | None = None) -> Bed:
    """The test bed of the 12 targets and 18 sources. Raises BadInput where the operators' tables are missing.

    The tables are in `folder`, else in $MLCD_OPERATORS, else in OPERATORS.
    """
    known = paper_space(folder or Path(os.environ.get("MLCD_OPERATORS") or OPERATORS))
    return Bed(name="falcon-space", known=known, targets=tuple(TARGETS), fixed=True, trial_seconds=TRIAL_SECONDS)


def paper_configs() -> tuple[Config, ...]:
    """All 1,440 configurations."""
    return tuple(
        Config.of({"cpus": cpus, "gpu": gpu, "gpu_memory": memory, "batch": batch, "power": power})
        for cpus, gpu, memory, batch, power in product(CPUS, GPUS, GPU_MEMORY, BATCHES, POWER)
    )


def paper_space(folder: Path, models: Mapping[str, PaperModel] = PAPER_MODELS) -> Known:
    """The simulated tables of `models`. Raises BadInput where the operators' tables are not in `folder`."""
    operators = read_operators(folder)
    configs = paper_configs()
    wanted = {shape for model in models.values() for shape, share in model.shares.items() if share > 0}
    if missing := sorted(wanted - set(operators)):
        named = ", ".join(f"{operator} {size}" for operator, size in missing)
        raise BadInput(f"{folder}: not measured on every GPU at every batch: {named}")
    curves = tuple(
        OperatorCurve(
            operator=operator,
            shape=size,
            flops=operators[operator, size].flops,
            bytes=operators[operator, size].bytes,
            seconds=np.array([operators[operator, size].at(config) for config in configs]),
        )
        for operator, size in sorted(wanted)
    )
    return Known(
        configs=configs,
        usd_per_hour=prices(configs),
        models=tuple(_compose(name, model, operators, configs) for name, model in models.items()),
        curves=curves,
        source="simulated: Falcon's 1,440 configurations; operator latencies measured by its authors on AWS with TVM",
        simulated=True,
    )


def prices(configs: tuple[Config, ...]) -> Floats:
    """(N,) USD per hour of a slice of a GPU plus CPU cores, the cores at the price of a CPU instance.

    The GPU's price is that of its instance less the instance's cores. A slice of 2.4 GiB at full power costs its share
    of the GPU's memory; a smaller or weaker one is priced half by memory and half by power.
    """
    by_name = {i.name: i for i in load_catalog(refreshed=False).instances if i.cloud == "aws"}
    core = by_name[CORE_PRICED_BY].usd_per_hour.dollars / by_name[CORE_PRICED_BY].vcpus

    def slice_usd(instance: Instance, memory: float, power: float) -> float:
        whole = instance.usd_per_hour.dollars - instance.vcpus * core
        largest = max(GPU_MEMORY) / instance.accelerator_memory_gib
        return whole * largest * (memory / max(GPU_MEMORY) + power) / 2

    return np.array(
        [
            int(c["cpus"]) * core
            + slice_usd(by_name[PRICED_BY[str(c["gpu"])]], float(c["gpu_memory"]), float(c["power"]))
            for c in configs
        ]
    )


def read_operators(folder: Path) -> dict[Shape, Measured]:
    """The measured operators by name and size. Raises BadInput where the file is missing or not of this form."""
    path = folder / "operators.csv.gz"
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    except FileNotFoundError as error:
        raise BadInput(f"{path} is missing: the paper's space is simulated from its latencies") from error
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise BadInput(f"{path}: cannot be read as gzipped CSV: {error}") from error
    names = {tabled: name for name, tabled in _MEASURED_AS.items()}
    cells: dict[Shape, dict[tuple[str, int], float]] = {}
    try:
        for row in rows:
            if row["operator"] in names:
                operator = names[row["operator"]]
                size, factor = _size(operator, row["shape"])
                cell = cells.setdefault((operator, size), {})
                cell[row["instance"], int(row["batch"])] = float(row["seconds"]) * factor
        floors = {i: min(c[k] for c in cells.values() for k in c if k[0] == i) for i in MEASURED_ON.values()}
    except (LookupError, TypeError, ValueError) as error:
        raise BadInput(f"{path}: needs operator, shape, instance, batch, seconds of four GPUs ({error})") from error
    return {shape: _measured(shape, cell, floors) for shape, cell in cells.items() if len(cell) == 24}


def _size(operator: str, text: str) -> tuple[str, float]:
    """The size of one item as text, and the factor that scales the row to it: dense has 42 to 60 outputs."""
    numbers = [int(n) for n in re.findall(r"\d+", text.split("/")[2])]
    if operator == "dense":
        return str(numbers[1]), _OUTPUTS / numbers[2]
    first = 2 if operator == "conv2d" else 1
    return f"{numbers[first]}x{numbers[first + 1]}", 1.0


def _measured(shape: Shape, cell: Mapping[tuple[str, int], float], floors: Mapping[str, float]) -> Measured:
    net = np.array([[cell[i, b] - floors[i] for b in BATCHES] for i in (MEASURED_ON[gpu] for gpu in GPUS)])
    # A larger batch of the same operator takes no less time; a measurement to the contrary is a spike.
    rising = np.minimum.accumulate(np.maximum(net, 0.0)[:, ::-1], axis=1)[:, ::-1]
    operator, size = shape
    elements = float(np.prod([int(n) for n in size.split("x")]))
    if operator == "conv2d":
        flops, moved = 2 * elements * _FILTERS * _CHANNELS * _WINDOW, 4 * elements * (_CHANNELS + _FILTERS)
    elif operator == "dense":
        flops, moved = 2 * elements * _OUTPUTS, 4 * (elements + _OUTPUTS)
    else:
        inputs = 2 if operator in ("add", "multiply", "subtract") else 1
        flops, moved = elements, 4 * elements * (inputs + 1)
    rising = np.maximum(rising, LEAST_SHARE * rising[:, -1:])
    return Measured(seconds=rising * KERNEL_SCALE, flops=flops, bytes=moved)


def _compose(
    name: str, model: PaperModel, operators: Mapping[Shape, Measured], configs: tuple[Config, ...]
) -> KnownModel:
    v100 = GPUS.index("V100")
    counts = {
        shape: max(1, round(share * model.item_ms / 1e3 / (operators[shape].seconds[v100, -1] / BATCHES[-1])))
        for shape, share in model.shares.items()
        if share > 0
    }
    fused = {shape: _misfit("operator", name, *shape) for shape in counts}
    batches = np.array([float(c["batch"]) for c in configs])
    needed = (model.weights_mib + model.activation_mib * batches) / 1024 + CONTEXT_GIB
    given = np.array([float(c["gpu_memory"]) for c in configs])
    parts = {
        shape: np.array([count * fused[shape] * operators[shape].at(c) for c in configs])
        for shape, count in counts.items()
    }
    strange = np.array([_misfit("gpu", name, c["gpu"]) * _misfit("cell", name, c["gpu"], c["batch"]) for c in configs])
    strange *= 1 + 0.25 * np.minimum(needed / given, 1.0) ** 4
    latency = _host_seconds(model, configs) + np.sum(list(parts.values()), axis=0) * strange
    reference = configs.index(_REFERENCE)
    target = TargetModel(
        name=name,
        operators=tuple(
            OperatorUse(
                operator=operator,
                shape=size,
                count=count,
                share=float((parts[operator, size] * strange / latency)[reference]),
                flops=count * operators[operator, size].flops,
                bytes=count * operators[operator, size].bytes,
            )
            for (operator, size), count in counts.items()
        ),
    )
    return KnownModel(
        target=target,
        family=model.family,
        latency_seconds=np.where(needed > given, np.inf, latency),
        memory_gib=needed,
    )


def _host_seconds(model: PaperModel, configs: tuple[Config, ...]) -> Floats:
    cores = np.array([float(c["cpus"]) for c in configs])
    batches = np.array([float(c["batch"]) for c in configs])
    launch = np.array([LAUNCH_US[str(c["gpu"])] for c in configs]) * 1e-6
    return np.asarray(model.host_ms * 1e-3 * batches / cores**0.9 + model.kernels * launch * (1 + 0.3 / cores))


def _misfit(kind: str, *key: object) -> float:
    """exp of a normal deviate, deterministic for each key."""
    return float(np.exp(MISFIT[kind] * generator("falcon-space", kind, *key).gauss()))
