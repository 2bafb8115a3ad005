"""How long the next part of an epoch is, for fleets and a forecast that are made up."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mlcd.clouds.functions.sim.workloads import PAPER
from mlcd.goal import Goal, Objective
from mlcd.schedulers.parts import next_part
from mlcd.schedulers.planning import Fleets
from mlcd.trial.epoch import RemainingEpochs
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
