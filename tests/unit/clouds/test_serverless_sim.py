"""The simulated cloud of functions: the paper's rows, the laws, chance, and what it refuses."""

import json
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest

from mlcd.catalog.functions import function_prices
from mlcd.clouds.functions import EpochFailed, EpochOrder
from mlcd.clouds.functions.sim import NO_DEVIATION, Chance, FunctionLaws, SimFunctionCloud
from mlcd.clouds.functions.sim.workloads import (
    LOCALHOST,
    PAPER,
    TESTBED,
    TOY,
    SimWorkload,
    training_workload,
    tuning_workload,
    unseen_workload,
    workload,
)
from mlcd.errors import BadInput
from mlcd.goal import Goal, Objective
from mlcd.trial.epoch import Epoch, Fleet
from mlcd.units import Usd
from papers.siren_ec2 import findings, same_cost
from papers.siren_toy import toy_table

ANY = Goal(minimize=Objective.TIME)
PLENTY = Usd.of(10**6)
RESULTS = Path(__file__).parents[3] / "benchmarks" / "results" / "serverless-sync.json"


def train(made: SimWorkload, fleet: Fleet, *, seed: int = 0, calm: bool = True) -> list[Epoch]:
    laws = replace(made.laws, chance=NO_DEVIATION) if calm else made.laws
    problem = made.problem(ANY)
    cloud = SimFunctionCloud(problem=problem, laws=laws, seed=seed)
    epochs: list[Epoch] = []
    while not epochs or epochs[-1].loss > problem.target_loss:
        order = EpochOrder(number=len(epochs) + 1, fleet=fleet, seconds=1e9, usd=PLENTY)
        epochs.append(cloud.run_epoch(order))
    return epochs


@pytest.mark.parametrize(
    ("functions", "seconds", "usd"), [(138, 4979.7, 99.99), (482, 2816.9, 199.67), (828, 2452.3, 299.89)]
)
def test_the_papers_grid_rows_within_half_a_percent(functions: int, seconds: float, usd: float) -> None:
    epochs = train(PAPER, Fleet(functions, 1536))
    assert sum(epoch.seconds for epoch in epochs) == pytest.approx(seconds, rel=0.005)
    assert sum(epoch.usd.dollars for epoch in epochs) == pytest.approx(usd, rel=0.005)


def test_fifty_dollars_suffice_for_no_fixed_fleet() -> None:
    cheapest = min(
        sum(epoch.usd.dollars for epoch in train(PAPER, Fleet(functions, memory)))
        for functions in (1, 2, 5, 10, 20, 50, 138)
        for memory in (512, 1024, 1536, 3008)
    )
    assert cheapest > 50


def test_speed_grows_as_memory_to_the_power_of_0_9_up_to_3008_mb() -> None:
    laws = PAPER.laws
    assert laws.speed(3008) == pytest.approx((3008 / 1536) ** 0.9)
    assert laws.speed(768) == pytest.approx(0.5)
    assert laws.speed(10_240) == laws.speed(3008)


def test_an_epoch_is_the_same_for_the_same_order() -> None:
    first, again = (train(PAPER, Fleet(300, 2048), seed=3, calm=False) for _ in range(2))
    assert first == again
    assert first != train(PAPER, Fleet(300, 2048), seed=4, calm=False)


def test_chance_does_not_change_the_mean() -> None:
    totals = [sum(e.seconds for e in train(PAPER, Fleet(482, 1536), seed=seed, calm=False)) for seed in range(60)]
    assert sum(totals) / 60 == pytest.approx(2815.9, rel=0.02)


def test_progress_is_faster_early_with_many_and_late_with_few() -> None:
    laws = PAPER.laws
    assert laws.gain(1000, 0.0) > laws.gain(100, 0.0)
    assert laws.gain(1000, 9.0) < laws.gain(100, 9.0)


def test_a_run_continues_from_its_last_loss() -> None:
    problem = PAPER.problem(ANY)
    whole = train(PAPER, Fleet(482, 1536), seed=1, calm=False)
    cloud = SimFunctionCloud(problem=problem, laws=PAPER.laws, seed=1)
    cloud.restore("r", whole[:4])
    fifth = cloud.run_epoch(EpochOrder(number=5, fleet=Fleet(482, 1536), seconds=1e9, usd=PLENTY, run_id="r"))
    assert fifth.loss == pytest.approx(whole[4].loss, rel=1e-9)
    assert fifth.seconds == whole[4].seconds
    with pytest.raises(ValueError, match="before epoch 6"):
        cloud.run_epoch(EpochOrder(number=7, fleet=Fleet(482, 1536), seconds=1e9, usd=PLENTY, run_id="r"))


def test_too_little_memory_ends_the_epoch_and_costs_little() -> None:
    cloud = SimFunctionCloud(problem=PAPER.problem(ANY), laws=PAPER.laws)
    with pytest.raises(EpochFailed, match="ran out of memory") as caught:
        cloud.run_epoch(EpochOrder(number=1, fleet=Fleet(10, 128), seconds=1e9, usd=PLENTY))
    assert Usd(0) < caught.value.usd < Usd.of(1)


