"""The test beds of `mlcd bench serve`."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from mlcd.bench.serve.case import Bed

# (module, function), imported on demand because the tables are large.
_MEASURED = ("mlcd.known.h200", "h200")
_PAPER = ("mlcd.bench.serve.paper_space", "paper_bed")
_TABLES = ("mlcd.bench.serve.ribbon", "ribbon_beds")


def beds(*, sim: bool = False, tables: Path | None = None) -> tuple[Bed, ...]:
    """The paper's simulated space, tables of ribbon's form, or by default mlcd's own measurements on an H200."""
    if sim:
        paper: Callable[[], Bed] = _load(*_PAPER)
        return (paper(),)
    if tables is not None:
        read: Callable[[Path], tuple[Bed, ...]] = _load(*_TABLES)
        return read(tables)
    known = _load(*_MEASURED)()
    return (Bed(name="h200", known=known, targets=tuple(model.name for model in known.models)),)


def _load(module: str, attribute: str) -> Any:
    return getattr(import_module(module), attribute)
