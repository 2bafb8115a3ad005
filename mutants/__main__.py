"""Judge mutants and print tables: `scripts/mutants [PATTERN ...] [--check] [--show FILE] [-o json] [--record FILE]`."""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from mutants.mutant import LIST, Mutant, Unfit, read_list
from mutants.runner import State, Verdict, judge

ROOT = Path(__file__).parents[1]


def main(arguments: Sequence[str] | None = None, *, root: Path = ROOT, folder: Path = LIST) -> int:
    """0 where every mutant was killed or is explained as equivalent, 1 otherwise."""
    parser = argparse.ArgumentParser(prog="scripts/mutants", description=__doc__)
    parser.add_argument(
        "patterns", nargs="*", metavar="PATTERN", help="names or rooms, such as 'ledger*'; default: all"
    )
    parser.add_argument("--processes", type=int, default=2, metavar="N")
    parser.add_argument("--check", action="store_true", help="only check that every mutant can be applied")
    parser.add_argument("--show", type=Path, metavar="FILE", help="print the tables of a record; nothing is run")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    parser.add_argument("--record", type=Path, metavar="FILE", help="also write the verdicts there, as JSON")
    given = parser.parse_args(arguments)
    if given.processes < 1:
        parser.error("--processes: must be at least 1")
    listed = read_list(folder)
    if given.show:
        print(tables(json.loads(given.show.read_text(encoding="utf-8")), listed))
        return 0
    patterns = given.patterns or ["*"]
    wanted = [m for m in listed if any(fnmatchcase(m.name, p) or fnmatchcase(m.room, p) for p in patterns)]
    if not wanted:
        parser.error(f"no mutant matches {' '.join(patterns)}")
    if given.check:
        problems = unfit(wanted, root)
        print("\n".join(problems) or f"all {len(wanted)} mutants can be applied")
        return int(bool(problems))
    commit = commit_of(root)
    rows = [{**asdict(verdict), "commit": commit} for verdict in _judged(wanted, root, given.processes)]
    if given.record:
        given.record.write_text(json.dumps(_merged(given.record, rows, listed), indent=1) + "\n", encoding="utf-8")
    print(json.dumps(rows, indent=1) if given.output == "json" else tables(rows, listed))
    return int(bool(failures(rows, listed)))


def commit_of(root: Path) -> str:
    """The commit of the tree that is judged, with `-dirty` where tracked files differ from it."""
    words = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    return subprocess.run(words, cwd=root, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


def unfit(mutants: Sequence[Mutant], root: Path = ROOT) -> list[str]:
    """A line for each mutant that cannot be applied to the tree at `root`."""
    problems = []
    for mutant in mutants:
        try:
            mutant.applied(root)
        except Unfit as error:
            problems.append(f"{mutant.room}: {mutant.name}: {error}")
    return problems


def failures(rows: Sequence[dict[str, Any]], listed: Sequence[Mutant]) -> list[dict[str, Any]]:
    """The verdicts that should be otherwise: survivors without an explanation, killed ones with one, and errors."""
    explained = {mutant.name for mutant in listed if mutant.equivalent}
    return [r for r in rows if r["state"] != (State.SURVIVED if r["name"] in explained else State.KILLED)]


def tables(rows: Sequence[dict[str, Any]], listed: Sequence[Mutant]) -> str:
    """Counts by room, and the mutants that were not killed, as Markdown; docs/mutants.md has those of the record."""
    by_name = {mutant.name: mutant for mutant in listed}
    lines = ["| room | mutants | killed | survived | errors |", "|---|---:|---:|---:|---:|"]
    for room in [*dict.fromkeys(row["room"] for row in rows), "all"]:
        of = [row["state"] for row in rows if room in (row["room"], "all")]
        counts = " | ".join(str(of.count(state.value)) for state in State)
        lines.append(f"| {room} | {len(of)} | {counts} |")
    left = [row for row in rows if row["state"] != State.KILLED]
    if left:
        lines += ["", "| mutant | fault | state | why |", "|---|---|---|---|"]
    for row in left:
        mutant = by_name[row["name"]]
        why = row["by"] or mutant.equivalent or "no test notices it"
        lines.append(f"| `{row['name']}` | {mutant.what} | {row['state']} | {why} |")
    return "\n".join(lines)


def _judged(mutants: Sequence[Mutant], root: Path, processes: int) -> list[Verdict]:
    began = time.monotonic()

    folder = Path(tempfile.mkdtemp(prefix="mlcd-mutants-"))
    try:
        found = judge(root, mutants, folder, processes=processes, told=lambda line: print(line, file=sys.stderr))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{len(found)} mutants in {time.monotonic() - began:.0f} s", file=sys.stderr)
    return found


def _merged(record: Path, rows: list[dict[str, Any]], listed: Sequence[Mutant]) -> list[dict[str, Any]]:
    """The record with these rows in place of earlier ones, in the list's order; what is not listed is dropped."""
    kept = json.loads(record.read_text(encoding="utf-8")) if record.exists() else []
    by_name = {row["name"]: row for row in [*kept, *rows]}
    return [by_name[mutant.name] for mutant in listed if mutant.name in by_name]


if __name__ == "__main__":
    sys.exit(main())
