"""Measured latencies of whole models by instance and batch, read as test beds without operators.

A folder in the form of shared/measured/ribbon: `instances.csv` (instance, usd_per_hour), and for each model a CSV with
instance, batch, mean_ms. Models that were measured in the same configurations form one test bed; measurements in
other configurations are not used for them.
"""

import csv
import math
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from mlcd.bench.serve.case import Bed
from mlcd.errors import BadInput
from mlcd.known import Known, KnownModel, TargetModel
from mlcd.space import Config

INSTANCES = "instances.csv"
Cells = dict[Config, float]


def ribbon_beds(folder: Path) -> tuple[Bed, ...]:
    """One test bed for each group of models with the same configurations, the largest first; single models are ignored.

    Raises BadInput where the folder is not of this form, or no two models can be compared.
    """
    prices = _prices(folder / INSTANCES)
    tables = {path.stem: _cells(path) for path in sorted(folder.glob("*.csv")) if path.name != INSTANCES}
    groups: dict[frozenset[Config], list[str]] = {}
    for name, cells in tables.items():
        groups.setdefault(frozenset(cells), []).append(name)
    together = sorted((names for names in groups.values() if len(names) > 1), key=lambda names: (-len(names), names))
    if not together:
        raise BadInput(f"{folder}: no two models were measured in the same configurations")
    return tuple(_bed(folder, names, tables, prices) for names in together)


def _bed(folder: Path, names: list[str], tables: dict[str, Cells], prices: dict[str, float]) -> Bed:
    configs = tuple(tables[names[0]])
    unpriced = sorted({config.instance for config in configs} - set(prices))
    if unpriced:
        raise BadInput(f"{folder / INSTANCES}: no price for {', '.join(unpriced)}")
    models = tuple(
        KnownModel(
            target=TargetModel(name=name, operators=()),
            family=name,
            latency_seconds=np.array([tables[name][config] for config in configs]),
            memory_gib=np.full(len(configs), np.nan),
        )
        for name in names
    )
    known = Known(
        configs=configs,
        usd_per_hour=np.array([prices[config.instance] for config in configs]),
        models=models,
        curves=(),
        source=f"measured: {folder.name}, mean latency of {', '.join(names)}; no operators, so whole models only",
        simulated=False,
    )
    return Bed(name="+".join(names), known=known, targets=tuple(names))


def _prices(path: Path) -> dict[str, float]:
    return {row["instance"]: _positive(path, row, "usd_per_hour") for row in _rows(path, ("instance", "usd_per_hour"))}


def _cells(path: Path) -> Cells:
    cells: Cells = {}
    for row in _rows(path, ("instance", "batch", "mean_ms")):
        batch = _positive(path, row, "batch")
        if batch != int(batch):
            raise BadInput(f"{path}: batch: not a whole number (got {row['batch']!r})")
        config = Config.of({"instance": row["instance"], "batch": int(batch)})
        if config in cells:
            raise BadInput(f"{path}: {config} appears twice")
        cells[config] = _positive(path, row, "mean_ms") / 1000
    if not cells:
        raise BadInput(f"{path}: no rows")
    return cells


def _rows(path: Path, columns: Iterable[str]) -> list[dict[str, str]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            missing = [column for column in columns if column not in (reader.fieldnames or ())]
            if missing:
                raise BadInput(f"{path}: no column {', '.join(missing)}")
            return list(reader)
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: not a CSV file") from error


def _positive(path: Path, row: dict[str, str], column: str) -> float:
    try:
        value = float(row[column])
    except (TypeError, ValueError) as error:
        raise BadInput(f"{path}: {column}: not a number (got {row[column]!r})") from error
    if not (value > 0 and math.isfinite(value)):
        raise BadInput(f"{path}: {column}: must be more than 0 (got {row[column]!r})")
    return value
