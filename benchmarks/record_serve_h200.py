"""The record of `mlcd bench serve` on the H200's models, and the tables of docs/falcon.md.

    .venv/bin/python benchmarks/record_serve_h200.py run [--seeds 20] [--jobs -1]
    .venv/bin/python benchmarks/record_serve_h200.py merge FILE.json ...    # written by `mlcd bench serve -o json`
    .venv/bin/python benchmarks/record_serve_h200.py ablation [--seeds 5]   # on targets that may be tuned on
    .venv/bin/python benchmarks/record_serve_h200.py page                   # its tables, from the records

Replayed from measured tables; nothing is run on a GPU. The same tables, seeds and code give the same record.
"""

import argparse
import json
import re
import subprocess
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from mlcd.bench.case import is_unseen
from mlcd.bench.serve.beds import beds
from mlcd.bench.serve.score import ServeComparison, ServeRow, compare, summarise
from mlcd.version import __version__

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "benchmarks" / "results" / "serve-h200.json"
ABLATION = ROOT / "benchmarks" / "results" / "serve-h200-ablation.json"
PAGE = ROOT / "docs" / "falcon.md"
STRATEGIES = (
    "falcon",
    "falcon-transfer",
    "falcon-transfer:requests=1e12",
    "morphling",
    "morphling:learns=latency",
    "vesta",
    "vesta:learns=latency",
    "ernest",
    "heterbo",
    "source-mean",
    "random",
)
ABLATED = (
    "falcon",
    "falcon:explore=0",
    "falcon:explore=1",
    "falcon:cutoff=1",
    "falcon:cutoff=0.8",
    "falcon:threshold=0.5",
    "falcon:threshold=0.99",
    "falcon-transfer",
    "falcon-transfer:requests=1e12",
)


def code() -> str:
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    changed = git(
        "status", "--porcelain", "--", "src/mlcd/models", "src/mlcd/bench", "src/mlcd/search", "src/mlcd/known"
    )
    return f"{git('rev-parse', '--short', 'HEAD') or 'unknown'}{' with changes' if changed else ''}"


def by_target(rows: list[ServeRow]) -> list[dict[str, Any]]:
    """Means over seeds, one line per strategy, target and limit."""
    groups: dict[tuple[str, str, float], list[ServeRow]] = {}
    for row in rows:
        groups.setdefault((row.strategy, row.target, row.slo_ms), []).append(row)
    return [
        {
            "strategy": strategy,
            "target": target,
            "unseen": is_unseen(target),
            "slo_ms": slo_ms,
            "accuracy": {str(count): round(fmean(r.accuracy[count] for r in of), 4) for count in of[0].accuracy},
        }
        for (strategy, target, slo_ms), of in groups.items()
    ]


def write(path: Path, rows: list[ServeRow], *, noise: float) -> None:
    present = {row.strategy for row in rows}
    names = [name for name in dict.fromkeys([*STRATEGIES, *(row.strategy for row in rows)]) if name in present]
    order = {name: at for at, name in enumerate(names)}
    rows = sorted(rows, key=lambda row: order[row.strategy])
    bed = beds()[0]
    record = {
        "made": datetime.now(UTC).date().isoformat(),
        "version": __version__,
        "code": code(),
        "source": bed.known.source,
        "seeds": {name: len({row.seed for row in rows if row.strategy == name}) for name in order},
        "noise": noise,
        "summary": [asdict(s) for s in summarise(rows)],
        "summary_seen": [asdict(s) for s in summarise([r for r in rows if not r.unseen])],
        "summary_unseen": [asdict(s) for s in summarise([r for r in rows if r.unseen])],
        "by_target": by_target(rows),
    }
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(f"{path.name}: {len(rows)} searches")


def read_rows(path: Path) -> list[ServeRow]:
    """The rows of a file printed by `mlcd bench serve -o json`."""
    found = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return [
        ServeRow(**(row | {name: {int(k): v for k, v in row[name].items()} for name in ("accuracy", "search_usd")}))
        for row in found
    ]


def ablate(seeds: int, jobs: int) -> None:
    """Ablations on targets whose sha256(name) is odd, with seeds that no reported result uses."""
    bed = beds()[0]
    tuned = replace(bed, targets=tuple(name for name in bed.targets if not is_unseen(name)))
    comparison = ServeComparison(strategies=ABLATED, seeds=seeds, first_seed=1000, jobs=jobs)
    write(ABLATION, compare(comparison, [tuned]), noise=comparison.noise)


def table(summary: list[dict[str, Any]]) -> str:
    """Accuracy after 1, 3, 6, 15, 30 trials and trials to 95%, one line per strategy and limit."""
    counts = sorted({line["trials"] for line in summary})
    lines = [
        "| strategy | limit | runs | "
        + " | ".join(f"{count}" for count in counts)
        + " | 95% interval at 6 | to 95% | to 99% | spent on 6 |",
        "|---|---|---|" + "---|" * (len(counts) + 4),
    ]
    groups: dict[tuple[str, float], dict[int, dict[str, Any]]] = {}
    for line in summary:
        groups.setdefault((line["strategy"], line["slo_ms"]), {})[line["trials"]] = line
    for (strategy, slo_ms), of in groups.items():
        six = of[6]
        cells = [f"{of[count]['mean_accuracy']:.3f}" for count in counts]
        interval = f"{six['interval'][0]:.3f} to {six['interval'][1]:.3f}"
        reached = f"{six['mean_trials_to_95']:.1f} | {six['mean_trials_to_99']:.1f}"
        named, spent = f"`{strategy}` | {slo_ms:g} ms | {six['runs']}", f"${six['search_usd']:.2f}"
        lines.append(f"| {named} | {' | '.join(cells)} | {interval} | {reached} | {spent} |")
    return "\n".join(lines)


def page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    tables = {"all": table(record["summary"]), "held-out": table(record["summary_unseen"])}
    if ABLATION.exists():
        tables["ablation"] = table(json.loads(ABLATION.read_text(encoding="utf-8"))["summary"])
    for name, lines in tables.items():
        pattern = rf"(<!-- table: {name} -->\n).*?(<!-- end: {name} -->)"
        text = re.sub(pattern, lambda found, lines=lines: f"{found[1]}\n{lines}\n\n{found[2]}", text, flags=re.S)  # type: ignore[misc]
    PAGE.write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "merge", "ablation", "page"])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=-1)
    given = parser.parse_args()
    if given.what == "run":
        comparison = ServeComparison(strategies=STRATEGIES, seeds=given.seeds, jobs=given.jobs)
        write(RECORD, compare(comparison, beds()), noise=comparison.noise)
    elif given.what == "merge":
        rows = [row for path in given.files for row in read_rows(path)]
        write(RECORD, rows, noise=ServeComparison(strategies=()).noise)
    elif given.what == "ablation":
        ablate(given.seeds, given.jobs)
    else:
        page()


if __name__ == "__main__":
    main()
