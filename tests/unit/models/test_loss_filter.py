"""The loss filter: each family is found by how it predicts, and a change of the slope is followed."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from mlcd.models.loss_curve import floor_shares
from mlcd.models.loss_filter import MOST_POINTS, FilterGrid, Floats, RemainingWork, fitted_points, remaining_work

FIRST, FLOOR, WHOLE = 1.0, 0.3, 9.0
GRID = FilterGrid(floors=floor_shares(-2.5, 4.5, 14))
CURVES: dict[str, Callable[[Floats], Floats]] = {
    "inverse": lambda k: 1 / (1 + k),
    "exponential": lambda k: np.exp(-k / 3),
    "square root": lambda k: (1 + k / 0.4) ** -0.5,
}


def losses(name: str, work: Floats) -> Floats:
    result: Floats = FLOOR + (FIRST - FLOOR) * CURVES[name](work)
    return result


def fit(values: Floats, work: Floats, target: float, **changed: object) -> RemainingWork:
    ways = work if work.ndim == 2 else work[None]
    given = {"grid": GRID, "whole": (10.7, 0.45), "floor_share": (0.82, 1.3), **changed}
    return remaining_work(values, ways, target, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", CURVES)
def test_the_remaining_work_of_every_family(name: str) -> None:
    work = np.arange(0.0, 7.0)
    target = float(losses(name, np.array(WHOLE)))
    found = fit(losses(name, work), work, target)
    assert found.mean == pytest.approx(WHOLE - 6, abs=0.6)
    assert abs(found.mean - (WHOLE - 6)) < 2.5 * found.deviation
    fewer = fit(losses(name, work[:4]), work[:4], target)
    assert found.deviation < fewer.deviation


@pytest.mark.parametrize("power", [0.0, 1.0, 2.0])
def test_one_family_alone_is_wrong_about_the_others(power: float) -> None:
    """Why several are weighed: the largest error of a single family is much larger than that of all together."""
    work = np.arange(0.0, 6.0)
    alone, together = [], []
    for name in CURVES:
        target = float(losses(name, np.array(WHOLE)))
        single = FilterGrid(floors=GRID.floors[:1], powers=(power,), drifts=(0.02,))
        alone.append(abs(fit(losses(name, work), work, target, grid=single).mean - (WHOLE - 5)))
        together.append(abs(fit(losses(name, work), work, target).mean - (WHOLE - 5)))
    assert max(together) < 0.6 * max(alone)


def test_a_drop_after_a_step_of_the_learning_rate_is_followed() -> None:
    work = np.arange(0.0, 10.0)
    flat = 0.5 + 0.5 * np.exp(-work / 1.5)
    values = np.where(work <= 6, flat, flat[6] * np.exp(-(work - 6) / 2))
    target = float(flat[6] * np.exp(-2.5))
    before = fit(values[:7], work[:7], target)
    after = fit(values, work, target)
    assert before.mean > 5, "the curve seemed to end above the target"
    assert abs(after.mean - 2) < 0.5 * abs(before.mean - 5)
    stiff = fit(values, work, target, grid=FilterGrid(floors=GRID.floors, drifts=(0.02,)))
    assert abs(after.mean - 2) < abs(stiff.mean - 2), "a slope that cannot drift is slower to see it"


def test_the_way_to_count_the_work_that_predicts_better_weighs_more() -> None:
    work = np.arange(0.0, 9.0)
    found = fit(losses("inverse", work), np.stack([work, work + 0.6 * np.sin(1.3 * work)]), 0.35)
    assert found.way_weights.sum() == pytest.approx(1.0)
    assert found.way_weights[0] > 0.9


def test_noise_widens_the_deviation_and_a_loss_that_stalls_is_finite() -> None:
    work = np.arange(0.0, 6.0)
    target = float(losses("inverse", np.array(WHOLE)))
    noise = np.array([0, 0.02, -0.02, 0.02, -0.02, 0.02])
    noisy = fit(losses("inverse", work) * (1 + noise), work, target)
    assert noisy.deviation > fit(losses("inverse", work), work, target).deviation
    flat = fit(np.array([1.0, 0.9, 0.9, 0.9, 0.91]), np.arange(5.0), 0.3)
    assert np.isfinite(flat.mean)
    assert flat.mean > 5


def test_many_losses_are_thinned_and_say_the_same() -> None:
    work = np.linspace(0.0, 6.0, 3000)
    target = float(losses("inverse", np.array(WHOLE)))
    found = fit(losses("inverse", work), work, target)
    kept = fitted_points(3000)
    assert found == replace(fit(losses("inverse", work[kept]), work[kept], target), way_weights=found.way_weights)
    assert found.mean == pytest.approx(WHOLE - 6, abs=1.0)


def test_the_newest_and_some_of_the_earlier_epochs_are_fitted() -> None:
    assert fitted_points(MOST_POINTS) == list(range(MOST_POINTS))
    kept = fitted_points(5000)
    assert len(kept) == len(set(kept)) == MOST_POINTS
    assert kept[0] == 0
    assert kept[MOST_POINTS // 2 :] == list(range(5000 - MOST_POINTS // 2, 5000))
