"""The record of benchmarks/papers/heterbo.py: runs it, keeps the raw result, and writes the tables of docs/paper.md.

    .venv/bin/python benchmarks/record_paper.py [--seeds 100] [--other-seeds 20]
    .venv/bin/python benchmarks/record_paper.py --tables    # only the tables, from the records

Figs. 9 to 11, which the product must reproduce, and 15, whose mean depends on one run in a hundred, get more seeds than
the others.
"""

import argparse
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pages

from mlcd.version import __version__
from papers.heterbo_figures.experiment import Settings
from papers.heterbo_figures.figures import FIGURES, as_json, run_figures
from papers.heterbo_figures.summary import figures, readings, summary

ROOT = Path(__file__).parents[1]
PAGE, SHORT_PAGE = ROOT / "benchmarks" / "notes" / "paper.md", ROOT / "docs" / "paper.md"
RECORD = ROOT / "benchmarks" / "results" / "paper-figures.json"
READINGS = ROOT / "benchmarks" / "results" / "paper-readings.json"
SCRIPT = "benchmarks/papers/heterbo.py"
MORE_SEEDS = ("9", "10", "11", "15")


def record(seeds: int, other_seeds: int, jobs: int) -> dict[str, Any]:
    """Every figure, with the command and the sources that gave it."""
    head = {
        "version": __version__,
        "sources": pages.sources("src", "benchmarks/papers"),
        "date": datetime.now(UTC).date().isoformat(),
    }
    others = [name for name in FIGURES if name not in MORE_SEEDS]
    groups = [(list(MORE_SEEDS), seeds), (others, other_seeds)]
    found = {name: run_figures([name], Settings(seeds=n, jobs=jobs)) for names, n in groups for name in names}
    return {
        **head,
        "cores": os.cpu_count(),
        "commands": [f"{SCRIPT} --figures {','.join(names)} --seeds {n} -o json" for names, n in groups],
        **as_json([entry for name in FIGURES for entry in found[name]]),
    }


def parts() -> dict[Path, dict[str, str]]:
    """The tables of the page, by their names there."""
    result = json.loads(RECORD.read_text(encoding="utf-8"))
    tables = {
        "summary": summary(result["figures"]),
        "readings": readings(json.loads(READINGS.read_text(encoding="utf-8"))),
        "figures": figures(result, SCRIPT),
    }
    texts = {name: "\n".join(lines) for name, lines in tables.items()}
    return {PAGE: texts, SHORT_PAGE: {"summary": texts["summary"]}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=100, help="of Figs. 9, 10, 11 and 15")
    parser.add_argument("--other-seeds", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=-1, help="processes; -1 is one a core")
    parser.add_argument("--tables", action="store_true", help="only write the tables of docs/paper.md")
    arguments = parser.parse_args()
    if not arguments.tables:
        result = record(arguments.seeds, arguments.other_seeds, arguments.jobs)
        RECORD.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    pages.write(parts())


if __name__ == "__main__":
    main()