def test_too_many_failed_calls_end_the_epoch() -> None:
    broken = replace(PAPER.laws, chance=replace(PAPER.laws.chance, failure=0.3))
    cloud = SimFunctionCloud(problem=PAPER.problem(ANY), laws=broken)
    with pytest.raises(EpochFailed, match="more than may be repeated"):
        cloud.run_epoch(EpochOrder(number=1, fleet=Fleet(200, 1536), seconds=1e9, usd=PLENTY))


def test_failures_and_cold_starts_are_counted() -> None:
    shaky = replace(PAPER.laws, chance=replace(PAPER.laws.chance, failure=0.01))
    cloud = SimFunctionCloud(problem=replace(PAPER.problem(ANY), repeat_share=0.1), laws=shaky)
    first = cloud.run_epoch(EpochOrder(number=1, fleet=Fleet(800, 1536), seconds=1e9, usd=PLENTY))
    second = cloud.run_epoch(EpochOrder(number=2, fleet=Fleet(900, 1536), seconds=1e9, usd=PLENTY))
    third = cloud.run_epoch(EpochOrder(number=3, fleet=Fleet(900, 2048), seconds=1e9, usd=PLENTY))
    assert [e.cold_starts for e in (first, second, third)] == [800, 100, 900]
    assert first.failed > 0
    assert first.calls == 800 + first.failed


def test_calls_are_split_at_the_limit() -> None:
    epoch = train(PAPER, Fleet(20, 1536))[0]
    assert epoch.seconds > 2 * 900
    assert epoch.calls == 20 * (int(epoch.seconds // 900) + 1)


def test_training_and_unseen_workloads_differ_and_are_fixed() -> None:
    made = [training_workload(i).laws for i in range(20)] + [unseen_workload(i).laws for i in range(12)]
    made += [tuning_workload(i).laws for i in range(12)]
    assert len(set(made)) == 44
    assert training_workload(3) == workload("train-3")
    assert tuning_workload(3) == workload("tune-3")
    assert all(52 <= unseen_workload(i).cheapest_usd() <= 68 for i in range(12))
    with pytest.raises(BadInput, match="did you mean 'paper'"):
        workload("papre")


def test_invalid_laws_are_refused() -> None:
    with pytest.raises(ValueError, match="more than 0"):
        FunctionLaws(work_seconds=0.0, round_seconds=1.0)
    with pytest.raises(ValueError, match="epoch_seconds: must not be negative"):
        replace(PAPER.laws, call_seconds=-1.0)
    with pytest.raises(ValueError, match="first_loss: must be more than floor_loss"):
        replace(PAPER.laws, floor_loss=1.0)
    with pytest.raises(ValueError, match="straggler: must be in"):
        Chance(failure=0.6)
    with pytest.raises(ValueError, match="never has a loss"):
        PAPER.laws.progress(0.1)


def test_the_second_calibration_is_that_of_real_epochs() -> None:
    """Epochs of 1 to 12 functions of three sizes on lithops/localhost, by benchmarks/serverless_sync.py."""
    measured = json.loads(RESULTS.read_text())["calibration"]["rows"]
    errors = [abs(LOCALHOST.laws.seconds(r["functions"], r["memory_mb"]) / r["seconds"] - 1) for r in measured]
    assert len(errors) >= 15
    assert fmean(errors) < 0.1
    epochs = train(LOCALHOST, Fleet(8, 1024))
    assert 3 <= len(epochs) <= 6, "as the real trainings took"
    waited = LOCALHOST.laws.waiting_seconds(8)
    busy = [e.fetch.mean_seconds + e.compute.mean_seconds + e.update.mean_seconds for e in epochs]
    assert all(e.seconds > waited / 2 + b for e, b in zip(epochs, busy, strict=True)), "waiting is in no phase"
    price = function_prices("aws-lambda").usd_per_second(1024)
    assert all(e.usd.dollars < 8 * float(price) * e.seconds for e in epochs), "and is not paid for"


def test_the_toy_table_is_the_papers() -> None:
    rows = toy_table()
    for row in rows:
        assert row.seconds == pytest.approx(row.paper_seconds, rel=0.01), row.what
        assert row.loss == pytest.approx(row.paper_loss, rel=0.006), row.what
        assert row.usd == pytest.approx(row.paper_usd, abs=0.0012), row.what
    assert [row.epochs for row in rows] == [6, 6, 6, 5]
    assert TOY.laws.epochs(20) == 6


def test_functions_are_faster_and_hardly_cheaper() -> None:
    lenet = [line.less_time for line in same_cost(TESTBED["lenet-mnist"], hourly=True) if line.less_time is not None]
    assert max(lenet) == pytest.approx(0.443, abs=0.002)
    for found in findings():
        assert found.speedup > 1
        assert found.cheaper < 1
