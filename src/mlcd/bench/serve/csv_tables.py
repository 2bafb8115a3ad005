"""CSV files of measured tables, read into checked numbers."""

import csv
import math
from collections.abc import Iterable
from pathlib import Path

from mlcd.errors import BadInput

INSTANCES = "instances.csv"


def columns_of(path: Path) -> tuple[str, ...]:
    """The names of a file's columns. Raises BadInput."""
    return _read(path)[0]


def rows_of(path: Path, columns: Iterable[str]) -> list[dict[str, str]]:
    """All rows. Raises BadInput where the file cannot be read or lacks one of the columns."""
    names, rows = _read(path)
    missing = [column for column in columns if column not in names]
    if missing:
        raise BadInput(f"{path}: no column {', '.join(missing)}")
    return rows


def positive(path: Path, row: dict[str, str], column: str) -> float:
    """A finite number more than 0. Raises BadInput."""
    try:
        value = float(row[column])
    except (TypeError, ValueError) as error:
        raise BadInput(f"{path}: {column}: not a number (got {row[column]!r})") from error
    if not (value > 0 and math.isfinite(value)):
        raise BadInput(f"{path}: {column}: must be more than 0 (got {row[column]!r})")
    return value


def whole(path: Path, row: dict[str, str], column: str) -> int:
    """A whole number more than 0. Raises BadInput."""
    value = positive(path, row, column)
    if value != int(value):
        raise BadInput(f"{path}: {column}: not a whole number (got {row[column]!r})")
    return int(value)


def _read(path: Path) -> tuple[tuple[str, ...], list[dict[str, str]]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            return tuple(reader.fieldnames or ()), list(reader)
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: not a CSV file") from error
