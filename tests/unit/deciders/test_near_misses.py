"""Verifications of cheaper configurations whose load test fell short of the rate: when, and how many."""

from typing import Any

import pytest
from tests.replica_world import SLO, MadeUpServers, nodes_problem, run_of

from mlcd.goal import Goal, Objective
from mlcd.run.run import SearchRun
from mlcd.run.step import Role
from mlcd.space import Config
from mlcd.units import Usd

RATE = 100.0


class NoisyServers(MadeUpServers):
    """Whose load tests read `reading` times what a type really holds."""

    readings: dict[str, float]

    def perform(self, step: Any, situation: Any) -> Any:
        true = self.rate
        if step.role is Role.TRIAL:
            self.rate = lambda config: true(config) * self.readings[config.instance]
        try:
            return super().perform(step, situation)
        finally:
            self.rate = true


def searched(
    holds: dict[str, float],
    readings: dict[str, float],
    *,
    budget: str | None = None,
    noise: float = 0.05,
    rate: float = RATE,
) -> tuple[SearchRun, list[str]]:
    """A run over types at 1, 2, 3 ... dollars an hour, one setting each; the run and what was verified, in turn."""
    types = {name: float(number) for number, name in enumerate(holds, start=1)}
    goal = Goal(minimize=Objective.COST, rate=rate, slo=SLO, budget=Usd.of(budget) if budget else None)
    problem = nodes_problem(types, (1, 2), goal, noise=noise, max_trials=20)
    servers = NoisyServers(rate=lambda config: holds[config.instance] * (1.0 if config["batch"] == 8 else 0.1))
    servers.readings = readings
    run = run_of(problem, servers, "exhaustive")
    return run, [str(c).partition(",")[0] for role, c in servers.performed if role is Role.VERIFICATION]


def test_a_cheaper_one_that_fell_just_short_is_verified_first() -> None:
    run, verified = searched({"a": 105.0, "b": 150.0}, {"a": 0.93, "b": 1.0})
    assert verified == ["1 x a"]
    choice = run.serve_findings.choice
    assert choice is not None
    assert choice.config == Config.of({"instance": "a", "nodes": 1, "batch": 8})
    assert choice.requests_per_second == RATE


def test_where_it_does_not_hold_the_sure_one_follows() -> None:
    run, verified = searched({"a": 97.0, "b": 150.0}, {"a": 1.0, "b": 1.0})
    assert verified == ["1 x a", "1 x b"]
    assert run.serve_findings.choice is not None


def test_one_that_is_far_from_the_rate_is_not_tried() -> None:
    _, verified = searched({"a": 80.0, "b": 150.0}, {"a": 1.0, "b": 1.0})
    assert verified == ["1 x b"]


def test_not_more_than_two_are_tried() -> None:
    few = {"a": 48.0, "b": 97.0, "c": 97.0, "d": 97.0, "e": 97.0, "f": 250.0}  # at $1 to $6 an hour
    _, verified = searched(few, dict.fromkeys(few, 1.0))
    assert verified == ["1 x b", "2 x a", "2 x b"]  # one of c would be the third


@pytest.mark.parametrize(("budget", "first"), [("1", "1 x a"), ("0.105", "1 x b")])
def test_the_money_for_the_sure_choice_is_never_spent_on_it(budget: str, first: str) -> None:
    """A verification takes 100 s: $0.028 of `a`, $0.056 of `b`."""
    run, verified = searched({"a": 97.0, "b": 150.0}, {"a": 1.0, "b": 1.0}, budget=budget)
    assert run.serve_findings.choice is not None
    assert verified[0] == first
