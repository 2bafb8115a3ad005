"""Ten thousand random searches through the product's engine; some final runs are slower than their trials.

The worlds, limits and strategies are those of benchmarks/guarantee.py, in this process. Every search has the default
`search.slowdown` of real nodes. Half of the final runs are as fast as their trials, the others up to twice as long.
The budget must hold in all of them, the deadline where the final run is slower by at most the slowdown.
"""

import random
from pathlib import Path

from guarantee import Outcome, search
from joblib import Parallel, delayed

from attacks.attack import Attack, Kind, Tally
from mlcd.jobs.resolved_job import REAL_SLOWDOWN
from mlcd.trial.outcome import Status

CHUNK = 100
LONGER = (0.0, 0.0, 0.0, 0.05, REAL_SLOWDOWN, 1.0)
"""Shares by which final runs are slower; the last is beyond what limits allow for."""


def case(seed: int, number: int) -> tuple[float, Outcome | str]:
    """(the share by which the final run is slower, how the search ended or the error that it raised)."""
    slower = random.Random(f"slower {seed}/{number}").choice(LONGER)
    try:
        return slower, search(seed, number, slower=slower, slowdown=REAL_SLOWDOWN)
    except Exception as error:  # whatever it raises is a finding
        return slower, f"{type(error).__name__}: {error}"


def attack(count: int, seed: int, folder: Path) -> Tally:  # noqa: ARG001 - it writes nothing
    """Run the searches on all cores."""
    chunks = [range(first, min(first + CHUNK, count)) for first in range(0, count, CHUNK)]
    tally = Tally()
    for chunk, ended in zip(chunks, Parallel(n_jobs=-1)(delayed(_cases)(seed, chunk) for chunk in chunks), strict=True):
        for number, (slower, outcome) in zip(chunk, ended, strict=True):
            judge_search(tally, number, slower, outcome)
    return tally


def judge_search(tally: Tally, number: int, slower: float, outcome: Outcome | str) -> None:
    """Count one search, and find what it broke."""
    what = f"a final run slower by {slower:.0%}"
    if isinstance(outcome, str):
        tally.count("raised")
        tally.find(Kind.TRACEBACK, number, f"{what}: {outcome}")
        return
    within = slower <= REAL_SLOWDOWN
    late = outcome.overspent_seconds
    tally.count("stopped" if outcome.stopped else "late" if late else outcome.status)
    if outcome.overspent_usd:
        tally.find(Kind.OVERSPEND, number, f"{what}: {outcome.budget_share:.4f} of the budget")
    if late and within:
        tally.find(Kind.OVERSPEND, number, f"{what}: {outcome.deadline_share:.4f} of the deadline")
    if outcome.stopped and within:
        tally.find(Kind.WRONG, number, f"{what}: stopped unfinished although the limits allow for it")
    if outcome.status == Status.OVERRAN and not late and not outcome.stopped:
        tally.find(Kind.WRONG, number, f"{what}: called overran although it kept its limits")


def _cases(seed: int, numbers: range) -> list[tuple[float, Outcome | str]]:
    return [case(seed, number) for number in numbers]


ATTACKS = (
    Attack(
        name="searches",
        what="random searches, half of them with a slower final run",
        count=10_000,
        run=attack,
    ),
)
