"""The noise expected over the rest of a training."""

import math

import numpy as np
import pytest

from mlcd.models.noise_course import GROWTH, LEVEL, expected_noise

B0, WHOLE = 64.0, 1e6


def expected(*seen: tuple[float, float], done: float = 0.0, whole: float = WHOLE) -> float:
    found = expected_noise(seen, reference=B0, done_samples=done, whole_samples=whole)
    assert found is not None
    return found


def samples_needed(noise: np.ndarray, batch: float) -> float:
    return float(np.mean((noise + batch) / (noise + B0)))


def test_nothing_is_expected_without_a_measurement() -> None:
    for seen in ([], [(1e5, 0.0)], [(1e5, math.inf)]):
        assert expected_noise(seen, reference=B0, done_samples=0.0, whole_samples=WHOLE) is None


def test_one_noise_scale_stands_for_a_noise_that_grows() -> None:
    """A measurement on the prior's own curve changes nothing, so the course is known: sum it up by hand."""
    at = 3e5
    seen = (at, B0 * math.exp(LEVEL + GROWTH * math.log(2 * at / WHOLE)))
    work = at + (np.arange(20_000) + 0.5) / 20_000 * (WHOLE - at)
    noise = B0 * np.exp(LEVEL + GROWTH * np.log(2 * work / WHOLE))
    found = expected(seen, done=at)
    for batch in (64.0, 512.0, 16_384.0):
        assert (found + batch) / (found + B0) == pytest.approx(samples_needed(noise, batch), rel=1e-3)


def test_noise_that_was_measured_early_is_expected_to_grow() -> None:
    assert expected((2e4, 100.0), done=2e4) > 3 * 100


def test_a_late_measurement_outweighs_the_prior_and_an_early_one_does_not() -> None:
    early, late = ((share * WHOLE, 2 * B0) for share in (0.002, 0.6))
    assert expected(late, done=late[0]) == pytest.approx(2 * B0, rel=0.6)
    typical = expected((0.002 * WHOLE, 1000 * B0 * 0.002**GROWTH), done=0.002 * WHOLE)
    assert expected(early, done=early[0]) > typical / 3


def test_trials_close_together_count_about_as_one() -> None:
    one = expected((1e4, 50.0), done=1e4)
    many = expected(*((1e4 + k, 50.0) for k in range(8)), done=1e4)
    assert many == pytest.approx(one, rel=0.1)


def test_more_noise_measured_is_more_noise_expected() -> None:
    found = [expected((1e5, noise), done=1e5) for noise in (10.0, 100.0, 1000.0, 1e4)]
    assert found == sorted(found)
    assert found[-1] > 20 * found[0]


def test_a_training_at_its_end_and_one_that_has_done_nothing_have_an_answer() -> None:
    assert expected((WHOLE, 500.0), done=WHOLE) == pytest.approx(500.0, rel=0.5)
    assert 0 < expected((0.0, 500.0)) < math.inf
