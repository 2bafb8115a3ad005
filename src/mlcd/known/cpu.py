"""Measurements on CPUs with ONNX Runtime: small models served in every configuration, and their operators.

The tables are made by benchmarks/serve_cpu.py and shipped with the package; cpu.json states where and when.
"""

import csv
import gzip
import io
import json
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from mlcd.known.tables import Known, KnownModel, OperatorCurve, OperatorShape, OperatorUse, TargetModel
from mlcd.space import Config

USD_PER_CPU_HOUR = 0.0425
"""Nominal, as in mlcd.clouds.local: the on-demand price of a c5's vCPU."""
MEASURED_SHARE = 0.97
"""Of each model, the fewest operators that make up this share of its time were measured (serve_cpu_operators.py)."""
_KNOBS = ("batch", "threads", "replicas", "precision")

Row = dict[str, str]


@cache
def cpu() -> Known:
    """The tables. A model's seconds per batch are those of the served model, with every replica's batch full."""
    about = json.loads((files("mlcd.known") / "data" / "cpu.json").read_text(encoding="utf-8"))
    models, operators, shares = _table("models"), _table("operators"), _table("shares")
    configs = tuple(dict.fromkeys(map(_config, models)))
    index = {config: row for row, config in enumerate(configs)}
    return Known(
        configs=configs,
        usd_per_hour=np.array([_usd_per_hour(config) for config in configs]),
        models=tuple(_model(name, rows, shares, index) for name, rows in _groups(models, "name").items()),
        curves=tuple(
            _curve(rows, index)
            for kind in _groups(operators, "operator").values()
            for rows in _groups(kind, "shape").values()
        ),
        source="{models} models on {machine}, ONNX Runtime {onnxruntime}, {measured}".format(**about),
        simulated=False,
        chosen=chosen_shapes,
    )


def chosen_shapes(names: frozenset[str]) -> frozenset[OperatorShape]:
    """The operators that make up MEASURED_SHARE of the time of one of these models."""
    return frozenset(shape for name, shapes in _chosen().items() if name in names for shape in shapes)


@cache
def _chosen() -> dict[str, list[OperatorShape]]:
    found: dict[str, list[OperatorShape]] = {}
    for name, rows in _groups(_table("shares"), "name").items():
        total, found[name] = 0.0, []
        for row in sorted(rows, key=lambda row: -float(row["share"])):
            if total >= MEASURED_SHARE:
                break
            found[name].append((row["operator"], row["shape"]))
            total += float(row["share"])
    return found


def cpu_noise() -> float:
    """The relative deviation of one load test, from the load tests that were made twice."""
    about = json.loads((files("mlcd.known") / "data" / "cpu.json").read_text(encoding="utf-8"))
    return float(about["noise"]["served"])


def _table(name: str) -> list[Row]:
    packed = (files("mlcd.known") / "data" / f"cpu-{name}.csv.gz").read_bytes()
    return list(csv.DictReader(io.StringIO(gzip.decompress(packed).decode())))


def _groups(rows: list[Row], key: str) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row[key], []).append(row)
    return found


def _config(row: Row) -> Config:
    values: dict[str, Any] = {knob: int(row[knob]) for knob in _KNOBS[:3]}
    return Config.of({**values, "precision": row["precision"]})


def _usd_per_hour(config: Config) -> float:
    return USD_PER_CPU_HOUR * int(config["threads"]) * int(config["replicas"])


def _model(name: str, rows: list[Row], shares: list[Row], index: dict[Config, int]) -> KnownModel:
    seconds, memory = np.full(len(index), np.nan), np.full(len(index), np.nan)
    for row in rows:
        at = index[_config(row)]
        # The requests in flight filled every replica's batch: Little's law gives the latency of one of them.
        seconds[at] = int(row["batch"]) * int(row["replicas"]) / float(row["requests_per_second"])
        memory[at] = float(row["memory_gib"])
    uses = tuple(
        OperatorUse(
            operator=row["operator"],
            shape=row["shape"],
            count=int(row["count"]),
            share=float(row["share"]),
            flops=float(row["flops"]),
            bytes=float(row["bytes"]),
        )
        for row in shares
        if row["name"] == name
    )
    target = TargetModel(name=name, operators=uses)
    return KnownModel(target=target, family=rows[0]["family"], latency_seconds=seconds, memory_gib=memory)


def _curve(rows: list[Row], index: dict[Config, int]) -> OperatorCurve:
    seconds = np.full(len(index), np.nan)
    for row in rows:
        seconds[index[_config(row)]] = float(row["seconds"])
    for config, at in index.items():
        if np.isnan(seconds[at]):  # an operator without weights does not change with 8-bit weights
            seconds[at] = seconds[index[Config.of({**config.as_dict(), "precision": "fp32"})]]
    first = rows[0]
    return OperatorCurve(
        operator=first["operator"],
        shape=first["shape"],
        flops=float(first["flops"]),
        bytes=float(first["bytes"]),
        seconds=seconds,
    )
