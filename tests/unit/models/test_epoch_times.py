"""Epoch times: what was measured is predicted, whatever the law; sizes far from it follow the trend."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mlcd.clouds.functions import EpochOrder
from mlcd.clouds.functions.sim import NO_DEVIATION, FunctionLaws, SimFunctionCloud
from mlcd.clouds.functions.sim.workloads import LOCALHOST, PAPER, SimWorkload
from mlcd.goal import Goal, Objective
from mlcd.models.epoch_times import EpochTimes, fit_overhead
from mlcd.models.epochs import PRIOR
from mlcd.trial.epoch import Epoch, Fleet
from mlcd.units import Usd

FLEETS = (Fleet(100, 3008, 0.4), Fleet(300, 1408, 0.2), Fleet(300, 2048, 0.2), Fleet(600, 2048), Fleet(200, 2048))


def epochs_of(made: SimWorkload, fleets: tuple[Fleet, ...] = FLEETS, **laws: Any) -> tuple[FunctionLaws, list[Epoch]]:
    calm = replace(made.laws, chance=NO_DEVIATION, **laws)
    cloud = SimFunctionCloud(problem=made.problem(Goal(minimize=Objective.TIME)), laws=calm)
    found = [
        cloud.run_epoch(EpochOrder(number=number, fleet=fleet, seconds=1e9, usd=Usd.of(10**6)))
        for number, fleet in enumerate(fleets, start=1)
    ]
    return calm, found


def fit(epochs: list[Epoch]) -> EpochTimes:
    return EpochTimes.fit(epochs, samples=PAPER.samples, puts=198, prior=PRIOR.times)


@pytest.mark.parametrize(
    "law", [{}, {"fastest_mb": 1600.0}, {"memory_step_mb": 886.0}, {"straggling": 0.3}, {"storage_functions": 400.0}]
)
def test_times_near_what_was_measured(law: dict[str, Any]) -> None:
    laws, epochs = epochs_of(PAPER, **law)
    n, m = np.array([600.0, 400.0, 300.0]), np.array([2048.0, 2048.0, 3008.0])
    predicted = fit(epochs).seconds(n, m)
    for at in range(3):
        assert predicted[at] == pytest.approx(laws.seconds(float(n[at]), float(m[at])), rel=0.1)


def test_memory_that_brings_no_speed_is_seen() -> None:
    _, saturated = epochs_of(PAPER, fastest_mb=1600.0)
    _, growing = epochs_of(PAPER)
    n, m = np.full(2, 300.0), np.array([2048.0, 3008.0])
    small, large = fit(saturated).seconds(n, m)
    assert large > 0.93 * small
    small, large = fit(growing).seconds(n, m)
    assert large < 0.8 * small


def test_a_size_far_from_any_measured_one_follows_the_trend() -> None:
    _, epochs = epochs_of(PAPER, fastest_mb=1600.0)
    power = PRIOR.memory_power[0]
    large, larger = fit(epochs).seconds(np.full(2, 300.0), np.array([40_000.0, 80_000.0]))
    assert large / larger == pytest.approx(2**power, rel=0.15)


def test_waiting_for_the_slowest_is_told_from_starting_functions() -> None:
    _, stragglers = epochs_of(PAPER, (*FLEETS, *FLEETS), straggling=0.3)
    (share, growth), (epoch, call) = fit_overhead(stragglers)
    assert share + growth * 0.6**0.5 == pytest.approx(0.3 * math.log(601) / math.log(1001), rel=0.25)
    assert epoch + call * 600 < 5
    _, starting = epochs_of(LOCALHOST, (Fleet(2, 512), Fleet(8, 1769), Fleet(12, 1024), Fleet(4, 1024, 0.5)))
    (share, growth), (epoch, call) = fit_overhead(starting)
    assert epoch + call * 8 == pytest.approx(LOCALHOST.laws.waiting_seconds(8.0), rel=0.1)
    assert fit_overhead([]) == ((0.0, 0.0), (0.0, 0.0))
