"""The optimisers that users reach for, through mlcd's engine: the same trials, prices and limits as every strategy.

    benchmarks/peers/setup optuna
    .venvs/peers-optuna/bin/python benchmarks/peers/run.py optuna TABLES --seeds 5

Runs the held-out workloads of scout, multicloud and trimtuner at 6 h under every goal, and writes the rows of all whole
seeds to benchmarks/results/peers-NAME.json. A recording that was stopped continues when the command is given again;
rows of an older commit are kept where a random sample is the same (benchmarks/row_file.py). A peer is a strategy whose
next trial its library suggests (benchmarks/peers/peer.py says what is the same for all); it has no part in what is
authorised, charged or chosen.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))

import pages  # noqa: E402
from row_file import FOLDER as ROWS  # noqa: E402
from row_file import Made, Row, RowFile, codes, core_minutes, verifiers  # noqa: E402

from mlcd.bench.case import GoalKind, TrainRow, is_unseen, row, search_with  # noqa: E402
from mlcd.bench.protocol import TrainProtocol, Work  # noqa: E402
from mlcd.bench.train import Unseen, summarise  # noqa: E402
from mlcd.bench.workloads import case_of, table_workloads  # noqa: E402
from mlcd.clouds.replay import ReplayWorkload  # noqa: E402
from mlcd.version import __version__  # noqa: E402
from peers.peer import Peer  # noqa: E402

PEERS = {
    "optuna": ("peers.optuna_peer", "OptunaPeer"),
    "botorch": ("peers.botorch_peer", "BoTorchPeer"),
    "smac": ("peers.smac_peer", "SmacPeer"),
    "ax": ("peers.ax_peer", "AxPeer"),
}
BEDS = ("scout", "multicloud", "trimtuner")


def peer_class(name: str) -> type[Peer]:
    module, attribute = PEERS[name]
    return cast(type[Peer], getattr(import_module(module), attribute))


def workloads(tables: Path, unseen: Unseen, beds: list[str]) -> list[ReplayWorkload]:
    keep = {"all": (True, False), "only": (True,), "no": (False,)}[unseen]
    return [w for bed in beds for w in table_workloads(tables / bed).values() if is_unseen(w.name) in keep]


def one_run(
    peer: type[Peer], workload: ReplayWorkload, goal: GoalKind, protocol: TrainProtocol, *, steps: int, seed: int
) -> TrainRow | None:
    """One search with a peer of so many steps, and the training; None where nothing fits the limits."""
    truth, cloud = case_of(workload, protocol, seed=seed)
    problem = truth.with_goal(goal, protocol)
    optimum = truth.optimum(problem.goal)
    if optimum is None:
        return None
    record = search_with(peer(seed=seed, steps=steps), problem, cloud, name=f"{peer.name}:steps={steps}", seed=seed)
    return row(truth, record, kind=goal, protocol=protocol, optimum=optimum)


def rows_of(name: str, workload: ReplayWorkload, goal: GoalKind, protocol: TrainProtocol, *numbers: int) -> list[Row]:
    """One run as a task of a RowFile; `numbers` are the steps and the seed."""
    steps, seed = numbers
    made = one_run(peer_class(name), workload, goal, protocol, steps=steps, seed=seed)
    return [] if made is None else [asdict(made)]


def record(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run what is missing, one seed after the other."""
    work = Work(arguments.work)
    protocol = TrainProtocol(hours=arguments.hours, work=work, restart_seconds=work.default_restart_seconds)
    tasks = {
        f"{bed}/{workload.name}/{goal}/{arguments.hours:g}/{work}/{steps}/{seed}": (
            *(arguments.peer, workload, GoalKind(goal), protocol),
            *(int(steps), seed),
        )
        for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds)
        for goal in arguments.goals.split(",")
        for steps in arguments.steps.split(",")
        for bed in arguments.beds.split(",")
        for workload in workloads(arguments.tables, arguments.unseen, [bed])
    }
    rows = arguments.to.with_suffix(".jsonl") if arguments.to else ROWS / f"peers-{arguments.peer}.jsonl"
    file = RowFile(path=rows, code=pages.sources(), group=lambda n: n.split("/")[0])
    made = file.complete(rows_of, tasks, jobs=1, minutes=arguments.minutes)
    lacking = {name.split("/")[-1] for name in tasks if name not in made}
    whole = {name: each for name, each in made.items() if name.split("/")[-1] not in lacking}
    return content(arguments, whole)


