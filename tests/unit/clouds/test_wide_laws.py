"""The laws of `wide-N`: losses that fall, times that rise, draws that repeat, laws kept for unseen workloads."""

import ast
import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import mlcd
from mlcd.bench.serverless.compare import workload_names
from mlcd.clouds.functions import EpochOrder
from mlcd.clouds.functions.sim import NO_DEVIATION, SimFunctionCloud
from mlcd.clouds.functions.sim.losses import (
    Exponential,
    Inverse,
    Logarithmic,
    LossShape,
    Plateau,
    Power,
    SlowStart,
    TwoPhase,
    TwoScales,
)
from mlcd.clouds.functions.sim.wide import TUNING, UNSEEN_ONLY, families, is_unseen
from mlcd.clouds.functions.sim.workloads import PAPER, WIDE_COUNT, SimWorkload, wide_names, workload
from mlcd.goal import Goal, Objective
from mlcd.trial.epoch import Epoch, Fleet
from mlcd.units import Usd

SHAPES: dict[str, LossShape] = {
    "inverse": Inverse(half=2.0),
    "exponential": Exponential(scale=4.0),
    "power": Power(scale=1.0, power=0.5),
    "two-phase": TwoPhase(scale=2.0, level=0.4, step=5.0, later_scale=3.0, drop=0.3),
    "plateau": Plateau(scale=4.0, start=2.0, end=5.0),
    "logarithmic": Logarithmic(scale=1.0, end=20.0),
    "two-scales": TwoScales(quick=0.6, quick_scale=1.0, slow_scale=8.0),
    "slow-start": SlowStart(half=4.0, power=2.0),
}
KINDS = ("losses", "times", "memory", "progress")


def epochs_of(made: SimWorkload, shares: Sequence[float], *, seed: int = 0) -> list[Epoch]:
    cloud = SimFunctionCloud(problem=made.problem(Goal(minimize=Objective.TIME)), laws=made.laws, seed=seed)
    plenty = Usd.of(10**6)
    return [
        cloud.run_epoch(EpochOrder(number=number, fleet=Fleet(200, 1536, share), seconds=1e9, usd=plenty))
        for number, share in enumerate(shares, start=1)
    ]


@pytest.mark.parametrize("name", SHAPES)
def test_every_loss_falls_from_its_first_value_and_can_be_inverted(name: str) -> None:
    laws = replace(PAPER.laws, shape=SHAPES[name])
    assert laws.loss(0.0) == pytest.approx(laws.first_loss)
    losses = [laws.loss(k) for k in np.linspace(0, 15, 61)]
    assert all(later < earlier for earlier, later in itertools.pairwise(losses))
    assert min(losses) > laws.floor_loss
    assert laws.progress(laws.loss(7.3)) == pytest.approx(7.3)
    with pytest.raises(ValueError, match="never has a loss"):
        laws.progress(laws.floor_loss)


def test_the_shapes_are_different_laws() -> None:
    assert set(SHAPES) == {*TUNING.losses, *UNSEEN_ONLY.losses}
    assert Power(scale=1.0, power=0.5).remaining(399.0) == pytest.approx(1 / 20)
    assert TwoPhase(scale=2.0, level=0.4, step=5.0, later_scale=3.0, drop=0.3).remaining(1e9) < 0.3 * 0.5
    on, off = (SHAPES["plateau"].remaining(at) - SHAPES["plateau"].remaining(at + 1) for at in (3.0, 5.0))
    assert on < 0.3 * off, "it hardly falls on the plateau"
    with pytest.raises(ValueError, match="half: must be more than 0"):
        Inverse(half=0.0)


