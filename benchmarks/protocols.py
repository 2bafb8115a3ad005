"""Strategies on random protocols: no constant of a strategy can fit all of them.

    .venv/bin/python benchmarks/protocols.py TABLES --strategies heterbo,oracle --count 100
    .venv/bin/python benchmarks/protocols.py TABLES --strategies 'auto; heterbo' --work kept --unseen only --seed 1

TABLES is the folder that holds the folders scout, multicloud and trimtuner. A protocol is a workload of these tables or
of the simulator, 3 of its instance types to all of them (at least 8 deployments; on the simulator up to 3,100), a
training of 1 to 48 h, noise of 1 to 10%, trials of 2 to 15 minutes (the move not counted), a budget of 1.1 to 3 and a
deadline of 1.2 to 4 times the least; where work is not thrown away, 1 to 4 minutes a move. Every strategy runs under
the same protocols, which depend on --seed alone; each is run once for each goal.

Tune with --unseen no (the default) and any seeds; report with --unseen only and seeds that were never tuned on.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # small matrices, and several processes

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

from mlcd.bench.case import GoalKind, TrainRow, is_unseen
from mlcd.bench.oracle import Oracle
from mlcd.bench.protocol import TrainProtocol, Work
from mlcd.bench.tasks import run_tasks
from mlcd.bench.train import TrainSummary, Unseen, bootstrap_interval, learns_from_others, run_one, summarise
from mlcd.bench.workloads import SimWorkload, Source, case_of, table_workloads
from mlcd.clouds.sim import SimJob
from mlcd.search.registry import strategy

FOLDERS = ("scout", "multicloud", "trimtuner")
SIM = "sim"
LEAST_DEPLOYMENTS = 8
SIM_MINUTES = 5
"""The least trial on the simulator: its machines take up to 3.5 minutes to start."""
CHUNK = 20
"""Protocols of one task: a process loads the package once for all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """One protocol, the workload it is for, and the seed of its noise and its strategies."""

    number: int
    bed: str
    source: Source
    protocol: TrainProtocol
    seed: int


def sim_sources() -> list[Source]:
    """Trainings of the simulator's models on the paper's 62 types and on all with an accelerator; up to 50 nodes."""
    return [
        SimWorkload(
            name=f"{model}-{batch}-{topology}-{offered}",
            job=SimJob(model=model, batch=batch, topology=topology),
            instances=(types,),
            max_nodes=50,
        )
        for model in ("alexnet", "resnet152", "inception-v3", "char-rnn", "bert-large", "zero-8b")
        for batch in (128, 512)
        for topology in ("ring", "ps")
        for offered, types in (("aws-62", "aws-62"), ("aws-gpu", "aws-accelerators"))  # names decide what is unseen
    ]


def sources(tables: Path, unseen: Unseen) -> dict[str, list[Source]]:
    """The workloads of each bed; on the simulator too, those whose sha256(name) is even are held out."""
    keep = {"all": (True, False), "only": (True,), "no": (False,)}[unseen]
    beds: dict[str, list[Source]] = {folder: [*table_workloads(tables / folder).values()] for folder in FOLDERS}
    beds[SIM] = sim_sources()
    return {bed: [each for each in found if is_unseen(each.name) in keep] for bed, found in beds.items()}


def drawn(
    beds: dict[str, list[Source]], *, count: int, seed: int, work: Work | Callable[[int], Work]
) -> Iterator[Drawn]:
    """`count` protocols, a quarter on each bed; they depend on the seed and the beds alone.

    work  of all of them, or by their numbers
    """
    names = list(beds)
    for number in range(count):
        rng = random.Random(f"{seed}/{number}")
        bed = names[number % len(names)]
        while True:
            found = _draw(rng, bed, rng.choice(beds[bed]), work if isinstance(work, Work) else work(number))
            run_seed = rng.randrange(2**31)
            truth, _ = case_of(found[0], found[1], seed=run_seed)
            if len(truth.problem.space) >= LEAST_DEPLOYMENTS:
                break
        yield Drawn(number=number, bed=bed, source=found[0], protocol=found[1], seed=run_seed)


def _draw(rng: random.Random, bed: str, source: Source, work: Work) -> tuple[Source, TrainProtocol]:
    offered = 62 if isinstance(source, SimWorkload) else len(source.instances)
    types = min(round(_log_uniform(rng, 3, offered)), offered)
    most_nodes = round(_log_uniform(rng, 4, 50)) if bed == SIM else None
    minutes = rng.randint(SIM_MINUTES if bed == SIM else 2, 15)
    restart = 60.0 * rng.randint(1, 4)  # drawn for every kind of work, so that the rest is the same for all
    restart = 0.0 if work is Work.THROWN else restart
    return source, TrainProtocol(
        hours=_log_uniform(rng, 1, 48),
        noise=_log_uniform(rng, 0.01, 0.1),
        work=work,
        restart_seconds=restart,
        budget_factor=rng.uniform(1.1, 3),
        deadline_factor=rng.uniform(1.2, 4),
        trial_seconds=60.0 * minutes + restart,
        types=types,
        most_nodes=most_nodes,
    )


