"""The packaged snapshot, with a user's own file applied on top."""

import csv
import io
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date
from functools import cache
from pathlib import Path
from typing import NamedTuple, NoReturn

from mlcd.catalog.catalog import Catalog
from mlcd.catalog.instance import Instance
from mlcd.catalog.refresh import refreshed_prices, with_prices
from mlcd.catalog.sanity import implausibility
from mlcd.catalog.sets import resolve_sets
from mlcd.errors import CatalogError, SpecError, StoreError, nearest
from mlcd.units import Usd
from mlcd.untrusted import Malformed, read_named

SNAPSHOT = Path(__file__).parent / "snapshots" / "2026-08.csv"
SNAPSHOT_DATE = date(2026, 8, 1)
MOST_BYTES = 4 * 2**20
"""A user's own catalog is at most this large: the packaged one is a hundredth of it."""
MOST_YAML_BYTES = 2**20
"""The same in YAML, whose parser takes up to 350 times the size of its file."""

REQUIRED = ("cloud", "name", "vcpus", "memory_gib", "network_gbps", "usd_per_hour")
OPTIONAL = ("spot_usd_per_hour", "accelerator", "accelerators", "accelerator_tflops", "accelerator_memory_gib")
FIELDS = (*REQUIRED, *OPTIONAL)
_YAML = (".yaml", ".yml")
_ACCELERATOR = ("accelerators", "accelerator_tflops", "accelerator_memory_gib")


class _Row(NamedTuple):
    line: int
    cells: Mapping[str, str]


def load_catalog(override: Path | None = None, *, refreshed: bool = True) -> Catalog:
    """The packaged catalog at refreshed prices, with the rows of `override` (CSV or YAML; else $MLCD_CATALOG) on top.

    refreshed  whether prices that `mlcd catalog refresh` has fetched count; benchmarks use those of the snapshot

    A row is identified by (cloud, name). If the snapshot has that row, empty cells keep the snapshot's value (`none`
    removes a spot price or an accelerator). Otherwise the row is a new type and needs every field of REQUIRED. Raises
    CatalogError for a file that cannot be read or a row that fails the sanity checks.
    """
    base = _with_refreshed(_packaged()) if refreshed else _packaged()
    if override is None and (path := os.environ.get("MLCD_CATALOG")):
        override = Path(path)
    if override is None:
        return base
    by_key = {(i.cloud, i.name): i for i in base.instances}
    seen: dict[tuple[str, str], int] = {}
    for row in _rows(override):
        instance = _instance(row, str(override), by_key)
        key = instance.cloud, instance.name
        if key in seen:
            _refuse(f"is in the file twice (first on line {seen[key]})", str(override), row.line, "name", key[1])
        seen[key] = row.line
        by_key[key] = instance
    return Catalog(
        date=base.date,
        instances=tuple(by_key.values()),
        notes=(*base.notes, f"{len(seen)} rows are from {override}."),
        sets=base.sets,
    )


def _with_refreshed(base: Catalog) -> Catalog:
    """The catalog at the prices that were fetched last; a file of them that cannot be used is only noted."""
    try:
        found = refreshed_prices()
    except (CatalogError, StoreError) as error:
        return replace(base, notes=(f"{error}: the packaged prices are used.", *base.notes))
    if found is None or any(table.date < base.date for table in found.tables.values()):
        return base  # a newer mlcd has brought a newer snapshot
    day, notes = found.oldest(base.clouds, base.date), (*found.notes, *base.notes)
    return replace(base, date=day, instances=with_prices(base.instances, found), notes=notes)


@cache
def _packaged() -> Catalog:
    known: dict[tuple[str, str], Instance] = {}
    for row in _rows(SNAPSHOT):
        instance = _instance(row, SNAPSHOT.name, {})
        if known.setdefault((instance.cloud, instance.name), instance) is not instance:
            _refuse("is in the file twice", SNAPSHOT.name, row.line, "name", instance.name)
    instances = tuple(known.values())
    lines = SNAPSHOT.with_suffix(".md").read_text(encoding="utf-8").splitlines()
    notes = tuple(line.removeprefix("- ") for line in lines if line.startswith("- "))
    return Catalog(date=SNAPSHOT_DATE, instances=instances, notes=notes, sets=resolve_sets(instances))


def _rows(path: Path) -> Iterator[_Row]:
    is_yaml = path.suffix.lower() in _YAML
    try:
        text = read_named(path, most_bytes=MOST_YAML_BYTES if is_yaml else MOST_BYTES).decode("utf-8-sig")
    except OSError as error:
        raise CatalogError(f"{path}: the catalog cannot be read: {error.strerror or error}") from error
    except Malformed as error:
        raise CatalogError(f"{path}: the catalog {error.problem}") from error
    except UnicodeDecodeError as error:
        raise CatalogError(f"{path}: the catalog is not a text file in UTF-8") from error
    if is_yaml:
        return _yaml_rows(text, str(path))
    if path.suffix.lower() == ".csv":
        return _csv_rows(text, str(path))
    raise CatalogError(f"{path}: a catalog is a .csv, .yaml or .yml file")


def _csv_rows(text: str, file: str) -> Iterator[_Row]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        if not header:
            raise CatalogError(f"{file}: the catalog is empty; allowed: a first line with {', '.join(FIELDS)}")
        for name in header:
            _check_field(name, file, 1)
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            if len(cells) != len(header):
                _refuse(f"has {len(cells)} cells, the first line has {len(header)}", file, reader.line_num, "row")
            yield _Row(reader.line_num, {k: v.strip() for k, v in zip(header, cells, strict=True)})
    except csv.Error as error:
        raise CatalogError(f"{file}:{reader.line_num}: not CSV: {error}") from error


