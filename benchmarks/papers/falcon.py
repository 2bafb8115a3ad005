"""The seven evaluations of Falcon's paper, on a simulated copy of its space of 1,440 configurations.

    .venv/bin/python benchmarks/papers/falcon.py [--figures 1,4] [--seeds 3] [--pictures DIR] [-o json]

The space is simulated from measured operator latencies; $MLCD_OPERATORS is their folder. docs/falcon-paper.md discusses
the results.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mlcd.bench.serve.beds import beds
from mlcd.errors import BadInput
from papers.falcon_evaluations import EVALUATED_MS, STRATEGIES, Cell, Evaluation, Setting, as_json, evaluate
from papers.script import count, parser, print_json, run, table


def main(words: Sequence[str]) -> None:
    options = parser(__doc__)
    options.add_argument("--figures", default="all", metavar="N,N", help="evaluations, 1 to 7; all of them without")
    options.add_argument("--h200", action="store_true", help="search in mlcd's tables of an H200 instead")
    options.add_argument("--strategies", default=";".join(STRATEGIES), metavar="A;B", help="Falcon's own first")
    options.add_argument("--slo", type=float, default=EVALUATED_MS, metavar="MS", help="the latency limit")
    options.add_argument("--seeds", type=count, default=3, help="searches for each model")
    options.add_argument("--first-seed", type=int, default=0)
    options.add_argument("--noise", type=float, default=0.01, help="relative deviation of a trial's latency")
    options.add_argument("--jobs", type=int, default=-1, help="processes; -1 is one a core, other than 1 needs joblib")
    options.add_argument("--pictures", type=Path, metavar="DIR", help="where the pictures go")
    asked = options.parse_args(words)
    setting = Setting(
        bed=beds(sim=not asked.h200)[0],
        slo_ms=asked.slo,
        strategies=tuple(text.strip() for text in asked.strategies.split(";") if text.strip()),
        seeds=asked.seeds,
        first_seed=asked.first_seed,
        noise=asked.noise,
        jobs=asked.jobs,
    )
    found = evaluate(setting, numbers(asked.figures))
    if asked.pictures is not None:
        draw(found, asked.pictures)
    if asked.output == "json":
        print_json(as_json(setting, found))
        return
    for one in found:
        print(f"Evaluation {one.number}. {one.title}")
        print(f"  The paper: {one.paper}\n")
        rows = [list(one.columns), *([shown(cell) for cell in row] for row in one.rows)]
        print(table(rows, "<" + ">" * (len(one.columns) - 1)))
        print(f"\n  {one.note}\n" if one.note else "")
    made = "simulated" if setting.bed.known.simulated else "replayed from measured tables"
    print(f"{setting.bed.name}: {setting.bed.known.source}; {made}; limit {setting.slo_ms:g} ms.")


def numbers(text: str) -> tuple[int, ...]:
    if text == "all":
        return (1, 2, 3, 4, 5, 6, 7)
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise BadInput(f"--figures: all, or numbers with commas between, such as 1,4 (got {text!r})") from error


def draw(found: Sequence[Evaluation], folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for one in found:
            if one.picture:
                (folder / f"falcon-evaluation-{one.number}.svg").write_text(one.picture + "\n", encoding="utf-8")
    except OSError as error:
        raise BadInput(f"--pictures: {folder}: {error.strerror}") from error


def shown(cell: Cell) -> str:
    return f"{cell:.3f}" if isinstance(cell, float) else str(cell)


if __name__ == "__main__":
    run(main)
