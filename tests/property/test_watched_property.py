"""Watched trainings at random, on deployments up to three times slower than their trials: no limit is broken."""

import random
from collections import Counter
from dataclasses import replace

import pytest
from tests.property.test_beside_property import check_books, check_open
from tests.property.test_search_property import a_search
from tests.synthetic import Listed, driven, make_engine

from mlcd.clouds.provider import Cloud, Lease, Order
from mlcd.clouds.wrappers import SlowerRun, Wrapped
from mlcd.goal import Goal, Objective
from mlcd.problem import Problem
from mlcd.run.attempt import Ending
from mlcd.run.run import SearchRun
from mlcd.run.step import Role, Step
from mlcd.space import Config
from mlcd.store.store import Store
from mlcd.trial.outcome import Status
from mlcd.units import Usd

SEEDS = [pytest.param(range(150), id="150"), pytest.param(range(150, 2000), id="2000", marks=pytest.mark.extra)]


class SlowerOnSome(Wrapped):
    """Trainings are slower than their trials on some deployments: by the share that each has."""

    def __init__(self, inner: Cloud, shares: dict[Config, float]) -> None:
        super().__init__(inner)
        self.shares = shares

    def lease(self, order: Order) -> Lease:
        share = self.shares.get(order.config, 0.0)
        return SlowerRun(self.inner, share=share).lease(order) if share else self.inner.lease(order)


def watched_search(seed: int) -> tuple[Problem, SlowerOnSome, Listed | None, str, int]:
    """A problem that is watched, a cloud whose trainings may be slower than trials, who searches, trials at once."""
    rng = random.Random(f"watched|{seed}")
    problem, cloud, text, parallel = a_search(rng)
    while not problem.goal.is_limited or problem.noise == 0 or len(problem.space) < 2:
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
    listed = None
    if rng.random() < 0.7:
        problem, listed = close_call(problem, cloud, rng)
    return problem, SlowerOnSome(cloud, slow), listed, rng.choice((text, "auto")), parallel


def close_call(problem: Problem, cloud: Cloud, rng: random.Random) -> tuple[Problem, Listed | None]:
    """The problem with limits that one of a few listed deployments is expected to fit, but not certain to."""
    ask = cloud.true_samples_per_second  # type: ignore[attr-defined]
    known = {config: speed for config in problem.space if (speed := ask(config)) is not None}
    if not known:
        return problem, None
    configs = rng.sample(sorted(known, key=str), min(len(known), rng.randint(1, 4)))
    seconds = {config: problem.work_samples / known[config] + 60.0 for config in configs}
    usd = {config: problem.price(config).for_seconds(seconds[config]).dollars for config in configs}
    objective = rng.choice((Objective.TIME, Objective.COST))
    needs, limit = (usd, "budget") if objective is Objective.TIME else (seconds, "deadline")
    one = rng.choice(sorted(configs, key=lambda config: needs[config])[1:] or configs)  # another may be a fallback
    trials = {config: problem.trial.planned_seconds(config.nodes) for config in configs}
    paid = sum(problem.price(config).for_seconds(trials[config]).dollars for config in configs)
    room = 1 + problem.noise * rng.uniform(0.5, 6.0)
    is_both = rng.random() < 0.2
    goal = Goal(
        minimize=objective,
        budget=Usd.of(round(paid + room * usd[one], 6)) if limit == "budget" or is_both else None,
        deadline_seconds=sum(trials.values()) + room * seconds[one] if limit == "deadline" or is_both else None,
    )
    return replace(problem, goal=goal, max_trials=20), Listed(configs=tuple(configs))


def run_of(seed: int) -> tuple[SearchRun, SlowerOnSome]:
    problem, cloud, listed, text, parallel = watched_search(seed)
    with Store(None) as store:
        engine = make_engine(problem, cloud, store, text, seed=seed, parallel=parallel, chosen=listed)
        return driven(engine, store), cloud


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
    seen["left for its fallback or ended"] += any(step.final.ending is Ending.MOVED for step in starts(run))
    if any(step.watch is not None and step.watch.fallback is not None for step in starts(run)):
        assert run.status is Status.DONE, "a fallback is certain"
        seen["done with a fallback at hand"] += 1


@pytest.mark.parametrize("seeds", SEEDS)
def test_watched_trainings_break_no_limit_however_slow_they_are(seeds: range) -> None:
    seen: Counter[str] = Counter()
    for seed in seeds:
        run, cloud = run_of(seed)
        check(run, cloud, seen)
    for what in (
        "watched",
        "without a fallback",
        "left for its fallback or ended",
        Ending.MOVED,
        "done with a fallback at hand",
        Ending.DONE,
    ):
        assert seen[what] >= 2, seen
