"""What each figure of `mlcd bench train` counts, by hand."""

import math
from dataclasses import replace
from statistics import stdev
from typing import Any, cast

import pytest

from mlcd.bench.case import UNFINISHED_RATIO, GoalKind, TrainRow, is_unseen, row, search
from mlcd.bench.protocol import TrainProtocol
from mlcd.bench.train import as_json, summarise
from mlcd.bench.workloads import table_cloud, table_truth
from mlcd.clouds.provider import Cloud, Order, Purpose
from mlcd.clouds.replay import ReplayInstance, ReplayWorkload
from mlcd.problem import TrialPolicy
from mlcd.profiler.measure import measure
from mlcd.space import Config
from mlcd.trial.trial import Measurement
from mlcd.units import Usd

CHEAP, QUICK = Config.deployment("small", 1), Config.deployment("large", 1)
WORKLOAD = ReplayWorkload(
    name="job",
    seconds={CHEAP: 4 * 3600.0, Config.deployment("small", 2): 3 * 3600.0, QUICK: 3600.0},
    instances={
        "small": ReplayInstance(name="small", usd_per_hour=Usd.of("0.10")),
        "large": ReplayInstance(name="large", usd_per_hour=Usd.of("1.00")),
    },
)


def made(kind: GoalKind, strategy: str, hours: float = 1.0) -> TrainRow:
    protocol = TrainProtocol(hours=hours, noise=0.0)
    truth = table_truth(WORKLOAD, protocol)
    problem = truth.with_goal(kind, protocol)
    optimum = truth.optimum(problem.goal)
    assert optimum is not None
    cloud = table_cloud(WORKLOAD, protocol, seed=0)
    return row(truth, search(problem, cloud, strategy, seed=0), kind=kind, protocol=protocol, optimum=optimum)


def test_a_run_over_its_budget_is_violated() -> None:
    found = made(GoalKind.BUDGET, "exhaustive")
    assert found.limit_usd == pytest.approx(0.60), "half as much again as the cheapest"
    assert found.total_usd == pytest.approx((0.10 + 0.20 + 1.00) / 6 + 0.60, abs=1e-4), "three trials and the training"
    assert found.status == "violated"
    assert found.counted_ratio >= UNFINISHED_RATIO
    assert summarise([found])[0].violations == 1


def test_the_ratio_counts_the_search_and_the_training() -> None:
    found = made(GoalKind.FASTEST, "exhaustive")
    assert (found.status, found.train_seconds, found.optimum) == ("done", 3600.0, 3600.0)
    assert found.probe_seconds == 3 * 600.0, "three trials, one after the other"
    assert found.total_seconds == 3600.0 + 3 * 600.0
    assert found.ratio == pytest.approx(1.5)


def test_the_optimum_keeps_the_limits() -> None:
    protocol = TrainProtocol(hours=1.0, noise=0.0)
    truth = table_truth(WORKLOAD, protocol)
    assert truth.optimum(truth.with_goal(GoalKind.FASTEST, protocol).goal) == 3600.0
    assert truth.optimum(truth.with_goal(GoalKind.BUDGET, protocol).goal) == 3 * 3600.0, (
        "the fastest costs $1, over $0.60"
    )
    assert truth.optimum(truth.with_goal(GoalKind.CHEAPEST, protocol).goal) == 1.0, "the cheapest takes 4 h, over 2.5 h"


def plain(workload: str = "d", ratio: float | None = 1.0, *, status: str = "done", **changed: Any) -> TrainRow:
    found = TrainRow(
        workload=workload,
        unseen=False,
        strategy="heterbo",
        goal="fastest",
        hours=1.0,
        seed=0,
        status=status,
        trials=4,
        probe_seconds=100.0,
        probe_usd=3.0,
        train_seconds=900.0,
        train_usd=1.0,
        total_seconds=1000.0,
        total_usd=4.0,
        limit_seconds=None,
        limit_usd=None,
        optimum=900.0,
        ratio=ratio,
    )
    return replace(found, **changed)


def test_an_unfinished_run_counts_as_a_bad_one() -> None:
    assert plain(ratio=1.2, status="violated").counted_ratio == UNFINISHED_RATIO
    assert plain(ratio=None, status="unfinished").counted_ratio == UNFINISHED_RATIO
    assert plain(ratio=7.0, status="violated").counted_ratio == 7.0
    assert plain(ratio=1.2).counted_ratio == 1.2


def test_the_searchs_share_is_in_the_unit_of_the_goal() -> None:
    assert plain().probe_share == 0.1
    assert plain(goal="cheapest").probe_share == 0.75


def test_the_interval_resamples_workloads() -> None:
    rows = [plain("a", 1.0), plain("a", 1.0), plain("b", 3.0), plain("b", 3.0)]
    (found,) = summarise(rows)
    assert found.mean_ratio == 2.0
    assert found.ratio_interval == (1.0, 3.0), "a quarter of the samples has only one of the two"
    (alone,) = summarise(rows[:2])
    assert alone.ratio_interval == (1.0, 1.0)


def test_the_interval_is_of_the_mean_over_runs() -> None:
    rows = [plain("many", 1.0)] * 9 + [plain(f"single-{at}", 2.0) for at in range(9)]
    (found,) = summarise(rows)
    assert found.mean_ratio == 1.5
    assert found.ratio_interval[0] < 1.5 < found.ratio_interval[1]


def test_held_out_workloads_are_summarised_apart() -> None:
    assert [is_unseen(name) for name in "abcd"] == [False, False, True, True]
    rows = [plain("a", 1.0), plain("c", 2.0, unseen=True)]
    found = as_json(rows)
    apart = {key: cast(list[dict[str, Any]], found[key])[0] for key in ("summary", "summary_seen", "summary_unseen")}
    assert {key: line["mean_ratio"] for key, line in apart.items()} == {
        "summary": 1.5,
        "summary_seen": 1.0,
        "summary_unseen": 2.0,
    }


def speed(cloud: Cloud) -> float:
    trial = measure(cloud, QUICK, attempt=1, policy=TrialPolicy(extension=0.0), usd_per_hour=Usd.of(1))
    assert isinstance(trial, Measurement)
    return trial.samples_per_second


def trained(cloud: Cloud) -> float:
    with cloud.lease(Order(config=QUICK, attempt=1, purpose=Purpose.RUN, seconds=1e9)) as lease:
        points = lease.progress()
        next(points)
        point = next(points)
    return point.samples / point.seconds


def test_trials_of_a_table_have_noise_and_the_training_has_not() -> None:
    clouds = [
        table_cloud(WORKLOAD, TrainProtocol(hours=1.0, noise=0.1, run_noise=0.0), seed=seed) for seed in range(60)
    ]
    assert stdev(math.log(speed(cloud) * 3600) for cloud in clouds) == pytest.approx(0.1, rel=0.3)
    assert {round(trained(cloud) * 3600, 9) for cloud in clouds} == {1.0}


def test_the_experiment_with_a_noisy_training_has_one() -> None:
    clouds = [
        table_cloud(WORKLOAD, TrainProtocol(hours=1.0, noise=0.0, run_noise=0.1), seed=seed) for seed in range(60)
    ]
    assert stdev(math.log(trained(cloud) * 3600) for cloud in clouds) == pytest.approx(0.1, rel=0.3)
    assert {round(speed(cloud) * 3600, 9) for cloud in clouds} == {1.0}
