"""Whether a loss curve can still reach its target: curves that flatten out, that begin late, and that arrive."""

import math
import random
from collections.abc import Callable

import pytest

from mlcd.models.loss_trend import epochs_at_best


def curve(law: Callable[[float], float], epochs: int, noise: float = 0.0) -> list[tuple[float, float]]:
    draw = random.Random(1)
    return [(float(k), law(float(k)) * (1 + draw.gauss(0, noise))) for k in range(1, epochs + 1)]


def power(floor: float) -> Callable[[float], float]:
    return lambda k: floor + 0.4 / (0.3 * k + 1)


def late(k: float) -> float:
    """Flat at ln 10 for ten epochs, then a steep fall: a network that begins to learn late."""
    return 0.05 + 2.25 / (1 + math.exp(k - 10))


@pytest.mark.parametrize("noise", [0.0, 0.004])
def test_a_curve_that_flattens_above_its_target_is_noticed_long_before_the_limit(noise: float) -> None:
    law = power(0.27)
    told = next(n for n in range(1, 60) if (epochs_at_best(curve(law, n, noise), 0.05, limit=60) or 0) > 60 - n)
    assert told <= 30


@pytest.mark.parametrize("noise", [0.0, 0.004])
@pytest.mark.parametrize("reach", [6, 15, 40, 59])
def test_a_target_that_is_reached_within_the_limit_is_never_given_up(noise: float, reach: int) -> None:
    law = power(0.27)
    target = law(reach)
    for n in range(1, reach):
        needed = epochs_at_best(curve(law, n, noise), target, limit=60)
        assert needed is None or needed <= 60 - n, n


def test_a_training_that_begins_to_learn_late_is_waited_for() -> None:
    for n in range(1, 14):
        needed = epochs_at_best(curve(late, n), 0.06, limit=40)
        assert needed is None or needed <= 40 - n, n


def test_a_loss_that_does_not_fall_at_all_is_given_half_of_its_epochs() -> None:
    flat = [(float(k), 0.693) for k in range(1, 21)]
    assert epochs_at_best(flat[:19], 0.3, limit=40) is None
    assert epochs_at_best(flat, 0.3, limit=40) == math.inf


def test_parts_count_as_their_share() -> None:
    few = [(0.01 * k, 0.7 - 0.0001 * k) for k in range(1, 100)]
    assert epochs_at_best(few, 0.1, limit=40) is None, "less than one epoch shows nothing"
