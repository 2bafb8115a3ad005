"""Measured language models by instance type and requests in flight, read as a test bed.

A folder in the form of shared/measured/llmpilot: `instances.csv` (instance, gpus, usd_per_hour), and for each model a
CSV with instance, batch (requests in flight), throughput (output tokens a second), p50_ms (end-to-end latency) and
status. Models were measured where they ran; each is searched for in its own configurations.
"""

import json
import math
from functools import cache
from importlib.resources import files
from pathlib import Path

import numpy as np

from mlcd.bench.serve.case import Bed
from mlcd.bench.serve.csv_tables import INSTANCES, positive, rows_of, whole
from mlcd.errors import BadInput
from mlcd.known import Known, KnownModel, TargetModel
from mlcd.known.gpus import GPUS, Machine, gpu_of
from mlcd.known.language_models import LanguageModel, TokenLengths, described
from mlcd.space import Config

LENGTHS = TokenLengths(input_tokens=500.0, output_tokens=15.0)
"""Nominal: the tables have no lengths, and say "production traces". Where they are wrong, the factors that are learnt
from other models absorb it; a request of the bed is this many tokens."""
TRIAL_SECONDS = 300.0
"""A server of tens of GB starts in a minute or two, and is then loaded."""
NOISE = 0.03
"""Relative deviation of two load tests. The tables have one each; 3% is what servers' own guides report."""
SLO_MS = (500.0, 1000.0, 2000.0, 30_000.0)
"""Limits on the median latency; the last one is kept by every row of the published tables."""
FACTS = "llmpilot_models.json"

Cell = tuple[float, float]
"""Requests a second, median latency in seconds."""


def llmpilot_bed(folder: Path) -> Bed:
    """One test bed of all models of the folder. Raises BadInput where it is not of this form."""
    path = folder / INSTANCES
    machines, prices = {}, {}
    for row in rows_of(path, ("instance", "gpus", "usd_per_hour")):
        machines[row["instance"]] = _machine(path, row)
        prices[row["instance"]] = positive(path, row, "usd_per_hour")
    tables = {each.stem: _cells(each) for each in sorted(folder.glob("*.csv")) if each.name != INSTANCES}
    if len(tables) < 2:
        raise BadInput(f"{folder}: needs the tables of at least two models")
    configs = tuple(dict.fromkeys(config for cells in tables.values() for config in cells))
    unpriced = sorted({config.instance for config in configs} - set(prices))
    if unpriced:
        raise BadInput(f"{path}: no price for {', '.join(unpriced)}")
    known = Known(
        configs=configs,
        usd_per_hour=np.array([prices[config.instance] for config in configs]),
        models=tuple(_model(name, cells, configs) for name, cells in tables.items()),
        curves=(),
        source=f"measured: {folder.name}, output tokens a second of {len(tables)} language models, in requests of"
        f" {LENGTHS.output_tokens:g} tokens",
        simulated=False,
        machines=machines,
        lengths=LENGTHS,
    )
    return Bed(
        name=folder.name,
        known=known,
        targets=tuple(tables),
        trial_seconds=TRIAL_SECONDS,
        noise=NOISE,
        slo_ms=SLO_MS,
    )


@cache
def described_models() -> dict[str, LanguageModel]:
    """The published sizes of the models, from their config.json."""
    data = json.loads((files("mlcd.bench.serve") / FACTS).read_text(encoding="utf-8"))
    return {name: described(config, name) for name, config in data["models"].items()}


def _model(name: str, cells: dict[Config, Cell], configs: tuple[Config, ...]) -> KnownModel:
    nothing = (math.nan, math.nan)
    rates, latencies = np.array([cells.get(config, nothing) for config in configs]).T
    users = np.array([float(config["batch"]) for config in configs])
    return KnownModel(
        target=TargetModel(name=name, operators=(), language=described_models().get(name)),
        family=name,
        latency_seconds=users / rates,
        memory_gib=np.full(len(configs), np.nan),
        p50_seconds=latencies,
    )


def _machine(path: Path, row: dict[str, str]) -> Machine:
    """`4xa100` is four A100."""
    name = row["instance"].partition("x")[2]
    gpu = gpu_of(name)
    if gpu is None:
        raise BadInput(f"{path}: {row['instance']}: unknown GPU {name!r}; allowed: {', '.join(GPUS)}")
    return Machine(gpu=gpu, count=whole(path, row, "gpus"))


def _cells(path: Path) -> dict[Config, Cell]:
    cells: dict[Config, Cell] = {}
    for row in rows_of(path, ("instance", "batch", "throughput", "p50_ms", "status")):
        config = Config.of({"instance": row["instance"], "batch": whole(path, row, "batch")})
        if config in cells:
            raise BadInput(f"{path}: {config} appears twice")
        if row["status"] == "ok":
            tokens = positive(path, row, "throughput")
            cells[config] = (tokens / LENGTHS.output_tokens, positive(path, row, "p50_ms") / 1000)
        else:
            cells[config] = (0.0, math.inf)
    if not cells:
        raise BadInput(f"{path}: no rows")
    return cells