def _yaml_rows(text: str, file: str) -> Iterator[_Row]:
    import yaml  # noqa: PLC0415 - only a user's own YAML catalog needs it

    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        raise CatalogError(str(SpecError(f"not YAML: {error.problem}", file=file, line=line))) from error
    except yaml.YAMLError as error:
        raise CatalogError(f"{file}: not YAML: {error}") from error
    except RecursionError:
        raise CatalogError(f"{file}: not a catalog: its YAML is nested too deeply") from None
    if isinstance(root, yaml.MappingNode):
        root = next((value for key, value in root.value if key.value == "instances"), root)
    if not isinstance(root, yaml.SequenceNode):
        raise CatalogError(f"{file}: a YAML catalog is a list of instances, or has one under `instances`")
    for node in root.value:
        line = node.start_mark.line + 1
        if not isinstance(node, yaml.MappingNode):
            _refuse("an instance is a mapping", file, line, "instances", allowed=", ".join(FIELDS))
        cells: dict[str, str] = {}
        for key, value in node.value:
            at = key.start_mark.line + 1
            if not (isinstance(key, yaml.ScalarNode) and isinstance(value, yaml.ScalarNode)):
                _refuse("must be a single value", file, at, str(key.value)[:80])
            _check_field(key.value, file, at)
            cells[key.value] = "none" if value.tag.endswith(":null") else value.value.strip()
        yield _Row(line, cells)


def _check_field(name: str, file: str, line: int) -> None:
    if name not in FIELDS:
        _refuse("unknown field", file, line, name, allowed=", ".join(FIELDS), near=nearest(name, FIELDS))


@dataclass(frozen=True, slots=True)
class _Cells:
    """The cells of one row that are not empty, with the values of the row they replace (if any)."""

    file: str
    line: int
    given: Mapping[str, str]
    old: Instance | None

    def number(self, field: str) -> float:
        if field in self.given:
            return _positive(self.given[field], self.file, self.line, field)
        return float(getattr(self.old, field)) if self.old is not None else 0.0

    def spot(self) -> Usd | None:
        match self.given.get("spot_usd_per_hour", "").lower():
            case "none":
                return None
            case "":
                return self.old.spot_usd_per_hour if self.old is not None else None
            case _:
                return Usd.of(self.number("spot_usd_per_hour"))

    def usd(self) -> Usd:
        kept = self.old is not None and "usd_per_hour" not in self.given
        return self.old.usd_per_hour if self.old is not None and kept else Usd.of(self.number("usd_per_hour"))

    def accelerator(self) -> tuple[str | None, int]:
        """The accelerator and its number per node."""
        name = self.given.get("accelerator", self.old.accelerator if self.old is not None else None)
        if name is None or name.lower() == "none":
            for field in _ACCELERATOR:
                if self.given.get(field, "0") not in ("0", "0.0", "none"):
                    _refuse("is given without an accelerator", self.file, self.line, field, self.given[field])
            return None, 0
        count = self.number("accelerators")
        if count < 1 or count != int(count):
            got = self.given.get("accelerators")
            _refuse("must be a whole number above 0", self.file, self.line, "accelerators", got)
        return name, int(count)


def _instance(row: _Row, file: str, known: Mapping[tuple[str, str], Instance]) -> Instance:
    line, given = row.line, {field: cell for field, cell in row.cells.items() if cell}
    for field in ("cloud", "name"):
        if field not in given:
            _refuse("is missing", file, line, field)
    cloud, name = given["cloud"], given["name"]
    old = known.get((cloud, name))
    if old is None and (missing := [field for field in REQUIRED if field not in given]):
        near = nearest(name, [other for of, other in known if of == cloud])
        _refuse(f"a new type needs {', '.join(missing)}", file, line, missing[0], allowed="a number above 0", near=near)
    cells = _Cells(file, line, given, old)
    accelerator, count = cells.accelerator()
    instance = Instance(
        cloud=cloud,
        name=name,
        vcpus=cells.number("vcpus"),
        memory_gib=cells.number("memory_gib"),
        network_gbps=cells.number("network_gbps"),
        usd_per_hour=cells.usd(),
        spot_usd_per_hour=cells.spot(),
        accelerator=accelerator,
        accelerators=count,
        accelerator_tflops=cells.number("accelerator_tflops") if accelerator else 0.0,
        accelerator_memory_gib=cells.number("accelerator_memory_gib") if accelerator else 0.0,
    )
    if (found := implausibility(instance)) is not None:
        _refuse(f"{name}: {found.problem}", file, line, found.field, found.value, allowed=found.allowed)
    return instance


def _positive(text: str, file: str, line: int, field: str) -> float:
    try:
        value = float(text.removeprefix("$"))
    except ValueError:
        value = float("nan")
    if not 0 < value < 1e9:
        _refuse("must be a number above 0", file, line, field, text, allowed="a number above 0")
    return value


def _refuse(
    problem: str, file: str, line: int, field: str, value: object = None, *, allowed: str = "", near: str = ""
) -> NoReturn:
    error = SpecError(problem, file=file, line=line, field=field, value=value, allowed=allowed, nearest=near)
    raise CatalogError(str(error))