def content(arguments: argparse.Namespace, made: Mapping[str, Made]) -> dict[str, Any]:
    """What the record says: settings, versions, summary and every row."""
    package = peer_class(arguments.peer).package
    rows = [TrainRow(**row) for each in made.values() for row in each.rows]
    options = ("goals", "steps", "hours", "work", "unseen", "beds")
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "version": __version__,
        "code": codes(made),
        "verified": verifiers(made),
        "package": f"{package} {version(package)}",
        "settings": {name: getattr(arguments, name) for name in options},
        "seeds": sorted({row.seed for row in rows}),
        "core_minutes": core_minutes(made),
        "summary": [asdict(s) for s in summarise(rows)],
        "rows": [asdict(r) for r in rows],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=list(PEERS))
    parser.add_argument("tables", type=Path)
    parser.add_argument("--goals", default="fastest,cheapest,budget")
    parser.add_argument("--steps", default="8", help="trials at most; several, separated by commas, are run apart")
    parser.add_argument("--hours", type=float, default=6.0)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, help="start nothing more after so long")
    parser.add_argument("--work", choices=["thrown", "kept"], default="thrown")
    parser.add_argument("--unseen", choices=["all", "only", "no"], default="only")
    parser.add_argument("--beds", default=",".join(BEDS))
    parser.add_argument("--to", type=Path, help="another record than benchmarks/results/peers-NAME.json")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    found = record(arguments)
    if not found["seeds"]:
        raise SystemExit("not one seed is whole: give it more minutes; what was run is kept")
    to = arguments.to or RESULTS / f"peers-{arguments.peer}.json"
    to.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if arguments.to is None:
        pages.write(parts())
    for s in found["summary"]:
        interval = f"{s['ratio_interval'][0]:.2f} to {s['ratio_interval'][1]:.2f}"
        counts = f"{s['violations']} violated, {s['unfinished']} unfinished of {s['runs']}"
        print(f"{s['strategy']:20} {s['goal']:9} {s['mean_ratio']:.3f} ({interval}); {counts}")


# ---- page


RESULTS = FOLDER.parent / "results"
PAGE = pages.ROOT / "docs" / "auto-results.md"
OURS = ("auto", "heterbo")


def parts() -> dict[Path, dict[str, str]]:
    """The table of all peers that have a record, beside ours on the same workloads at 6 h."""
    records = {name: RESULTS / f"peers-{name}.json" for name in PEERS}
    found = {name: json.loads(path.read_text(encoding="utf-8")) for name, path in records.items() if path.exists()}
    ours = json.loads((RESULTS / "strategies.json").read_text(encoding="utf-8"))["summary"]
    return {PAGE: {"peers": table(found, ours)}}


def table(records: Mapping[str, Mapping[str, Any]], ours: Sequence[Mapping[str, Any]]) -> str:
    """A line for each peer with its ratio under every goal."""
    goals = ("fastest", "cheapest", "budget")
    lines = [f"| what suggests | seeds | {' | '.join(goals)} | broken | unfinished |", "|---" * (len(goals) + 4) + "|"]
    for name in OURS:
        known = {
            line["summary"]["goal"]: line
            for line in ours
            if (line["bed"], line["unseen"], line["work"], line["parallel"]) == ("tables", True, "thrown", 1)
            and line["summary"]["strategy"] == name
        }
        cells = [_six_hours(known[goal]) if goal in known else "-" for goal in goals]
        seeds = max((line["seeds"] for line in known.values()), default=0)
        lines.append(f"| `{name}` | {seeds} | {' | '.join(cells)} | see above | see above |")
    for record in records.values():
        of = {s["goal"]: s for s in record["summary"]}
        cells = [
            f"{of[goal]['mean_ratio']:.2f} ({of[goal]['ratio_interval'][0]:.2f} to {of[goal]['ratio_interval'][1]:.2f})"
            if goal in of
            else "-"
            for goal in goals
        ]
        broken, lost, runs = (sum(s[field] for s in of.values()) for field in ("violations", "unfinished", "runs"))
        lines.append(
            f"| {record['package']} | {len(record['seeds'])} | {' | '.join(cells)} | {broken} | {lost} of {runs} |"
        )
    return "\n".join(lines)


def _six_hours(line: Mapping[str, Any]) -> str:
    """The mean ratio of 6-hour jobs, with its interval where the record has it."""
    low, high = line.get("intervals", {}).get("6", (None, None))
    return f"{line['hours']['6']:.2f}" + ("" if low is None else f" ({low:.2f} to {high:.2f})")


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # SMAC suggests by the order of hashes: the same seed, the same run
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "PYTHONHASHSEED": "0"})
    main()
