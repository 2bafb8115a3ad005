"""Measurements on one NVIDIA H200: 30 models and their operators, on shares of the GPU.

How, when and with what noise: benchmarks/serve_device.md. The grammar of operators and shapes:
benchmarks/serve_device/grammar.py.
"""

import csv
import gzip
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from importlib.resources import files
from itertools import product

import numpy as np

from mlcd.gpus import Gpu
from mlcd.known.tables import (
    Floats,
    Known,
    KnownModel,
    OperatorCurve,
    OperatorShape,
    OperatorUse,
    TargetModel,
)
from mlcd.space import Config

SMS = (8, 16, 32, 64, 96, 132)
"""Shares of the GPU, as multiprocessors of 132; memory is capped in proportion."""
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
PRECISIONS = ("fp32", "tf32", "fp16")
MEASURED_SHAPES = 300
"""So many pairs of operator and shape were measured: those with the largest sum of shares over all models."""

# aws us-east-1, on-demand, August 2026: p5en.48xlarge has 8 H200, 192 vCPUs and 2,048 GiB for $63.296 an hour. The
# price of its processors and memory is taken from m7i (192 vCPUs: $9.6768); the rest is the GPUs'. A server's host
# share is one m7i.xlarge: 4 vCPUs.
GPU_USD_PER_HOUR = (63.296 - 9.6768) / 8
HOST_USD_PER_HOUR = 0.2016

SOURCE = (
    "30 models and their operators on one NVIDIA H200 (PyTorch 2.11, CUDA 13.0), shares by CUDA's multi-process "
    "service, 15 November 2026; prices: aws us-east-1, p5en and m7i, on-demand, August 2026"
)

Row = dict[str, str]


def usd_per_hour(sms: int) -> float:
    """Host + max(share of multiprocessors, share of memory) x the GPU's price; both shares are the same here."""
    return HOST_USD_PER_HOUR + sms / SMS[-1] * GPU_USD_PER_HOUR


@cache
def h200(reference: str = "fp32") -> Known:
    """All measurements. Configurations are (sms, batch, precision). Reading takes about 0.5 s, once per process.

    reference  the precision, fp32 or fp16, of the run at batch 8 on the whole GPU that gave the operators' shares
    """
    configs = tuple(
        Config.of({"sms": sms, "batch": batch, "precision": precision})
        for sms, batch, precision in product(SMS, BATCHES, PRECISIONS)
    )
    uses = _uses(reference)
    return Known(
        configs=configs,
        usd_per_hour=np.array([usd_per_hour(int(config["sms"])) for config in configs]),
        models=tuple(_models(uses, len(configs))),
        curves=tuple(_curves(len(configs))),
        source=SOURCE,
        simulated=False,
        chosen=chosen_shapes,
    )


def known_on_gpu(gpu: Gpu) -> Known | None:
    """What was measured on GPUs of this kind, with the knobs of `mlcd serve`; None where nothing was.

    A share in percent is what CUDA makes of it: multiprocessors of 132. bf16 runs as fast as fp16. An H100 has the same
    processor with slower memory.
    """
    return _by_share() if gpu.model.upper() in ("H200", "H100") else None


@cache
def _by_share() -> Known:
    found = h200()
    precisions = {"fp32": "fp32", "tf32": "tf32", "bf16": "fp16", "fp16": "fp16"}
    index = {config: row for row, config in enumerate(found.configs)}
    rows, configs = [], []
    for batch, sms, precision in product(BATCHES, SMS, precisions):
        rows.append(index[Config.of({"sms": sms, "batch": batch, "precision": precisions[precision]})])
        configs.append(Config.of({"batch": batch, "gpu_share": percent_of(sms), "precision": precision}))
    at = np.array(rows)
    return replace(
        found,
        configs=tuple(configs),
        usd_per_hour=found.usd_per_hour[at],
        models=tuple(
            replace(model, latency_seconds=model.latency_seconds[at], memory_gib=model.memory_gib[at])
            for model in found.models
        ),
        curves=tuple(replace(curve, seconds=curve.seconds[at]) for curve in found.curves),
    )


