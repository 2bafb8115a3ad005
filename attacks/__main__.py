"""Run attacks and print a table: `scripts/attack [NAME ...] [--share 0.01] [--seed 1] [-o json] [--record FILE]`."""

import argparse
import importlib
import json
import pkgutil
import shutil
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import attacks
from attacks.attack import Attack

SHOWN = 20
"""Findings of one attack that are printed; the JSON has all."""


def all_attacks() -> dict[str, Attack]:
    """Every `ATTACKS` of the modules of this folder, in the modules' order."""
    found: dict[str, Attack] = {}
    for module in pkgutil.iter_modules(attacks.__path__):
        if module.name != "__main__":
            for attack in getattr(importlib.import_module(f"attacks.{module.name}"), "ATTACKS", ()):
                found[attack.name] = attack
    return found


def main() -> int:
    """0 where nothing was found, 1 otherwise."""
    known = all_attacks()
    parser = argparse.ArgumentParser(prog="scripts/attack", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(known)}; default: all")
    parser.add_argument("--share", type=float, default=1.0, help="of the full number of cases (default 1)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    parser.add_argument("--record", type=Path, metavar="FILE", help="also write the result there, as JSON")
    given = parser.parse_args()
    if unknown := set(given.names) - set(known):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    rows: list[dict[str, Any]] = []
    for attack in (known[name] for name in given.names or known):
        rows.append(_carried_out(attack, max(round(attack.count * given.share), 1), given.seed))
        if given.record:
            kept = json.loads(given.record.read_text()) if given.record.exists() else []
            kept = [row for row in kept if row["name"] != attack.name]
            given.record.write_text(json.dumps([*kept, rows[-1]], indent=1) + "\n")
    print(json.dumps(rows, indent=1) if given.output == "json" else table(rows))
    return int(any(row["findings"] for row in rows))


def _carried_out(attack: Attack, count: int, seed: int) -> dict[str, Any]:
    """The row of an attack, in a folder of its own; what it finds is told at once."""
    print(f"{attack.name}: {count:,} x {attack.what}", file=sys.stderr)
    folder = Path(tempfile.mkdtemp(prefix=f"mlcd-attack-{attack.name}-"))
    began = time.monotonic()
    try:
        tally = attack.run(count, seed, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for finding in tally.findings[:SHOWN]:
        print(f"  {finding.kind}: case {finding.case}: {finding.what}", file=sys.stderr)
    seconds = round(time.monotonic() - began, 1)
    return {"name": attack.name, "what": attack.what, "seed": seed, "seconds": seconds, **asdict(tally)}


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as a Markdown table; docs/reliability.md has that of attacks/result.json."""
    lines = ["| attack | cases | found | how they ended | memory | time |", "|---|---:|---:|---|---:|---:|"]
    for row in sorted(rows, key=lambda row: str(row["name"])):
        ends = ", ".join(f"{count:,} {name}" for name, count in sorted(row["outcomes"].items(), key=lambda x: -x[1]))
        peak = f"{row['peak_mib']:,.0f} MiB" if row["peak_mib"] else "-"
        found, seconds = len(row["findings"]), row["seconds"]
        lines.append(
            f"| `{row['name']}`: {row['what']} | {row['tried']:,} | {found} | {ends} | {peak} | {seconds:,.0f} s |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
