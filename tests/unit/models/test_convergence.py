import math

import numpy as np
import pytest

from mlcd.errors import BadInput
from mlcd.models.convergence import (
    ConvergenceModel,
    Reached,
    WorkUnit,
    fit,
    from_noise,
    from_noise_course,
)

BATCHES = (32, 128, 512, 2048)


def reached(floor: float, critical: float, p: float, batches: tuple[int, ...] = BATCHES) -> list[Reached]:
    return [Reached(batch=b, steps=floor * (1 + (critical / b) ** p)) for b in batches]


@pytest.mark.parametrize("p", [0.5, 0.8, 1.0, 1.2])
def test_the_exponent_is_recovered(p: float) -> None:
    model = fit(reached(1000, 400, p))
    assert model.exponent == pytest.approx(p, abs=0.01)
    assert model.steps(256) == pytest.approx(1000 * (1 + (400 / 256) ** p), rel=0.01)


def test_two_batches_give_the_critical_batch_for_a_given_exponent() -> None:
    model = fit(reached(1000, 400, 1.0, (32, 2048)))
    assert (model.floor, model.critical, model.exponent) == pytest.approx((1000, 400, 1.0))
    half = fit(reached(1000, 400, 0.5, (32, 2048)), exponent=0.5)
    assert (half.floor, half.critical) == pytest.approx((1000, 400))


def test_epochs_and_steps_agree_where_the_batch_is_the_unit() -> None:
    samples = 10_000.0
    in_epochs = [Reached(batch=b, steps=5 * (1 + (400 / b) ** 0.5) * samples / b) for b in BATCHES]
    model = fit(in_epochs, exponent=0.5, unit=WorkUnit.EPOCHS, samples_per_epoch=samples)
    assert (model.floor, model.critical) == pytest.approx((5, 400))
    assert all(model.steps(r.batch) == pytest.approx(r.steps) for r in in_epochs)


def test_more_steps_for_a_larger_batch_still_give_a_law() -> None:
    model = fit([Reached(batch=32, steps=100), Reached(batch=64, steps=110), Reached(batch=128, steps=120)])
    assert model.steps(64) == pytest.approx(110, rel=0.1)
    assert math.isfinite(model.critical)


def test_noise_and_one_training_give_the_same_law_as_many_trainings() -> None:
    truth = reached(1000, 400, 1.0)
    model = from_noise(truth[0], 400)
    assert all(model.steps(r.batch) == pytest.approx(r.steps) for r in truth)
    assert from_noise(truth[0], 0.0).steps(64) == pytest.approx(truth[0].steps)


def test_a_course_of_noise_is_the_sum_of_its_stretches() -> None:
    course = [(100.0, 50.0), (300.0, 400.0), (0.0, 7.0)]
    model = from_noise_course(64, course)
    assert model.steps(64) == pytest.approx(400)
    for batch in BATCHES:
        parts = [from_noise(Reached(batch=64, steps=n), phi).steps(batch) for n, phi in course if n]
        assert model.steps(batch) == pytest.approx(sum(parts))


def test_intervals_have_their_stated_coverage() -> None:
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(200):
        noisy = [
            Reached(batch=r.batch, steps=r.steps * math.exp(0.08 * rng.standard_normal()))
            for r in reached(1000, 400, 1)
        ]
        low, high = fit(noisy).interval(256)
        again = 1000 * (1 + 400 / 256) * math.exp(0.08 * rng.standard_normal())
        held += low <= again <= high
    assert held / 200 > 0.85


def test_a_less_certain_source_has_a_wider_interval() -> None:
    sure, doubtful = fit(reached(1000, 400, 1.0)), from_noise(reached(1000, 400, 1.0)[0], 400)
    assert _ratio(doubtful) > _ratio(sure)


def _ratio(model: ConvergenceModel) -> float:
    low, high = model.interval(256)
    return high / low


def test_bad_input_is_refused() -> None:
    with pytest.raises(BadInput, match="two or more batches"):
        fit([Reached(batch=32, steps=10), Reached(batch=32, steps=11)])
    with pytest.raises(BadInput):
        Reached(batch=32, steps=0)
    with pytest.raises(BadInput):
        from_noise(Reached(batch=32, steps=10), -1.0)
    with pytest.raises(BadInput):
        from_noise_course(32, [])
    with pytest.raises(BadInput):
        fit(reached(1000, 400, 1.0)).steps(0)
