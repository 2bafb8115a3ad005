"""Searches beside their training, killed at random instants and resumed: nothing is lost, and nothing paid twice."""

import itertools
import random
from collections import Counter
from typing import Any

import pytest
from tests.property.test_beside_property import beside_search, check_books
from tests.property.test_watched_property import check_watch, run_of, starts, watched_search
from tests.synthetic import make_engine, stored, timeless

from mlcd.clouds.provider import Cloud, Lease, Order
from mlcd.clouds.wrappers import Wrapped
from mlcd.engine import Engine
from mlcd.problem import Problem
from mlcd.run.run import SearchRun
from mlcd.store.store import Store

KILLS = [pytest.param(range(10), id="10"), pytest.param(range(10, 110), id="100", marks=pytest.mark.extra)]


class Killed(BaseException):
    """mlcd was killed: nothing after this runs."""


class Deaths:
    """Kills at the n-th of the instants that are counted: a lease, and before and after each write of the store."""

    def __init__(self, at: int | None = None) -> None:
        self.at, self.count = at, 0

    def pass_by(self) -> None:
        self.count += 1
        if self.count == self.at:
            raise Killed


class Leasing(Wrapped):
    """A cloud on which each lease is such an instant."""

    def __init__(self, inner: Any, deaths: Deaths) -> None:
        super().__init__(inner)
        self.deaths = deaths

    def lease(self, order: Order) -> Lease:
        self.deaths.pass_by()
        return super().lease(order)


class Writing:
    """A journal around the store whose writes are such instants."""

    def __init__(self, store: Store, deaths: Deaths) -> None:
        self.store, self.deaths = store, deaths

    def __getattr__(self, name: str) -> Any:
        write = getattr(self.store, name)
        if name not in ("start", "end", "conclude", "finish", "set_status"):
            return write

        def written(*given: Any) -> Any:
            self.deaths.pass_by()
            result = write(*given)
            self.deaths.pass_by()
            return result

        return written


def drive(seed: int, store: Store, deaths: Deaths, *, add: bool, watched: bool = False) -> None:
    cloud: Cloud
    if watched:
        problem, cloud, listed, text, parallel = watched_search(seed)
    else:
        (problem, cloud, text, parallel), listed = beside_search(seed), None
    engine: Engine[Problem] = make_engine(
        problem, Leasing(cloud, deaths), store, text, seed=seed, parallel=parallel, add=add, chosen=listed
    )
    engine.journal = Writing(store, deaths)
    engine.drive()


def killed_and_resumed(
    seed: int, rng: random.Random, instants: int, seen: Counter[str], *, watched: bool = False
) -> SearchRun:
    """The run, killed at one to three random instants."""
    with Store(None) as store:
        for kill in range(rng.randint(1, 3) + 1):
            deaths = Deaths(rng.randint(1, instants))
            try:
                drive(seed, store, deaths, add=kill == 0, watched=watched)
            except Killed:
                run = stored(store)
                seen["killed"] += 1
                seen["with steps in flight"] += bool(run.in_flight)
                seen["between stretches"] += run.open_stretch is not None and not run.in_flight
                seen["watched"] += any(step.watch is not None for step in run.in_flight)
        drive(seed, store, Deaths(), add=False, watched=watched)
        return stored(store)


@pytest.mark.parametrize("seeds", KILLS)
def test_a_search_beside_its_training_killed_at_any_instant_gives_the_same_answer(seeds: range) -> None:
    seen: Counter[str] = Counter()
    for seed in seeds:
        check_books(same_after_kills(seed, seen, watched=False))
    assert seen["killed"] >= len(seeds)
    assert seen["with steps in flight"] >= len(seeds) / 3


def same_after_kills(seed: int, seen: Counter[str], *, watched: bool) -> SearchRun:
    """The run after it was killed and resumed, which is the same as without."""
    with Store(None) as store:
        counted = Deaths()
        drive(seed, store, counted, add=True, watched=watched)
        whole = stored(store)
    resumed = killed_and_resumed(seed, random.Random(f"kills|{seed}"), counted.count, seen, watched=watched)
    assert timeless(resumed.steps) == timeless(whole.steps)
    assert (resumed.status, resumed.verdict, resumed.spent) == (whole.status, whole.verdict, whole.spent)
    assert resumed.total_seconds == whole.total_seconds
    return resumed


@pytest.mark.parametrize(
    "count", [pytest.param(8, id="8"), pytest.param(100, id="100", marks=[pytest.mark.extra, pytest.mark.slow])]
)
def test_a_watched_training_killed_at_any_instant_gives_the_same_answer(count: int) -> None:
    seen: Counter[str] = Counter()
    seeds = (seed for seed in range(100_000) if starts(run_of(seed)[0]))
    for seed in itertools.islice(seeds, count):
        run = same_after_kills(seed, seen, watched=True)
        for step in starts(run):
            check_watch(run, step)
    assert seen["watched"] >= count / 8, seen
