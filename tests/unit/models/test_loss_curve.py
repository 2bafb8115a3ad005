import math

import numpy as np
import pytest

from mlcd.errors import BadInput
from mlcd.models.loss_curve import fit_loss, floor_shares


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


def test_floors_are_spaced_evenly_in_the_logit() -> None:
    shares = floor_shares(-2.0, 2.0, 5)
    assert shares[2] == pytest.approx(0.5)
    assert np.diff(np.log(shares / (1 - shares))) == pytest.approx([1.0] * 4)
