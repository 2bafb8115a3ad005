"""Watched trainings at random, on deployments up to three times slower than their trials: no limit is broken."""

import random
from collections import Counter
from dataclasses import replace

import pytest
from tests.property.test_beside_property import check_books, check_open
from tests.property.test_search_property import a_search
from tests.synthetic import driven, make_engine

from mlcd.clouds.provider import Cloud, Lease, Order
from mlcd.clouds.wrappers import SlowerRun, Wrapped
from mlcd.problem import Problem
from mlcd.run.attempt import Ending
from mlcd.run.run import SearchRun
from mlcd.run.step import Role, Step
from mlcd.space import Config
from mlcd.store.store import Store
from mlcd.trial.outcome import Status

SEEDS = [pytest.param(range(150), id="150"), pytest.param(range(150, 2000), id="2000", marks=pytest.mark.extra)]


class SlowerOnSome(Wrapped):
    """Trainings are slower than their trials on some deployments: by the share that each has."""

    def __init__(self, inner: Cloud, shares: dict[Config, float]) -> None:
        super().__init__(inner)
        self.shares = shares

    def lease(self, order: Order) -> Lease:
        share = self.shares.get(order.config, 0.0)
        return SlowerRun(self.inner, share=share).lease(order) if share else self.inner.lease(order)


def watched_search(seed: int) -> tuple[Problem, SlowerOnSome, str, int]:
    """A problem that is watched, a cloud whose trainings may be slower than trials, a strategy, trials at once."""
    rng = random.Random(f"watched|{seed}")
    problem, cloud, text, parallel = a_search(rng)
    while not problem.goal.is_limited or problem.noise == 0:
        problem, cloud, text, parallel = a_search(rng)
    work = rng.choice(("thrown", "kept", "beside"))
    problem = replace(
        problem,
        watched=True,
        keeps_work=work == "kept",
        beside=work == "beside",
        restart_seconds=0.0 if work == "thrown" else rng.choice((0.0, 60.0, 300.0)),
        slowdown=rng.choice((0.0, 0.0, 0.1)),
    )
    slow = {config: rng.choice((0.05, 0.2, 1.0, 2.0)) for config in problem.space if rng.random() < 0.6}
    return problem, SlowerOnSome(cloud, slow), rng.choice((text, "auto")), parallel


def run_of(seed: int) -> tuple[SearchRun, SlowerOnSome]:
    problem, cloud, text, parallel = watched_search(seed)
    with Store(None) as store:
        return driven(make_engine(problem, cloud, store, text, seed=seed, parallel=parallel), store), cloud


def starts(run: SearchRun) -> list[Step]:
    """The watched trainings where they started, not the stretches that continued them."""
    found: list[Step] = []
    before: Step | None = None
    for step in run.steps:
        if step.role is not Role.TRAINING:
            continue
        if step.watch is not None and (before is None or before.final.ending is not Ending.CONTINUED):
            found.append(step)
        before = step
    return found


def check_watch(run: SearchRun, step: Step) -> None:
    """What was spent, the look and the fallback at its upper bound were within the limits when it started."""
    goal, watch = run.problem.goal, step.watch
    assert watch is not None
    back = watch.fallback
    before = sum(s.outcome.usd.micros for s in run.steps if s.number < step.number and s.outcome is not None)
    if goal.budget is not None:
        assert before + watch.usd.micros + (back.worst_usd.micros if back else 0) <= goal.budget.micros
    if goal.deadline_seconds is not None:
        then = step.started_seconds + watch.seconds + (back.worst_seconds if back else 0.0)
        assert then <= goal.deadline_seconds * (1 + 1e-9)
    assert not [other for other in run.steps if other.round == step.round and other is not step], "it runs alone"
    moved = step.final
    if moved.ending is Ending.MOVED:
        assert moved.seconds <= watch.seconds * (1 + 1e-9)
        assert moved.usd <= watch.usd


def check(run: SearchRun, cloud: SlowerOnSome, seen: Counter[str]) -> None:
    goal = run.problem.goal
    assert run.status.is_final
    assert goal.budget is None or run.spent <= goal.budget
    for step in starts(run):
        check_watch(run, step)
        seen["watched"] += 1
        seen["without a fallback"] += step.watch is not None and step.watch.fallback is None
        seen[step.final.ending] += 1
    trainings = [step for step in run.steps if step.role is Role.TRAINING]
    slow = {s.config for s in trainings if s.watch is None and cloud.shares.get(s.config, 0.0) > run.problem.slowdown}
    if slow:  # what counted as certain is slower than any noise
        return
    check_books(run)
    check_open(run)
    if goal.deadline_seconds is not None:
        assert run.total_seconds <= goal.deadline_seconds * (1 + 1e-9)
    seen["moved"] += any(step.final.ending is Ending.MOVED for step in starts(run))
    if any(step.watch is not None and step.watch.fallback is not None for step in starts(run)):
        assert run.status is Status.DONE, "a fallback is certain"
        seen["done with a fallback at hand"] += 1


@pytest.mark.parametrize("seeds", SEEDS)
def test_watched_trainings_break_no_limit_however_slow_they_are(seeds: range) -> None:
    seen: Counter[str] = Counter()
    for seed in seeds:
        run, cloud = run_of(seed)
        check(run, cloud, seen)
    for what in ("watched", "without a fallback", "moved", "done with a fallback at hand", Ending.DONE):
        assert seen[what] >= 2, seen
    print(seen)
