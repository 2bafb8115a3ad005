"""Run attacks and print a table: `scripts/attack [NAME ...] [--share 0.01] [--seed 1] [-o json]`."""

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

import attacks
from attacks.attack import Attack, Tally

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
    given = parser.parse_args()
    if unknown := set(given.names) - set(known):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    rows = []
    for attack in (known[name] for name in given.names or known):
        count = max(round(attack.count * given.share), 1)
        print(f"{attack.name}: {count:,} x {attack.what}", file=sys.stderr)
        folder = Path(tempfile.mkdtemp(prefix=f"mlcd-attack-{attack.name}-"))
        began = time.monotonic()
        tally = attack.run(count, given.seed, folder)
        rows.append((attack, tally, time.monotonic() - began))
        shutil.rmtree(folder, ignore_errors=True)
        for finding in tally.findings[:SHOWN]:
            print(f"  {finding.kind}: case {finding.case}: {finding.what}", file=sys.stderr)
    print(_json(rows, given.seed) if given.output == "json" else _table(rows))
    return int(any(tally.findings for _, tally, _ in rows))


def _table(rows: list[tuple[Attack, Tally, float]]) -> str:
    lines = ["| attack | cases | found | how they ended | memory | time |", "|---|---:|---:|---|---:|---:|"]
    for attack, tally, seconds in rows:
        ends = ", ".join(f"{count:,} {name}" for name, count in sorted(tally.outcomes.items(), key=lambda x: -x[1]))
        peak = f"{tally.peak_mib:,.0f} MiB" if tally.peak_mib else "-"
        found = len(tally.findings)
        lines.append(f"| {attack.what} | {tally.tried:,} | {found} | {ends} | {peak} | {seconds:,.0f} s |")
    return "\n".join(lines)


def _json(rows: list[tuple[Attack, Tally, float]], seed: int) -> str:
    found = [
        {"name": attack.name, "what": attack.what, "seed": seed, "seconds": round(seconds, 1), **asdict(tally)}
        for attack, tally, seconds in rows
    ]
    return json.dumps(found, indent=2)


if __name__ == "__main__":
    sys.exit(main())
