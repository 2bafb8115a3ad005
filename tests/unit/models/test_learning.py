"""When a target will be met: known once it was met, else by the curve through the metric so far."""

import pytest

from mlcd.models.learning import forecast
from mlcd.problem import Target

LOSS = [(100.0 * at, 1 / (0.01 * 100.0 * at + 1) + 0.2) for at in range(8)]
"""1/(u/100 + 1) + 0.2: at 0.3 after 900 samples, and never at 0.2."""


def test_a_target_that_was_met_is_known() -> None:
    seen = forecast([(100.0, 0.5), (200.0, 0.8), (300.0, 0.9)], Target(metric="accuracy", value=0.8))
    assert seen is not None
    assert (seen.samples, seen.error) == (200.0, 0.0)


def test_a_target_ahead_is_predicted_with_its_error() -> None:
    seen = forecast(LOSS, Target(metric="loss", value=0.3, higher=False))
    assert seen is not None
    assert seen.samples == pytest.approx(900.0, rel=0.02)
    assert seen.error > 0
    rising = [(samples, -loss) for samples, loss in LOSS]
    mirrored = forecast(rising, Target(metric="score", value=-0.3))
    assert mirrored is not None
    assert mirrored.samples == pytest.approx(seen.samples)


def test_a_curve_that_levels_off_before_the_target_predicts_no_end() -> None:
    assert forecast(LOSS, Target(metric="loss", value=0.19, higher=False)) is None
