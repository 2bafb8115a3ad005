"""Searches for servers on several nodes, at random: nothing is ever overspent, whatever load tests and nodes do."""

import random
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.replica_world import BATCHES, SLO, MadeUpServers, nodes_problem, run_of

from mlcd.goal import Goal, Objective
from mlcd.run.attempt import Attempt
from mlcd.run.run import SearchRun
from mlcd.run.step import Role
from mlcd.space import Config
from mlcd.trial.outcome import Status
from mlcd.trial.plan import Remaining, best_fitting
from mlcd.trial.replicas import with_replicas
from mlcd.trial.trial import Failure, FailureKind, History, Measurement
from mlcd.units import ZERO, Usd


def a_run(seed: int) -> tuple[SearchRun, MadeUpServers]:
    rng = random.Random(seed)
    types = {f"t{i}": round(10 ** rng.uniform(-1, 1.5), 4) for i in range(rng.randint(1, 4))}
    speeds = {name: 10 ** rng.uniform(0, 3) for name in types}
    counts = tuple(sorted(rng.sample(range(1, 12), rng.randint(2, 5))))
    most = max(speeds.values()) * max(counts) * max(BATCHES.values())
    rate = most * rng.uniform(0.01, 1.2) if rng.random() < 0.8 else None
    minimize = rng.choice((Objective.COST, Objective.TIME)) if rate is None else Objective.COST
    dearest = max(types.values()) * max(counts)
    budget = Usd.of(str(round(dearest * 100 / 3600 * 10 ** rng.uniform(-1.5, 1.5), 6)))
    goal = Goal(
        minimize=minimize,
        rate=rate,
        slo=SLO,
        budget=budget if rng.random() < 0.8 else None,
        deadline_seconds=rng.uniform(50, 2000) if rng.random() < 0.5 else None,
    )
    problem = nodes_problem(types, counts, goal, max_trials=rng.randint(1, 10), scales_out=rng.random() < 0.8)
    if rng.random() < 0.5:  # a node more of each lease sends the load
        leases = tuple(Usd.of(str(types[c.instance])) * (c.nodes + 1) for c in problem.space)
        problem = replace(problem, lease_usd_per_hour=leases)
    chance = rng.choice((0.0, 0.2, 0.7))
    kinds = [kind for kind in FailureKind if kind not in (FailureKind.STOPPED, FailureKind.OVERRAN)]
    servers = MadeUpServers(
        rate=lambda config: speeds[config.instance] * BATCHES[int(config["batch"])],
        add_up=lambda nodes: 1.0 if nodes == 1 else rng.uniform(0.5, 1.1),
        fails=lambda _number: rng.choice(kinds) if rng.random() < chance else None,
        share=lambda _number: rng.choice((1.0, rng.random())),
    )
    return run_of(problem, servers, rng.choice(("heterbo", "random", "exhaustive")), seed), servers


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9))
def test_several_nodes_never_cost_more_than_the_budget(seed: int) -> None:
    run, servers = a_run(seed)
    goal = run.problem.goal
    assert goal.budget is None or run.total_usd <= goal.budget
    assert goal.deadline_seconds is None or run.total_seconds <= goal.deadline_seconds + 1e-6
    assert run.status is not Status.OVERRAN
    for step in run.steps:
        assert step.price == run.problem.lease_price(step.config)  # all nodes counted
        assert isinstance(step.outcome, Measurement | Failure | Attempt)
        assert step.outcome.usd <= step.authorised_usd
    trials: list[Config] = [config for role, config in servers.performed if role is Role.TRIAL]
    if run.problem.scales_out:
        fewest = min(config.nodes for config in run.problem.space)
        assert all(config.nodes == fewest for config in trials)
    check_reserves(run)
    choice = run.serve_findings.choice
    if choice is not None:
        assert servers.performed[-1] == (Role.VERIFICATION, choice.config)
        assert goal.rate is None or choice.requests_per_second >= goal.rate
        assert choice.usd_per_million == run.problem.price(choice.config).for_seconds(1e6 / choice.requests_per_second)


def check_reserves(run: SearchRun) -> None:
    """At every start of a load test, its worst case and a verification still fit into the budget, all nodes counted.

    Before anything that could be verified is measured: a verification of that load test's own nodes. From then on: that
    of the best number of nodes so far, however many they are.
    """
    problem, budget = run.problem, run.problem.goal.budget
    if budget is None:
        return
    spent = ZERO
    for number, step in enumerate(run.steps):
        assert isinstance(step.outcome, Measurement | Failure | Attempt)
        if step.role is Role.TRIAL:
            earlier = History(
                tuple(s.outcome for s in run.steps[:number] if isinstance(s.outcome, Measurement | Failure))
            )
            room = Remaining(usd=budget - spent, seconds=None, allowed=np.ones(len(problem.space), dtype=bool))
            kept = best_fitting(problem, with_replicas(problem, earlier), room)
            verified = step.config if kept is None else kept.config
            cost = problem.lease_price(verified).for_seconds(problem.verify_seconds or 0.0)
            assert spent + step.authorised_usd + cost <= budget
        spent += step.outcome.usd


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**9))
def test_what_could_not_be_verified_is_told_with_the_budget_that_would_do(seed: int) -> None:
    """Servers that add up and hold the rate, and a budget that is too small for the verification of so many."""
    rng = random.Random(seed)
    needed = rng.randint(2, 6)
    goal = Goal(minimize=Objective.COST, rate=10.0 * needed * 0.9, slo=SLO, budget=Usd.of(str(rng.uniform(0.02, 0.2))))
    problem = nodes_problem({"a": 1.0}, (1, 2, 3, 4, 5, 6), goal, max_trials=rng.randint(1, 4))
    servers = MadeUpServers(rate=lambda config: 10.0 / BATCHES[8] * BATCHES[int(config["batch"])])
    run = run_of(problem, servers, rng.choice(("heterbo", "random", "exhaustive")), seed)
    assert goal.budget is not None
    assert run.total_usd <= goal.budget
    measured = [trial for trial in with_replicas(problem, run.history).measured if trial.meets(goal)]
    if run.serve_findings.choice is None and measured:
        texts = [way.text for way in run.relaxations]
        assert any("would fit with a budget of $" in text for text in texts), texts
