"""Scores on a scale where one very bad trial does not flatten the rest."""

import math

import numpy as np
import pytest

from mlcd.search.bayesian import warped


def test_the_better_half_is_unchanged_and_the_worse_one_logarithmic() -> None:
    values = np.array([1.0, 2.0, 3.0, 5.0, 1003.0])
    changed = warped(values)
    assert changed[:3].tolist() == [1.0, 2.0, 3.0]
    assert changed[3] == pytest.approx(3 + 2 * math.log1p(1.0))
    assert changed[4] == pytest.approx(3 + 2 * math.log1p(500.0))


def test_values_without_a_better_half_stay_as_they_are() -> None:
    values = np.array([2.0, 2.0, 2.0, 9.0])
    assert warped(values).tolist() == values.tolist()