def _log_uniform(rng: random.Random, low: float, high: float) -> float:
    return float(low * (high / low) ** rng.random())


def rows_of(
    protocols: Sequence[Drawn],
    strategies: Sequence[str],
    goals: Sequence[GoalKind],
    parallel: int,
    known: Mapping[str, Sequence[Source]] | None = None,
) -> list[tuple[int, TrainRow]]:
    """(protocol's number, row) of every run; protocols without a feasible configuration under a goal have none.

    known  by bed: workloads that strategies may have learnt from; each run leaves its own and its kin out
    """
    rows = []
    for each in protocols:
        for goal in goals:
            for text in strategies:
                found = run_one(
                    each.source,
                    each.protocol,
                    kind=goal,
                    strategy_text=text,
                    seed=each.seed,
                    parallel=parallel,
                    known=(known or {}).get(each.bed, ()) if learns_from_others(text) else (),
                )
                if found is not None:
                    rows.append((each.number, found.row))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=Path)
    parser.add_argument("--strategies", default="heterbo,oracle", help="separated by commas, or by semicolons")
    parser.add_argument("--goals", default="fastest,cheapest,budget")
    parser.add_argument("--work", choices=[work.value for work in Work], default="thrown")
    parser.add_argument("--count", type=int, default=100, help="protocols; each is run for every goal and strategy")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--unseen", choices=["all", "only", "no"], default="no")
    parser.add_argument("--beds", default=",".join((*FOLDERS, SIM)), help="run only the protocols of these")
    parser.add_argument("--parallel", type=int, default=1, help="trials at once")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--rows", type=Path, help="also write every run to this file, as JSON")
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text")
    arguments = parser.parse_args()
    text = arguments.strategies
    strategies = [part.strip() for part in text.split(";" if ";" in text else ",") if part.strip()]
    for name in strategies:
        if name != Oracle.name:
            strategy(name)  # report a wrong name before the first run
    goals = [GoalKind(goal) for goal in arguments.goals.split(",")]
    beds = sources(arguments.tables, cast(Unseen, arguments.unseen))
    protocols = [
        each
        for each in drawn(beds, count=arguments.count, seed=arguments.seed, work=Work(arguments.work))
        if each.bed in arguments.beds.split(",")
    ]
    began = time.perf_counter()
    chunks = [protocols[at : at + CHUNK] for at in range(0, len(protocols), CHUNK)]
    known = sources(arguments.tables, "all") if any(map(learns_from_others, strategies)) else None
    tasks = [(chunk, strategies, goals, arguments.parallel, known) for chunk in chunks]
    found = run_tasks(rows_of, tasks, jobs=arguments.jobs)
    rows = [row for part in found for row in part]
    if arguments.rows is not None:
        kept = [{"protocol": number, **asdict(row)} for number, row in rows]
        arguments.rows.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    summaries = [
        (summary, paired(rows, summary.strategy, strategies[0], summary.goal))
        for summary in summarise([row for _, row in rows], pool_hours=True)
    ]
    summaries.sort(key=lambda pair: goals.index(GoalKind(pair[0].goal)))
    if arguments.output == "json":
        settings = {key: str(value) for key, value in vars(arguments).items()}
        entries = [{**asdict(summary), "less_than_first": pair} for summary, pair in summaries]
        json.dump({"settings": settings, "summary": entries}, sys.stdout, indent=1)
        return
    print(table(summaries, strategies[0]))
    took = time.perf_counter() - began
    print(
        f"\n{len(protocols)} protocols, {len(rows)} runs in {took:.0f} s; work {arguments.work}, seed {arguments.seed}"
    )


def paired(rows: Sequence[tuple[int, TrainRow]], name: str, first: str, goal: str) -> tuple[float, float, float] | None:
    """Mean difference of the counted ratios to the first strategy under the same protocols, with its 95% interval."""
    if name == first:
        return None
    ratios = {(number, row.strategy): row for number, row in rows if row.goal == goal}
    by_workload: dict[str, list[float]] = {}
    for (number, text), row in ratios.items():
        if text == name:
            other = ratios[number, first]
            by_workload.setdefault(row.workload, []).append(row.counted_ratio - other.counted_ratio)
    values = [value for group in by_workload.values() for value in group]
    return (sum(values) / len(values), *bootstrap_interval(list(by_workload.values())))


def table(summaries: Sequence[tuple[TrainSummary, tuple[float, float, float] | None]], first: str) -> str:
    """The summaries as a table of markdown."""
    lines = [
        f"| goal | strategy | runs | ratio (95%) | median | p95 | violated | unfinished | trials | less `{first}` |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for s, pair in summaries:
        interval = f"{s.ratio_interval[0]:.2f} to {s.ratio_interval[1]:.2f}"
        ratios = f"{s.mean_ratio:.3f} ({interval}) | {s.median_ratio:.3f} | {s.p95_ratio:.2f}"
        counts = f"{s.violations} | {s.unfinished} | {s.mean_trials:.1f}"
        difference = "-" if pair is None else f"{pair[0]:+.3f} ({pair[1]:+.2f} to {pair[2]:+.2f})"
        lines.append(f"| {s.goal} | `{s.strategy}` | {s.runs} | {ratios} | {counts} | {difference} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
