"""The optimisers that users reach for, through mlcd's engine: the same trials, prices and limits as every strategy.

    benchmarks/peers/setup optuna
    .venvs/peers-optuna/bin/python benchmarks/peers/run.py optuna TABLES --seeds 5

Runs the held-out workloads of scout, multicloud and trimtuner at 6 h under every goal, and writes the rows to
benchmarks/results/peers-NAME.json as they come. A peer is a strategy whose next trial its library suggests
(benchmarks/peers/peer.py says what is the same for all); it has no part in what is authorised, charged or chosen.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import sys
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import cast

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))

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


def all_rows(arguments: argparse.Namespace) -> Iterator[TrainRow]:
    peer = peer_class(arguments.peer)
    found = workloads(arguments.tables, arguments.unseen, arguments.beds.split(","))
    work = Work(arguments.work)
    protocol = TrainProtocol(hours=arguments.hours, work=work, restart_seconds=work.default_restart_seconds)
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
        for goal in arguments.goals.split(","):
            for steps in arguments.steps.split(","):
                for workload in found:
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
    parser.add_argument("--append", action="store_true", help="keep the rows that the record has")
    parser.add_argument("--work", choices=["thrown", "kept"], default="thrown")
    parser.add_argument("--unseen", choices=["all", "only", "no"], default="only")
    parser.add_argument("--beds", default=",".join(BEDS))
    parser.add_argument("--to", type=Path, help="the record; benchmarks/results/peers-NAME.json unless given")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    to = arguments.to or FOLDER.parent / "results" / f"peers-{arguments.peer}.json"
    rows: list[TrainRow] = []
    if arguments.append and to.exists():
        rows = [TrainRow(**known) for known in json.loads(to.read_text(encoding="utf-8"))["rows"]]
    for made in all_rows(arguments):
        rows.append(made)
        if len(rows) % 10 == 0:
            write(to, arguments, rows)
    write(to, arguments, rows)
    for s in summarise(rows):
        interval = f"{s.ratio_interval[0]:.2f} to {s.ratio_interval[1]:.2f}"
        counts = f"{s.violations} violated, {s.unfinished} unfinished of {s.runs}, {s.mean_trials:.1f} trials"
        print(f"{s.strategy:20} {s.goal:9} {s.mean_ratio:.3f} ({interval}); {counts}")


def write(to: Path, arguments: argparse.Namespace, rows: list[TrainRow]) -> None:
    """The record so far: settings, versions, summary and every row."""
    package = peer_class(arguments.peer).package
    options = ("goals", "steps", "hours", "work", "unseen", "beds")
    record = {
        "date": datetime.now(UTC).date().isoformat(),
        "version": __version__,
        "package": f"{package} {version(package)}",
        "settings": {name: getattr(arguments, name) for name in options},
        "seeds": sorted({row.seed for row in rows}),
        "summary": [asdict(s) for s in summarise(rows)],
        "rows": [asdict(r) for r in rows],
    }
    to.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
