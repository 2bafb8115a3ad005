"""The law of steps over batches behind the paper's pictures."""

import math

import pytest

from mlcd.errors import BadInput
from papers.scavenger_convergence import Reached, fit


def reached(floor: float, critical: float, p: float) -> list[Reached]:
    return [Reached(batch=b, steps=floor * (1 + (critical / b) ** p)) for b in (32, 128, 512, 2048)]


@pytest.mark.parametrize("p", [0.5, 0.8, 1.0, 1.2])
def test_the_exponent_is_recovered(p: float) -> None:
    model = fit(reached(1000, 400, p))
    assert model.exponent == pytest.approx(p, abs=0.01)
    assert model.steps(256) == pytest.approx(1000 * (1 + (400 / 256) ** p), rel=0.01)


def test_more_steps_for_a_larger_batch_still_give_a_law() -> None:
    model = fit([Reached(batch=32, steps=100), Reached(batch=64, steps=110), Reached(batch=128, steps=120)])
    assert model.steps(64) == pytest.approx(110, rel=0.1)
    assert math.isfinite(model.critical)


def test_two_batches_are_too_few() -> None:
    with pytest.raises(BadInput, match="three or more batches"):
        fit(reached(1000, 400, 1.0)[:2])
