"""Searches for servers on several nodes, at random: nothing is ever overspent, whatever load tests and nodes do."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.replica_world import BATCHES, SLO, MadeUpServers, nodes_problem, run_of

from mlcd.goal import Goal, Objective
from mlcd.run.attempt import Attempt
from mlcd.run.run import SearchRun
from mlcd.run.step import Role
from mlcd.space import Config
from mlcd.trial.outcome import Status
from mlcd.trial.trial import Failure, FailureKind, Measurement
from mlcd.units import Usd


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
        assert step.price == run.problem.price(step.config)  # all nodes counted
        assert isinstance(step.outcome, Measurement | Failure | Attempt)
        assert step.outcome.usd <= step.authorised_usd
    trials: list[Config] = [config for role, config in servers.performed if role is Role.TRIAL]
    if run.problem.scales_out:
        fewest = min(config.nodes for config in run.problem.space)
        assert all(config.nodes == fewest for config in trials)
    choice = run.serve_findings.choice
    if choice is not None:
        assert servers.performed[-1] == (Role.VERIFICATION, choice.config)
        assert goal.rate is None or choice.requests_per_second >= goal.rate