def test_times_of_each_law() -> None:
    laws = replace(PAPER.laws, chance=NO_DEVIATION)
    plain = laws.seconds(1000.0, 1536)
    assert replace(laws, straggling=0.2).seconds(1000.0, 1536) == pytest.approx(1.2 * plain)
    fewer = 1 + 0.2 * math.log(251) / math.log(1001)
    assert replace(laws, straggling=0.2).seconds(250.0, 1536) == pytest.approx(fewer * laws.seconds(250.0, 1536))
    squared = replace(laws, contention=0.5, contention_power=2.0)
    assert squared.update_seconds(2000.0, 1536) == pytest.approx(3 * laws.update_seconds(2000.0, 1536))
    limited = replace(laws, storage_functions=500.0)
    assert limited.update_seconds(5000.0, 1536) == pytest.approx(10 * laws.update_seconds(5000.0, 1536), rel=0.01)
    assert limited.update_seconds(100.0, 1536) == pytest.approx(laws.update_seconds(100.0, 1536), rel=0.01)
    stepped = replace(laws, memory_step_mb=886.0)
    assert stepped.speed(1600) == stepped.speed(1536) == 1.0
    assert stepped.speed(1772) > 1.5
    critical = replace(laws, early_gain=0.0, staleness=0.0, critical_functions=500.0)
    assert critical.gain(500.0, 0.0) == pytest.approx(0.5)
    assert critical.gain(500.0, laws.target_epochs) == pytest.approx(5 / 6)
    many = np.array([100.0, 1000.0])
    assert np.allclose(limited.seconds(many, 2048), [limited.seconds(float(n), 2048) for n in many])


def test_measured_losses_deviate_and_a_run_continues_with_the_same_deviation() -> None:
    noisy = replace(PAPER, laws=replace(PAPER.laws, chance=replace(NO_DEVIATION, loss=0.02)))
    calm = replace(PAPER, laws=replace(PAPER.laws, chance=NO_DEVIATION))
    shares = [0.01, 0.01, 1.0, 1.0]
    seen, true = epochs_of(noisy, shares), epochs_of(calm, shares)
    floor = PAPER.laws.floor_loss
    off = [np.log((a.loss - floor) / (b.loss - floor)) / 0.02 for a, b in zip(seen, true, strict=True)]
    assert all(abs(value) < 5 for value in off)
    assert abs(off[1] - off[0]) < 0.5 * abs(off[3] - off[2]) + 0.6, "two small parts have nearly the same deviation"
    assert epochs_of(noisy, shares)[-1].loss == seen[-1].loss
    problem = noisy.problem(Goal(minimize=Objective.TIME))
    again = SimFunctionCloud(problem=problem, laws=noisy.laws)
    again.restore("", seen[:2])
    order = EpochOrder(number=3, fleet=Fleet(200, 1536), seconds=1e9, usd=Usd.of(10**6))
    assert again.run_epoch(order).loss == seen[2].loss
    spread = np.std([np.log(epochs_of(noisy, [1.0], seed=seed)[0].loss - floor) for seed in range(60)])
    assert 0.012 < spread < 0.03


def test_tuning_workloads_have_no_law_that_is_kept_for_unseen_ones() -> None:
    tuning = [families(name) for name in wide_names(60, unseen=False)]
    unseen = [families(name) for name in wide_names(60, unseen=True)]
    for kind in KINDS:
        kept, shared = set(getattr(UNSEEN_ONLY, kind)), set(getattr(TUNING, kind))
        assert {chosen[kind] for chosen in tuning} == shared
        assert {chosen[kind] for chosen in unseen} == kept | shared
    assert not any(is_unseen(name) for name in wide_names(60, unseen=False))
    measured = workload_names("wide")
    assert measured == wide_names(WIDE_COUNT, unseen=True)
    assert any(set(families(name).values()) & {*UNSEEN_ONLY.losses} for name in measured)


def test_a_workload_is_drawn_by_its_name() -> None:
    assert workload("wide-3") == workload("wide-3")
    assert workload("wide-3").laws != workload("wide-4").laws
    for name in wide_names(12, unseen=True):
        made = workload(name)
        assert 52 <= made.cheapest_usd() <= 68.01
        assert made.laws.chance.loss > 0
        assert made.laws.loss(made.laws.target_epochs) <= made.laws.target_loss


def imports(folder: Path) -> set[str]:
    found: set[str] = set()
    for file in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module)
            elif isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
    return found


def test_simulator_and_schedulers_share_no_law() -> None:
    package = Path(mlcd.__file__).parent
    simulator = imports(package / "clouds" / "functions" / "sim")
    assert not {name for name in simulator if name.startswith(("mlcd.models", "mlcd.schedulers", "mlcd.bench"))}
    for room in ("schedulers", "models"):
        assert not {name for name in imports(package / room) if name.startswith("mlcd.clouds")}
