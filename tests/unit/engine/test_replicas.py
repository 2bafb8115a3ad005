"""How many servers: load tests of one node, a choice of several, and its verification with all of them."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import yaml
from tests.replica_world import BATCHES, SLO, MadeUpServers, nodes_problem, run_of

from mlcd.catalog import Instance
from mlcd.cli.serve_files import write_command_files
from mlcd.clouds.serving.command import CommandServing
from mlcd.goal import Goal, Objective
from mlcd.problem import Problem
from mlcd.report.serving import serving_verdict
from mlcd.run.step import Role
from mlcd.search.serving.per_replica import PerReplica
from mlcd.space import Config
from mlcd.trial.outcome import Status
from mlcd.trial.plan import Remaining
from mlcd.trial.replicas import SCALING_ERROR, at_nodes, best_forms, with_replicas
from mlcd.trial.trial import FailureKind, History, Measurement, TokenLoad, TokenPoint
from mlcd.units import Usd

TYPES = {"small": 1.0, "large": 1.8}
RATES = {"small": 10.0, "large": 40.0}
COUNTS = (1, 2, 3)


def rate(config: Config) -> float:
    return RATES[config.instance] * BATCHES[int(config["batch"])]


def config(instance: str, nodes: int, batch: int) -> Config:
    return Config.of({"instance": instance, "nodes": nodes, "batch": batch})


def goal(**limits: object) -> Goal:
    return Goal(minimize=Objective.COST, slo=SLO, **limits)  # type: ignore[arg-type]


def test_the_fewest_nodes_are_tried_and_the_chosen_number_is_verified() -> None:
    servers = MadeUpServers(rate)
    run = run_of(nodes_problem(TYPES, COUNTS, goal(rate=200.0)), servers, "exhaustive")
    trials = [each for role, each in servers.performed if role is Role.TRIAL]
    assert {each.nodes for each in trials} == {1}
    assert len(trials) == len(set(trials)) == 4
    # 3 x large, batch 1 hold 120; 2 x large, batch 8 hold 240 for $3.60; 3 x small hold 90.
    assert servers.performed[len(trials) :] == [(Role.VERIFICATION, config("large", 2, 8))]
    choice = run.serve_findings.choice
    assert choice is not None
    assert choice.config == config("large", 2, 8)
    assert choice.measured_requests_per_second == pytest.approx(240.0)
    assert choice.usd_per_million.dollars == pytest.approx(3.6 / 3600 * 1e6 / 200)
    text = serving_verdict(run)
    assert "Serve with: 2 x large, batch=8" in text
    assert "held 90.0 of 200 requests/s" in text  # 3 x small, the most that it could be
    assert "not tried" not in text


def test_a_number_that_does_not_hold_the_rate_is_followed_by_the_next() -> None:
    servers = MadeUpServers(rate, add_up=lambda nodes: 1.0 if nodes == 1 else 0.8)
    run = run_of(nodes_problem(TYPES, COUNTS, goal(rate=200.0)), servers, "exhaustive")
    verified = [each for role, each in servers.performed if role is Role.VERIFICATION]
    assert verified == [config("large", 2, 8), config("large", 3, 8)]  # 192, then 288 requests/s
    assert run.status is Status.DONE
    assert run.serve_findings.choice is not None
    assert run.serve_findings.choice.config == config("large", 3, 8)


def test_the_highest_rate_takes_all_nodes() -> None:
    servers = MadeUpServers(rate)
    run_of(nodes_problem(TYPES, COUNTS, Goal(minimize=Objective.TIME, slo=SLO)), servers, "exhaustive")
    assert {each.nodes for role, each in servers.performed if role is Role.TRIAL} == {1}
    assert servers.performed[-1] == (Role.VERIFICATION, config("large", 3, 8))


def test_the_strategy_sees_rates_as_they_were_measured_where_all_types_grow_alike() -> None:
    """Beliefs about paces are about one server: beside a rate of three, no other type would seem worth a test."""
    problem = nodes_problem(TYPES, COUNTS, Goal(minimize=Objective.TIME, slo=SLO))
    one = measured(config("small", 1, 8))
    seen: list[float] = []

    class Looks:
        name, guarded = "looks", True

        def suggest(self, problem: Problem, history: History, remaining: Remaining, count: int) -> tuple[()]:
            seen.extend(trial.samples_per_second for trial in history.measured)
            return ()

    anything = Remaining(usd=None, seconds=None, allowed=np.ones(len(problem.space), dtype=bool))
    PerReplica(inner=cast(Any, Looks())).suggest(problem, History((one,)), anything, 1)
    assert seen == [one.samples_per_second]


def test_a_failure_excludes_its_settings_for_every_number() -> None:
    servers = MadeUpServers(rate, fails=lambda _number: FailureKind.ERROR)
    run = run_of(nodes_problem(TYPES, COUNTS, goal(rate=200.0)), servers, "exhaustive")
    assert run.status is Status.ALL_FAILED
    assert [each.nodes for _, each in servers.performed] == [1, 1, 1, 1]


@pytest.mark.parametrize("name", ["heterbo", "random", "auto"])
def test_any_strategy_searches_one_node(name: str) -> None:
    servers = MadeUpServers(rate)
    run = run_of(nodes_problem(TYPES, COUNTS, goal(rate=200.0), max_trials=4), servers, name)
    trials = [each for role, each in servers.performed if role is Role.TRIAL]
    assert {each.nodes for each in trials} == {1}
    assert len(set(trials)) == len(trials) <= 4
    assert run.status in (Status.DONE, Status.NOTHING_FITS)


def measured(of: Config) -> Measurement:
    servers = MadeUpServers(rate)
    problem = nodes_problem(TYPES, COUNTS, goal())
    run = run_of(nodes_problem(TYPES, COUNTS, goal(), scales_out=False), servers, "exhaustive")
    assert problem.space.configs == run.problem.space.configs
    return next(trial for trial in run.history.measured if trial.config == of)


def test_what_a_load_test_says_of_more_nodes() -> None:
    one = measured(config("small", 1, 8))
    three = at_nodes(one, config("small", 3, 8))
    assert three.samples_per_second == pytest.approx(3 * one.samples_per_second)
    assert three.relative_error > max(one.relative_error, SCALING_ERROR)
    assert three.usd.micros == 0  # nobody paid for it
    assert at_nodes(one, one.config) is one


def test_tokens_in_flight_and_a_second_add_up_over_nodes() -> None:
    one = measured(config("small", 1, 8))
    assert one.load is not None
    point = TokenPoint(concurrency=4.0, output_tokens_per_second=100.0, ttft_p95=0.1, tpot_p95=0.01, kept=True)
    tokens = TokenLoad(
        concurrency=4.0,
        requests_per_second=10.0,
        good_per_second=9.0,
        input_tokens_per_second=50.0,
        output_tokens_per_second=100.0,
        input_tokens=5.0,
        output_tokens=10.0,
        ttft=(0.1, 0.1, 0.1),
        tpot=(0.01, 0.01, 0.01),
        e2e=(0.2, 0.2, 0.2),
        front=(point,),
    )
    three = at_nodes(replace(one, load=replace(one.load, tokens=tokens)), config("small", 3, 8))
    assert three.load is not None
    assert three.load.tokens is not None
    seen = three.load.tokens
    assert (seen.concurrency, seen.requests_per_second, seen.output_tokens_per_second) == (12.0, 30.0, 300.0)
    assert (seen.ttft, seen.output_tokens) == (tokens.ttft, 10.0)
    assert (seen.front[0].concurrency, seen.front[0].output_tokens_per_second) == (12.0, 300.0)
    assert seen.front[0].ttft_p95 == 0.1


def test_a_measurement_is_not_replaced_by_what_follows_from_another() -> None:
    problem = nodes_problem(TYPES, COUNTS, goal(rate=20.0))
    one, two = measured(config("small", 1, 8)), measured(config("small", 2, 8))
    found = {trial.config: trial for trial in with_replicas(problem, History((one, two))).measured}
    assert found[one.config] is one
    assert found[two.config] is two
    assert set(found) == {config("small", n, 8) for n in COUNTS}
    assert with_replicas(nodes_problem(TYPES, COUNTS, goal(), scales_out=False), History((one,))) == History((one,))
    (form,) = best_forms(problem, History((one,)))
    assert form.config.nodes == 1  # 30 requests/s: one does


def test_written_files_start_the_chosen_number_on_such_nodes(tmp_path: Path) -> None:
    run = run_of(nodes_problem(TYPES, COUNTS, goal(rate=200.0)), MadeUpServers(rate), "exhaustive")
    large = Instance(
        cloud="slurm",
        name="large",
        vcpus=4,
        memory_gib=16,
        network_gbps=1.0,
        usd_per_hour=Usd.of("1.8"),
        accelerator="L4",
        accelerators=2,
    )
    nodes = SimpleNamespace(instances=(large,), engine=None)
    cloud = CommandServing(
        "serve --port $PORT", home=tmp_path, noise=0.1, folder=tmp_path, model="m", ready="/", cpus=tuple(range(64))
    )
    spec = SimpleNamespace(server=SimpleNamespace(image="made/up:1"), declared_knobs={"batch": (1, 8)})
    given: dict[str, Any] = {"spec": spec, "nodes": nodes}
    (file,) = write_command_files("kubernetes", tmp_path, run, cloud, **given)
    made, _ = yaml.safe_load_all(file.read_text())
    assert made["spec"]["replicas"] == 2
    (container,) = made["spec"]["template"]["spec"]["containers"]
    limits = container["resources"]["limits"]
    assert (limits["cpu"], limits["nvidia.com/gpu"]) == ("4", "2"), "of a node, not of the machine that mlcd runs on"
    assert {each["name"] for each in container["env"]} == {"batch", "MODEL", "HOST", "PORT"}
    assert "on 2 x large" in file.read_text()
