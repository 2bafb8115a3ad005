"""Measured latencies of whole models by instance and batch, read as test beds without operators.

A folder in the form of shared/measured/ribbon: `instances.csv` (instance, usd_per_hour), and for each model a CSV with
instance, batch, mean_ms. Models that were measured in the same configurations form one test bed; measurements in
other configurations are not used for them.
"""

from pathlib import Path

import numpy as np

from mlcd.bench.serve.case import Bed
from mlcd.bench.serve.csv_tables import INSTANCES, positive, rows_of, whole
from mlcd.errors import BadInput
from mlcd.known import Known, KnownModel, TargetModel
from mlcd.space import Config

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
    return {row["instance"]: positive(path, row, "usd_per_hour") for row in rows_of(path, ("instance", "usd_per_hour"))}


def _cells(path: Path) -> Cells:
    cells: Cells = {}
    for row in rows_of(path, ("instance", "batch", "mean_ms")):
        config = Config.of({"instance": row["instance"], "batch": whole(path, row, "batch")})
        if config in cells:
            raise BadInput(f"{path}: {config} appears twice")
        cells[config] = positive(path, row, "mean_ms") / 1000
    if not cells:
        raise BadInput(f"{path}: no rows")
    return cells
