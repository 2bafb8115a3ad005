"""The record of benchmarks/papers/heterbo.py: runs it, keeps the raw result, and writes the table of docs/paper.md.

    .venv/bin/python benchmarks/record_paper.py [--seeds 200] [--other-seeds 20]
    .venv/bin/python benchmarks/record_paper.py --table benchmarks/results/paper-2026-01-31.json   # the table alone

Figs. 9 to 11, which the product must reproduce, and 15, whose mean depends on one run in a hundred, get more seeds than
the others. The result is named after the day and records the version of the sources.
"""

import argparse
import json
import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mlcd.version import __version__
from papers.heterbo_figures.experiment import Settings
from papers.heterbo_figures.figures import FIGURES, as_json, run_figures

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "paper.md"
BEGIN, END = "<!-- begin: benchmarks/record_paper.py -->", "<!-- end: benchmarks/record_paper.py -->"
SCRIPT = "benchmarks/papers/heterbo.py"
MORE_SEEDS = ("9", "10", "11", "15")


def sources() -> str:
    """The commit, and whether the product's sources differ from it."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    changed = git("status", "--porcelain", "--", "src", "benchmarks/papers")
    return f"{git('rev-parse', '--short', 'HEAD') or 'unknown'}{' with changes' if changed else ''}"


def record(seeds: int, other_seeds: int, jobs: int) -> dict[str, Any]:
    others = [name for name in FIGURES if name not in MORE_SEEDS]
    groups = [(list(MORE_SEEDS), seeds), (others, other_seeds)]
    found = {name: run_figures([name], Settings(seeds=n, jobs=jobs)) for names, n in groups for name in names}
    return {
        "version": __version__,
        "sources": sources(),
        "date": datetime.now(UTC).date().isoformat(),
        "cores": os.cpu_count(),
        "commands": [f"{SCRIPT} --figures {','.join(names)} --seeds {n} -o json" for names, n in groups],
        **as_json([entry for name in FIGURES for entry in found[name]]),
    }


def cell(value: object) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else f"{value:.4g}"


def table(result: dict[str, Any]) -> str:
    lines = [
        f"Version {result['version']}, sources {result['sources']}, {result['date']}. All of ours is simulated.",
        "",
    ]
    for figure in dict.fromkeys(entry["figure"] for entry in result["figures"]):
        entries = [entry for entry in result["figures"] if entry["figure"] == figure]
        command = f"{SCRIPT} --figures {figure} --seeds {entries[0]['seeds']}"
        lines += [f"### Fig. {figure}", "", f"`{command}`", ""]
        lines += ["| what | paper | ours (simulated) | unit | note |", "|---|---|---|---|---|"]
        lines += [
            f"| {e['what']} | {cell(e['paper'])} | {cell(e['ours'])} | {e['unit']} | {e['note']} |" for e in entries
        ]
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=200, help="of Figs. 9, 10, 11 and 15")
    parser.add_argument("--other-seeds", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=-1, help="processes; -1 is one a core")
    parser.add_argument("--table", type=Path, help="only write docs/paper.md's table, from this result")
    arguments = parser.parse_args()
    if arguments.table is None:
        result = record(arguments.seeds, arguments.other_seeds, arguments.jobs)
        file = ROOT / "benchmarks" / "results" / f"paper-{result['date']}.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(file.relative_to(ROOT))
    else:
        result = json.loads(arguments.table.read_text(encoding="utf-8"))
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n\n{table(result)}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