def percent_of(sms: int) -> int:
    """Multiprocessors as percent of the GPU, rounded."""
    return round(100 * sms / SMS[-1])


def chosen_shapes(names: frozenset[str]) -> frozenset[OperatorShape]:
    """The MEASURED_SHAPES with the most time over these models, fp32 and fp16 together (serve_device/measure.py)."""
    weight: dict[OperatorShape, float] = defaultdict(float)
    for name, shape, share in _both_shares():
        if name in names:
            weight[shape] += share
    return frozenset(sorted(weight, key=lambda shape: -weight[shape])[:MEASURED_SHAPES])


@cache
def _both_shares() -> tuple[tuple[str, OperatorShape, float], ...]:
    """(model, operator and shape, sum of its shares in fp32 and in fp16)."""
    return tuple(
        (row["model"], (row["operator"], row["shape"]), float(row["share_fp32"]) + float(row["share_fp16"]))
        for row in _rows("uses")
    )


def _rows(table: str) -> Iterator[Row]:
    packed = files("mlcd.known") / "data" / f"h200-{table}.csv.gz"
    with packed.open("rb") as raw, gzip.open(raw, "rt", encoding="utf-8", newline="") as lines:
        yield from csv.DictReader(lines)


def _place(row: Row) -> int:
    """The index of a row's configuration in `configs`."""
    sms, batch = SMS.index(int(row["sms"])), BATCHES.index(int(row["batch"]))
    return (sms * len(BATCHES) + batch) * len(PRECISIONS) + PRECISIONS.index(row["precision"])


def _fill(rows: Iterable[Row], column: str, scale: float, size: int) -> Floats:
    """(N,) the column x scale, infinite where memory ran out, nan where nothing was measured; first rounds only."""
    out = np.full(size, np.nan)
    for row in rows:
        if row["round"] == "0" and row["status"] in ("ok", "oom"):
            out[_place(row)] = float(row[column]) * scale if row["status"] == "ok" else np.inf
    return out


def _uses(reference: str) -> dict[tuple[str, str], list[OperatorUse]]:
    """By (model, family), the operators that took time, the longest first."""
    out: dict[tuple[str, str], list[OperatorUse]] = defaultdict(list)
    for row in _rows("uses"):
        out[row["model"], row["family"]].append(
            OperatorUse(
                operator=row["operator"],
                shape=row["shape"],
                count=int(row["count"]),
                share=float(row[f"share_{reference}"]),
                flops=float(row["flops"]),
                bytes=float(row["bytes"]),
            )
        )
    for uses in out.values():
        # Shares have four digits: over hundreds of operators their sum may exceed 1.
        total = max(1.0, sum(use.share for use in uses))
        uses[:] = sorted((_scaled(use, total) for use in uses), key=lambda use: -use.share)
    return out


def _scaled(use: OperatorUse, total: float) -> OperatorUse:
    return OperatorUse(
        operator=use.operator,
        shape=use.shape,
        count=use.count,
        share=use.share / total,
        flops=use.flops,
        bytes=use.bytes,
    )


def _models(uses: dict[tuple[str, str], list[OperatorUse]], size: int) -> Iterator[KnownModel]:
    measured: dict[str, list[Row]] = defaultdict(list)
    for row in _rows("models"):
        measured[row["model"]].append(row)
    for (name, family), operators in uses.items():
        yield KnownModel(
            target=TargetModel(name=name, operators=tuple(operators)),
            family=family,
            latency_seconds=_fill(measured[name], "median_ms", 1e-3, size),
            memory_gib=_fill(measured[name], "memory_mib", 1 / 1024, size),
        )


def _curves(size: int) -> Iterator[OperatorCurve]:
    work = {(row["operator"], row["shape"]): row for row in _rows("uses")}
    measured: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in _rows("operators"):
        measured[row["operator"], row["shape"]].append(row)
    for (operator, shape), rows in measured.items():
        use = work[operator, shape]
        count = int(use["count"])
        yield OperatorCurve(
            operator=operator,
            shape=shape,
            flops=float(use["flops"]) / count,
            bytes=float(use["bytes"]) / count,
            seconds=_fill(rows, "microseconds", 1e-6, size),
        )
