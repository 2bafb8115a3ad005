"""The results of HeterBO's paper (Yi et al., IPDPS 2020) compared with the simulator's.

    .venv/bin/python benchmarks/papers/heterbo.py [--figures 1b,9,10] [--seeds 5] [--jobs -1] [-o json]

The paper measured on AWS; every figure of ours is simulated. docs/paper.md discusses them.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from papers.heterbo_figures.experiment import Entry, Settings
from papers.heterbo_figures.figures import as_json, figure_names, run_figures
from papers.script import count, parser, print_json, run, table


def main(words: Sequence[str]) -> None:
    options = parser(__doc__)
    options.add_argument("--figures", default="all", metavar="A,B", help="such as 1b,9,10; all of them without")
    options.add_argument("--seeds", type=count, default=5, help="runs of each search; 200 for the record")
    options.add_argument("--jobs", type=int, default=-1, help="processes; -1 is one a core, other than 1 needs joblib")
    asked = options.parse_args(words)
    entries = run_figures(figure_names(asked.figures), Settings(seeds=asked.seeds, jobs=asked.jobs))
    if asked.output == "json":
        print_json(as_json(entries))
        return
    print("SIMULATED: the paper's figures were measured on AWS, ours come from mlcd's simulator.")
    for figure in dict.fromkeys(entry.figure for entry in entries):
        lines = [entry for entry in entries if entry.figure == figure]
        print(f"\nFig. {figure}: {lines[0].command}")
        print(entries_table(lines))


def entries_table(entries: Sequence[Entry]) -> str:
    def cell(value: float | str | None) -> str:
        return "-" if value is None else value if isinstance(value, str) else f"{value:.4g}"

    rows = [
        ["what", "paper", "ours (simulated)", "unit"],
        *([e.what, cell(e.paper), cell(e.ours), e.unit] for e in entries),
    ]
    head, *lines = table(rows, "<>><").splitlines()
    noted = [f"{line}\n    {e.note}" if e.note else line for line, e in zip(lines, entries, strict=True)]
    return "\n".join([head, *noted])


if __name__ == "__main__":
    run(main)
