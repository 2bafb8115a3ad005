import math
from collections.abc import Callable

import numpy as np
import pytest

from mlcd.errors import BadInput
from mlcd.models.loss_curve import CurvePrior, Floats, FloorPosterior, by_levels, by_steps, fit_loss, floor_shares

SHARES = floor_shares(-3.0, 5.0, 129)
PRIOR = CurvePrior(whole=(10.0, 0.5), floor_share=(0.8, 0.9))
RATE, START, FLOOR, TARGET = 0.9, 1.1, 0.25, 0.32
WHOLE = (1 / (TARGET - FLOOR) - START) / RATE

Fit = Callable[[Floats, Floats], FloorPosterior | None]


def curve(work: Floats) -> Floats:
    result: Floats = 1 / (RATE * work + START) + FLOOR
    return result


def steps(losses: Floats, work: Floats) -> FloorPosterior | None:
    return by_steps([(losses, work[None])], TARGET, shares=SHARES, noise=0.02, noise_degrees=4.0, prior=PRIOR)


def levels(losses: Floats, work: Floats) -> FloorPosterior | None:
    return by_levels(losses, work, TARGET, shares=SHARES, noise=0.02, prior=PRIOR)


@pytest.mark.parametrize("fit", [steps, levels])
def test_remaining_work_and_floor_are_recovered_from_a_few_losses(fit: Fit) -> None:
    work = np.arange(0.0, 8.0)
    found = fit(curve(work), work)
    assert found is not None
    assert found.mean_left == pytest.approx(WHOLE - 7.0, rel=0.05)
    assert found.floor_share == pytest.approx(FLOOR / TARGET, rel=0.05)
    assert found.weight.sum() == pytest.approx(1.0)
    assert found.way_weights == pytest.approx([1.0])


@pytest.mark.parametrize("fit", [steps, levels])
def test_more_losses_reduce_the_uncertainty(fit: Fit) -> None:
    few, many = (fit(curve(work), work) for work in (np.arange(0.0, 3.0), np.arange(0.0, 9.0)))
    assert few is not None
    assert many is not None
    assert many.left_deviation < few.left_deviation
    assert many.mean_left == pytest.approx(WHOLE - 8.0, rel=0.05)


@pytest.mark.parametrize("fit", [steps, levels])
def test_losses_that_rise_have_no_curve(fit: Fit) -> None:
    assert fit(np.array([0.5, 0.6, 0.7]), np.arange(3.0)) is None


def test_a_way_to_count_the_work_that_fits_better_weighs_more() -> None:
    work = np.arange(0.0, 8.0)
    ways = np.stack([work, work**1.4])
    found = by_steps([(curve(work), ways)], TARGET, shares=SHARES, noise=0.02, noise_degrees=4.0, prior=PRIOR)
    assert found is not None
    assert found.way_weights[0] > 0.9


def test_several_trainings_share_a_curve() -> None:
    runs = [(curve(work), work[None]) for work in (np.arange(0.0, 4.0), np.arange(0.0, 6.0, 2.0))]
    together = by_steps(runs, TARGET, shares=SHARES, noise=0.02, noise_degrees=4.0, prior=PRIOR)
    alone = by_steps(runs[-1:], TARGET, shares=SHARES, noise=0.02, noise_degrees=4.0, prior=PRIOR)
    assert together is not None
    assert alone is not None
    assert together.left_deviation < alone.left_deviation


def test_a_single_loss_has_no_step() -> None:
    assert steps(np.array([0.5]), np.zeros(1)) is None


def test_all_three_fits_agree_on_one_curve() -> None:
    work = np.linspace(0.0, 9.0, 30)
    plain = fit_loss(list(zip(work.tolist(), curve(work).tolist(), strict=True))).steps_to(TARGET)
    assert plain == pytest.approx(WHOLE, rel=0.01)
    for fit in (steps, levels):
        found = fit(curve(work), work)
        assert found is not None
        assert found.mean_left + 9.0 == pytest.approx(WHOLE, rel=0.05)


# ---- many losses, one training


def test_a_running_loss_gives_the_steps_to_a_lower_one() -> None:
    rng = np.random.default_rng(5)
    losses = [(k, 1 / (0.01 * k + 0.4) + 0.3 + 0.01 * rng.standard_normal()) for k in range(0, 600, 20)]
    curve = fit_loss(losses)
    true = (1 / (0.4 - 0.3) - 0.4) / 0.01
    found, bounds = curve.steps_to(0.4), curve.interval(0.4)
    assert found is not None
    assert bounds is not None
    assert found == pytest.approx(true, rel=0.35)
    assert bounds[0] < true < bounds[1]
    assert curve.loss(0) == pytest.approx(2.8, rel=0.05)


def test_a_target_below_the_floor_is_never_reached() -> None:
    curve = fit_loss([(k, 1 / (0.05 * k + 1) + 0.5) for k in range(0, 400, 10)])
    assert curve.steps_to(0.4) is None
    assert curve.interval(0.4) is None
    assert curve.steps_to(0.7) == pytest.approx((1 / 0.2 - 1) / 0.05, rel=0.01)


@pytest.mark.parametrize(
    ("losses", "says"),
    [
        ([(k, 1.0 + 0.01 * k) for k in range(20)], "does not fall"),
        ([(k, math.nan) for k in range(20)], "diverged"),
        ([(0, 1.0), (1, 0.5)], "at least 5"),
    ],
)
def test_a_training_that_does_not_converge_has_no_number_of_steps(losses: list[tuple[float, float]], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        fit_loss(losses)
