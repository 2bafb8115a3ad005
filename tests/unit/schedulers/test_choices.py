"""Which fleet is next and for how much of an epoch, for fleets and forecasts that are made up."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mlcd.clouds.functions.sim.workloads import PAPER
from mlcd.goal import Goal, Objective
from mlcd.schedulers.keeping import CONTINUE_MARGIN, _can_continue
from mlcd.schedulers.parts import MpcSettings, next_part
from mlcd.schedulers.planning import PLANNING, Fleets, candidates, frugal, most_share
from mlcd.trial.epoch import FailedEpoch, Fleet, RemainingEpochs
from mlcd.units import Usd

PROBLEM = PAPER.problem(Goal(minimize=Objective.TIME, budget=Usd.of(300)))
FLEETS = Fleets(
    functions=np.array([100.0]),
    memory_mb=np.array([3008.0]),
    seconds=np.array([600.0]),
    usd=np.array([10.0]),
    most_share=np.array([1.0]),
)
REMAINING = RemainingEpochs(usd=Usd.of(300), seconds=None, epochs=50.0, cap_seconds=np.full((1, 1), 1e4))


def forecast(epochs_left: float, gain: float) -> Any:
    """Of a training whose end is known: each epoch gains `gain`, and functions start at once."""
    return SimpleNamespace(
        epochs_left=epochs_left,
        epochs_left_deviation=0.0,
        stage=0.9,
        gain=lambda functions, _stage: np.full(np.broadcast_shapes(np.shape(functions), np.shape(_stage)), gain),
        usual_gain=lambda functions: np.full(np.shape(functions), gain),
        overhead=lambda functions: np.zeros(np.shape(functions)),
    )


@pytest.mark.parametrize(
    ("epochs_left", "gain", "share"), [(0.4, 1.0, 0.4), (0.4, 0.5, 0.8), (3.0, 1.0, 1.0), (0.4, 2.0, 0.2)]
)
def test_the_last_part_is_what_the_target_needs(epochs_left: float, gain: float, share: float) -> None:
    fleet = next_part(PROBLEM, forecast(epochs_left, gain), REMAINING, FLEETS, passes=5.0)
    assert fleet is not None
    assert fleet.share == pytest.approx(share)


def test_money_is_held_back_for_the_last_part() -> None:
    """The fast fleet costs $10 of $10.50: nothing would be left for a last part that falls short."""
    two = Fleets(
        functions=np.array([100.0, 50.0]),
        memory_mb=np.array([3008.0, 3008.0]),
        seconds=np.array([100.0, 200.0]),
        usd=np.array([10.0, 8.0]),
        most_share=np.array([1.0, 1.0]),
    )
    settings = MpcSettings(kept_back_epochs=0.15, kept_back_share=0.2)
    for budget, functions in (("10.50", 50), ("12", 100)):
        remaining = replace(REMAINING, usd=Usd.of(budget))
        fleet = next_part(PROBLEM, forecast(1.0, 1.0), remaining, two, passes=5.0, settings=settings)
        assert fleet is not None
        assert fleet.functions == functions


def test_where_no_plan_fits_the_fastest_of_the_cheap_fleets_is_taken() -> None:
    three = Fleets(
        functions=np.array([1.0, 2.0, 3.0]),
        memory_mb=np.full(3, 3008.0),
        seconds=np.array([100.0, 80.0, 10.0]),
        usd=np.array([10.0, 11.0, 20.0]),
        most_share=np.ones(3),
    )
    assert frugal(three, np.ones(3, dtype=bool)) == 1
    assert frugal(three, np.array([False, False, True])) == 2
    assert frugal(three, np.zeros(3, dtype=bool)) is None


def test_an_epoch_is_planned_only_with_a_margin_of_time() -> None:
    caps = np.array([PLANNING.time_margin * 100.0, 100.0, 1000.0])
    found = most_share(caps, np.full(3, 100.0), np.zeros(3))
    assert found[0] == pytest.approx(1.0)
    assert found[1] == pytest.approx(1 / PLANNING.time_margin - PLANNING.part_margin)
    assert found[2] == 1.0


def test_a_fleet_that_failed_is_not_tried_again_nor_a_smaller_one() -> None:
    model: Any = SimpleNamespace(
        seconds=lambda functions, _memory: np.full(np.shape(functions), 10.0),
        overhead=lambda functions: np.zeros(np.shape(functions)),
    )
    failed = FailedEpoch(number=1, fleet=Fleet(100, 2048), seconds=1.0, usd=Usd.of(1), message="too slow")
    caps = np.full(PROBLEM.shape, 1e4)
    remaining = replace(REMAINING, cap_seconds=caps, failed=(failed,))
    fleets = candidates(PROBLEM, model, remaining)
    smaller = (fleets.functions <= 100) & (fleets.memory_mb <= 2048)
    assert smaller.any()
    assert (fleets.payable == ~smaller).all()


def test_a_fixed_fleet_continues_only_where_the_ledger_pays_for_a_slow_epoch() -> None:
    fleet = Fleet(PROBLEM.functions[0], PROBLEM.memory_mb[0])
    predicted: Any = SimpleNamespace(model=SimpleNamespace(seconds=lambda *_: np.array([100.0])))
    for cap, continues in ((CONTINUE_MARGIN * 100.0, True), (CONTINUE_MARGIN * 100.0 - 1, False)):
        remaining = replace(REMAINING, cap_seconds=np.full(PROBLEM.shape, cap))
        assert _can_continue(PROBLEM, predicted, remaining, fleet) is continues
