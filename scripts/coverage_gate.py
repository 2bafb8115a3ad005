"""Fails when a room that must be well tested is not, or it is not known: `coverage_gate.py COVERAGE.json`."""

import json
import sys
from collections.abc import Mapping
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


def unreadable(folder: Path, report: Path) -> list[str]:
    """What is wrong with each data file of `coverage` in `folder` that could not be combined into the report.

    `coverage combine` only warns of a file that it cannot read, and leaves it. Tests kill processes, some of them while
    they write such a file: what they ran is not counted, which can only lower the shares that are judged.
    """
    found = []
    for file in sorted(folder.glob(".coverage.*")):
        if file.is_dir() or file.resolve() == report.resolve():
            continue
        problem = "" if file.stat().st_size else "is empty"
        try:
            CoverageData(str(file)).read()
        except (OSError, CoverageException) as error:
            problem = f"cannot be read: {error}"
        if problem:
            found.append(f"{file} {problem}")
    return found


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
    for problem in unreadable(path.parent, path):
        print(f"coverage: not counted: {problem}")
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
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
