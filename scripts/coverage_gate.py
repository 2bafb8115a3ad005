"""Fails when a room that must be well tested is not, or it is not known: `coverage_gate.py COVERAGE.json`."""

import json
import sqlite3
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from coverage import CoverageData
from coverage.exceptions import CoverageException

ROOMS = (
    "spec/",
    "trial/",
    "functions.py",
    "run/",
    "ledger.py",
    "epoch_ledger.py",
    "store/",
    "relaxation.py",
    "search/",
    "schedulers/",
    "deciders/",
    "findings/",
    "engine/",
)
"""Below src/mlcd/, every room that decides or spends; a folder counts as one."""

LEAST = 0.95
MOST_UNREADABLE = 5
"""Data files that may be unreadable: coverage writes without a journal, and tests kill 2 to 4 processes a run while
they write. More than that is not explained by kills, and what was measured there is missing."""
COUNTS = ("num_statements", "covered_lines", "num_branches", "covered_branches")
"""What the report must count in every file."""


def read(path: Path) -> Mapping[str, Any]:
    """What `coverage json` wrote, with branches. Raises ValueError, which says why, where it is not that."""
    try:
        report: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    files = report.get("files") if isinstance(report, dict) else None
    if not isinstance(files, dict):
        raise ValueError(f"{path} is not a report of `coverage json`")
    for name, file in files.items():
        summary = file.get("summary") if isinstance(file, dict) else None
        missing = [key for key in COUNTS if not isinstance(summary, dict) or not isinstance(summary.get(key), int)]
        if missing and "branches" in missing[0]:
            raise ValueError(f"{path} has no branches of {name}: measure with --branch")
        if missing:
            raise ValueError(f"{path} has no {missing[0]} of {name}: it is not a report of `coverage json`")
    return {"files": files}


def unreadable(folder: Path, report: Path) -> Iterator[tuple[str, bool]]:
    """(what is wrong, whether anything was measured) of each data file of `coverage` that could not be combined.

    `coverage combine` only warns of a file that it cannot read, and leaves it. One of a process that was killed before
    it wrote anything is a sound database without a measurement: nothing is lost with it.
    """
    for file in sorted(folder.glob(".coverage.*")):
        if file.is_dir() or file.resolve() == report.resolve() or file.name.endswith("-journal"):
            continue
        if _measured_nothing(file):
            yield f"{file} has no measurement", False
            continue
        try:
            CoverageData(str(file)).read()
        except (OSError, CoverageException) as error:
            yield f"{file} cannot be read: {error}", True


def _measured_nothing(file: Path) -> bool:
    """Whether it is a sound database (after SQLite has undone what was half-written) that names no measured file."""
    try:
        with closing(sqlite3.connect(file)) as database:
            tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            measured = database.execute("SELECT count(*) FROM file").fetchone()[0] if "file" in tables else 0
            return measured == 0 and database.execute("PRAGMA quick_check").fetchone() == ("ok",)
    except sqlite3.Error:
        return False


def shares(report: Mapping[str, Any], room: str) -> tuple[float, float]:
    """The shares of statements and of branches that ran, 1 where there are none. Raises KeyError for no file."""
    found = [
        file["summary"]
        for name, file in report["files"].items()
        if f"/mlcd/{room}" in "/" + Path(name).as_posix() and (room.endswith("/") or name.endswith(f"/mlcd/{room}"))
    ]
    if not found:
        raise KeyError(room)
    lines, branches = (sum(f[key] for f in found) for key in ("num_statements", "num_branches"))
    ran_lines, ran_branches = (sum(f[key] for f in found) for key in ("covered_lines", "covered_branches"))
    return ran_lines / lines if lines else 1.0, ran_branches / branches if branches else 1.0


def main(arguments: list[str]) -> int:
    """The exit code: 0 when every room has enough, 1 otherwise, also where the report cannot be read."""
    if len(arguments) != 1:
        print("coverage: give the file that `coverage json` wrote")
        return 1
    path = Path(arguments[0])
    try:
        report = read(path)
    except ValueError as error:
        print(f"coverage: {error}")
        return 1
    lost = 0
    for problem, measured in unreadable(path.parent, path):
        print(f"coverage: not counted: {problem}")
        lost += measured
    if lost > MOST_UNREADABLE:
        print(f"coverage: {lost} data files cannot be read; tests that kill processes leave at most {MOST_UNREADABLE}")
    short = []
    for room in ROOMS:
        try:
            lines, branches = shares(report, room)
        except KeyError:
            print(f"coverage: no file of {room} was measured")
            short.append(room)
            continue
        print(f"coverage: {room:<15} statements {lines:6.1%}  branches {branches:6.1%}")
        if min(lines, branches) < LEAST:
            short.append(room)
    if short:
        print(f"coverage: below {LEAST:.0%}: {', '.join(short)}")
    return int(bool(short) or lost > MOST_UNREADABLE)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
