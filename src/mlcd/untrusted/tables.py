"""Tables of numbers that a user wrote: CSV files with named columns, within limits."""

import csv
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlcd.untrusted.paths import read_named
from mlcd.untrusted.text import on_one_line
from mlcd.untrusted.values import Malformed

MOST_TABLE_BYTES = 64 * 1024 * 1024
MOST_COLUMNS = 1_000
MOST_LINE_CHARACTERS = 256 * 1024
"""A line is taken apart as a whole: a long one of commas alone would take hundreds of bytes for each."""
_SHOWN_CHARACTERS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of numbers from `least` to `most`.

    is_whole     whether fractions are refused
    is_rising    whether no number may be less than the one before
    is_optional  whether the table may lack it
    """

    name: str
    least: float
    most: float
    is_whole: bool = False
    is_rising: bool = False
    is_optional: bool = False


def read_table(path: Path, columns: Sequence[Column], *, least_rows: int, most_rows: int) -> dict[str, list[float]]:
    """The numbers of the columns, by name; the first line names the columns, and others than these are ignored.

    Raises Malformed, which names the line and the column; FileNotFoundError, OSError.
    """
    source = str(path)
    data = read_named(path, most_bytes=MOST_TABLE_BYTES)
    reader = csv.reader(lines_of(data, source), skipinitialspace=True)
    try:
        heads = [head.strip() for head in next(reader, [])]
        found = _places(source, heads, columns)
        table: dict[str, list[float]] = {column.name: [] for column, _ in found}
        rows = 0
        for row in reader:
            if not any(row):
                continue
            rows += 1
            if rows > most_rows:
                raise Malformed(source, f"has more than {most_rows:,} rows")
            where = f"line {reader.line_num}"
            if len(row) != len(heads):
                raise Malformed(source, f"{where} has {len(row)} values for {len(heads)} columns")
            for column, at in found:
                _take(table[column.name], row[at], column, f"{source}", where)
    except csv.Error as error:
        raise Malformed(source, f"line {reader.line_num} is not CSV: {error}") from error
    if rows < least_rows:
        raise Malformed(source, f"has {rows:,} rows after its first line, and needs {least_rows:,} or more")
    return table


def lines_of(data: bytes, source: str) -> Iterator[str]:
    """The lines of a text, with their ends, one at a time: millions of short ones would take a hundred times its size.

    Raises Malformed for a line that is too long and for what is not UTF-8.
    """
    text = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8-sig", newline="")
    number = 0
    try:
        while line := text.readline(MOST_LINE_CHARACTERS + 1):
            number += 1
            if len(line) > MOST_LINE_CHARACTERS:
                raise Malformed(source, f"line {number} has more than {MOST_LINE_CHARACTERS:,} characters")
            yield line
    except UnicodeError as error:
        raise Malformed(source, "is not UTF-8 text") from error


def _places(source: str, heads: Sequence[str], columns: Sequence[Column]) -> list[tuple[Column, int]]:
    """The columns that the table has, and where."""
    if len(heads) > MOST_COLUMNS:
        raise Malformed(source, f"has more than {MOST_COLUMNS:,} columns")
    found = []
    for column in columns:
        if heads.count(column.name) > 1:
            raise Malformed(source, f"has the column {column.name} twice")
        if column.name in heads:
            found.append((column, heads.index(column.name)))
        elif not column.is_optional:
            has = ", ".join(on_one_line(head, most_characters=_SHOWN_CHARACTERS) for head in heads[:8]) or "nothing"
            raise Malformed(source, f"has no column {column.name}: its first line has {has}")
    if not found:
        raise Malformed(source, f"has none of the columns {', '.join(column.name for column in columns)}")
    return found


def _take(numbers: list[float], text: str, column: Column, source: str, where: str) -> None:
    shown = on_one_line(text, most_characters=_SHOWN_CHARACTERS)
    try:
        number = float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        number = math.nan
    if math.isnan(number):
        raise Malformed(source, f"{where}: {column.name} is {shown!r}, which is no number")
    if not column.least <= number <= column.most:
        allowed = f"{column.least:,.15g} to {column.most:,.15g}"
        raise Malformed(source, f"{where}: {column.name} is {shown}, and must be {allowed}")
    if column.is_whole and number != int(number):
        raise Malformed(source, f"{where}: {column.name} is {shown}, and must be a whole number")
    if column.is_rising and numbers and number < numbers[-1]:
        before = f"after {numbers[-1]:g} in the row before"
        raise Malformed(source, f"{where}: {column.name} is {shown} {before}: sort the rows by it")
    numbers.append(number)
