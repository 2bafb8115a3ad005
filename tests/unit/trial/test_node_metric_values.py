"""A monitoring service's figures are refused where they cannot be right."""

import math
from typing import Any

import pytest

from mlcd.trial.node_metrics import MOST_SOURCE_CHARACTERS, NodeMetrics
from mlcd.trial.trial import Expectation


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"source": ""}, "name has 1 to"),
        ({"source": "x" * (MOST_SOURCE_CHARACTERS + 1)}, "name has 1 to"),
        ({"nodes": 0}, "at least one node"),
        ({"cpu_percent": None}, "at least one value"),
        ({"cpu_percent": 101.0}, "cpu_percent must be between 0 and 100"),
        ({"received_bytes": -1.0}, "received_bytes must be"),
        ({"sent_bytes": math.nan}, "sent_bytes must be"),
    ],
)
def test_what_cannot_be_right_is_refused(values: dict[str, Any], says: str) -> None:
    sound: dict[str, Any] = {"source": "CloudWatch", "nodes": 2, "cpu_percent": 50.0}
    NodeMetrics(**sound)
    with pytest.raises(ValueError, match=says):
        NodeMetrics(**{**sound, **values})


@pytest.mark.parametrize(("speed", "deviation"), [(0.0, 0.1), (math.inf, 0.1), (1.0, -0.1), (1.0, math.nan)])
def test_an_expectation_is_a_speed_with_a_deviation(speed: float, deviation: float) -> None:
    with pytest.raises(ValueError, match="an expected speed must be positive"):
        Expectation(samples_per_second=speed, deviation=deviation)
