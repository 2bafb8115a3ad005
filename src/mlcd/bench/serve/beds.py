"""The test beds of `mlcd bench serve`."""

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from mlcd.bench.serve.case import Bed
from mlcd.bench.serve.csv_tables import INSTANCES, columns_of
from mlcd.errors import BadInput

# (module, function), imported on demand because the tables are large.
_H200 = ("mlcd.known.h200", "h200")
_CPU = ("mlcd.known.cpu", "cpu")
_CPU_NOISE = ("mlcd.known.cpu", "cpu_noise")
_CPU_SLO_MS = (20.0, 50.0, 100.0)
_PAPER = ("mlcd.bench.serve.paper_space", "paper_bed")
_LATENCY_TABLES = ("mlcd.bench.serve.ribbon", "ribbon_beds")
_TOKEN_TABLES = ("mlcd.bench.serve.llmpilot", "llmpilot_bed")


def beds(
    *, sim: bool = False, cpu: bool = False, tables: Path | None = None, load_tests: bool = False
) -> tuple[Bed, ...]:
    """The paper's simulated space, a folder of tables, or mlcd's own measurements: on an H200, or on CPUs.

    Tables have the form of ribbon (latency by batch) or of llmpilot (tokens a second by requests in flight). With
    `load_tests`, trials of the latter go through the requests in flight. Raises BadInput.
    """
    counts_tokens = tables is not None and _counts_tokens(tables)
    if load_tests and not counts_tokens:
        raise BadInput("--load-tests: needs --tables with requests in flight, in the form of llmpilot")
    if sim:
        paper: Callable[[], Bed] = _load(*_PAPER)
        return (paper(),)
    if tables is not None:
        if counts_tokens:
            language_models: Callable[[Path], Bed] = _load(*_TOKEN_TABLES)
            return (replace(language_models(tables), load_tests=load_tests),)
        read: Callable[[Path], tuple[Bed, ...]] = _load(*_LATENCY_TABLES)
        return read(tables)
    known = _load(*(_CPU if cpu else _H200))()
    targets = tuple(model.name for model in known.models)
    if cpu:
        return (Bed(name="cpu", known=known, targets=targets, noise=_load(*_CPU_NOISE)(), slo_ms=_CPU_SLO_MS),)
    return (Bed(name="h200", known=known, targets=targets),)


def _counts_tokens(folder: Path) -> bool:
    """Whether the first model's table has a median latency beside its throughput."""
    tables = sorted(path for path in folder.glob("*.csv") if path.name != INSTANCES)
    return bool(tables) and "p50_ms" in columns_of(tables[0]) and "mean_ms" not in columns_of(tables[0])


def _load(module: str, attribute: str) -> Any:
    return getattr(import_module(module), attribute)
