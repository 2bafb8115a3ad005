"""For how many random protocols a training can be certain to finish, and how many of these a strategy finishes.

    .venv/bin/python benchmarks/finishing.py TABLES --count 200 --seed 1

Protocols are drawn as for the record (record_protocols.py). A deployment is certain to fit if one trial of it and the
upper bound of what is left of the training fit the limits, as measured without error. `certain` is the share of
protocols with such a deployment: the others are unfinished for every strategy that keeps the guarantee, however well it
chooses, unless an error of measurement helps. The next columns are the shares in which such a deployment still fits
after other trials took a tenth, and a quarter, of every limit.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # small matrices, and several processes

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray
from protocols import sources
from record_protocols import Setting, settings

from mlcd.bench.case import GoalKind, TrainTruth
from mlcd.bench.protocol import Work
from mlcd.bench.train import Unseen, run_one
from mlcd.bench.workloads import case_of
from mlcd.problem import Problem
from mlcd.trial.plan import log_margin

SPENT_SHARES = (0.0, 0.1, 0.25)
"""Shares of every limit that other trials took before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """One protocol: whether finishing can be certain after each of SPENT_SHARES, and whether the strategy finished."""

    work: Work
    goal: GoalKind
    certain: tuple[bool, ...]
    finished: bool


def room_of(truth: TrainTruth, problem: Problem) -> float:
    """The largest share of every limit that may be spent before the one trial of a deployment that is certain to fit.

    Less than 0 where none is certain to fit at all.
    """
    seconds = np.array([np.inf if each is None else each for each in truth.seconds])
    trial, rates = problem.planned_trial_seconds, problem.dollars_per_second
    rest = seconds
    if problem.keeps_work or problem.beside:  # the trial's work is done, and the rest begins with a restart
        rest = np.maximum(seconds - trial, 0.0) + problem.restart_seconds
    needs = trial + rest * np.exp(log_margin(problem, problem.noise))
    room: NDArray[np.float64] = np.full(len(needs), np.inf)
    if problem.goal.deadline_seconds is not None:
        room = np.minimum(room, 1 - needs / problem.goal.deadline_seconds)
    if problem.goal.budget is not None:
        room = np.minimum(room, 1 - needs * rates / problem.goal.budget.dollars)
    return float(room.max())


def finished(each: Setting, strategy: str) -> Finished | None:
    """None where no training fits the limits even without a trial."""
    one = each.drawn
    truth, _ = case_of(one.source, one.protocol, seed=one.seed)
    found = run_one(
        one.source, one.protocol, kind=each.goal, strategy_text=strategy, seed=one.seed, parallel=each.parallel
    )
    if found is None:
        return None
    room = room_of(truth, truth.with_goal(each.goal, one.protocol))
    return Finished(
        work=one.protocol.work,
        goal=each.goal,
        certain=tuple(room >= share for share in SPENT_SHARES),
        finished=found.row.status != "unfinished",
    )


def table(rows: Sequence[Finished]) -> str:
    """By work and goal."""
    heads = " | ".join(f"after {share:.0%}" for share in SPENT_SHARES[1:])
    lines = [
        f"| work | goal | runs | certain | {heads} | unfinished | of those that can be certain |",
        "|---" * 8 + "|",
    ]
    pairs = [(work, goal) for work in Work for goal in GoalKind]
    groups = [("all", "all", list(rows))]
    groups += [(w.value, g.value, [r for r in rows if (r.work, r.goal) == (w, g)]) for w, g in pairs]
    for work, goal, group in groups:
        if group:
            shares = " | ".join(f"{np.mean(column):.0%}" for column in zip(*(r.certain for r in group), strict=True))
            lost = [not r.finished for r in group]
            among = [not r.finished for r in group if r.certain[0]]
            can = f"{sum(among)} of {len(among)} ({np.mean(among) if among else 0:.1%})"
            lines.append(f"| {work} | {goal} | {len(group)} | {shares} | {sum(lost)} ({np.mean(lost):.1%}) | {can} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=Path)
    parser.add_argument("--strategy", default="auto")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--unseen", choices=["all", "only", "no"], default="no")
    arguments = parser.parse_args()
    beds = sources(arguments.tables, cast(Unseen, arguments.unseen))
    drawn = settings(beds, count=arguments.count, seed=arguments.seed)
    rows = [row for each in drawn if (row := finished(each, arguments.strategy)) is not None]
    print(table(rows))


if __name__ == "__main__":
    main()
