"""The optimisers that users reach for, through mlcd's engine: the same trials, prices and limits as every strategy.

    benchmarks/peers/setup optuna
    .venvs/peers-optuna/bin/python benchmarks/peers/run.py optuna TABLES --seeds 5

Runs the held-out workloads of scout, multicloud and trimtuner at 6 h under every goal, and writes the rows to
benchmarks/results/peers-NAME.json as they come; rows that are there are not run again, so a recording that was stopped
continues when the command is given again (--fresh begins anew). A peer is a strategy whose next trial its library
suggests (benchmarks/peers/peer.py says what is the same for all); it has no part in what is authorised, charged or
chosen.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import sys
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))

import pages  # noqa: E402

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


def key(row: TrainRow) -> tuple[str, str, float, int, str, str]:
    """What a row is of."""
    return (row.workload, row.goal, row.hours, row.seed, row.work, row.strategy)


def all_rows(
    arguments: argparse.Namespace, done: Collection[tuple[str, str, float, int, str, str]]
) -> Iterator[TrainRow]:
    """Every row that is not done."""
    peer = peer_class(arguments.peer)
    found = workloads(arguments.tables, arguments.unseen, arguments.beds.split(","))
    work = Work(arguments.work)
    protocol = TrainProtocol(hours=arguments.hours, work=work, restart_seconds=work.default_restart_seconds)
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
        for goal in arguments.goals.split(","):
            for steps in arguments.steps.split(","):
                for workload in found:
                    text = f"{peer.name}:steps={steps}"
                    if (workload.name, goal, arguments.hours, seed, work.value, text) in done:
                        continue
                    made = one_run(peer, workload, GoalKind(goal), protocol, steps=int(steps), seed=seed)
                    if made is not None:
                        yield made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=list(PEERS))
    parser.add_argument("tables", type=Path)
    parser.add_argument("--goals", default="fastest,cheapest,budget")
    parser.add_argument("--steps", default="8", help="trials at most; several, separated by commas, are run apart")
    parser.add_argument("--hours", type=float, default=6.0)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--fresh", action="store_true", help="drop the rows that the record has")
    parser.add_argument("--work", choices=["thrown", "kept"], default="thrown")
    parser.add_argument("--unseen", choices=["all", "only", "no"], default="only")
    parser.add_argument("--beds", default=",".join(BEDS))
    parser.add_argument("--to", type=Path, help="the record; benchmarks/results/peers-NAME.json unless given")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    to = arguments.to or FOLDER.parent / "results" / f"peers-{arguments.peer}.json"
    rows: list[TrainRow] = []
    if to.exists() and not arguments.fresh:
        rows = [TrainRow(**known) for known in json.loads(to.read_text(encoding="utf-8"))["rows"]]
    for made in all_rows(arguments, {key(known) for known in rows}):
        rows.append(made)
        write(to, arguments, rows)
    for s in summarise(rows):
        interval = f"{s.ratio_interval[0]:.2f} to {s.ratio_interval[1]:.2f}"
        counts = f"{s.violations} violated, {s.unfinished} unfinished of {s.runs}, {s.mean_trials:.1f} trials"
        print(f"{s.strategy:20} {s.goal:9} {s.mean_ratio:.3f} ({interval}); {counts}")


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
        cells = [f"{known[goal]['hours']['6']:.2f}" if goal in known else "-" for goal in goals]
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


def write(to: Path, arguments: argparse.Namespace, rows: list[TrainRow]) -> None:
    """The record so far: settings, versions, summary and every row."""
    package = peer_class(arguments.peer).package
    options = ("goals", "steps", "hours", "work", "unseen", "beds")
    record = {
        "date": datetime.now(UTC).date().isoformat(),
        "version": __version__,
        "code": pages.sources(),
        "package": f"{package} {version(package)}",
        "settings": {name: getattr(arguments, name) for name in options},
        "seeds": sorted({row.seed for row in rows}),
        "summary": [asdict(s) for s in summarise(rows)],
        "rows": [asdict(r) for r in rows],
    }
    to.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
