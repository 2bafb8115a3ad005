import math
from collections.abc import Sequence

import numpy as np
import pytest

from mlcd.clouds.reading import GradientNorms, Reading
from mlcd.errors import BadInput
from mlcd.models.noise import Norms, successive
from mlcd.profiler.noise import FEWEST_REPORTS, IGNORED_FIRST_STEPS, noise_scale

DIMENSION, SIGNAL, VARIANCE = 200, 4.0, 800.0
PHI = VARIANCE / SIGNAL


def gradients(rng: np.random.Generator, workers: int, local_batch: float) -> np.ndarray:
    """`workers` gradients with |G|^2 = SIGNAL and a variance of VARIANCE per sample, over all dimensions."""
    true = np.full(DIMENSION, math.sqrt(SIGNAL / DIMENSION))
    return true + rng.standard_normal((workers, DIMENSION)) * math.sqrt(VARIANCE / DIMENSION / local_batch)


def norms(rng: np.random.Generator, workers: int, batch: float) -> Norms:
    found = gradients(rng, workers, batch / workers)
    average = found.mean(axis=0)
    return Norms(
        local=float((found**2).sum(axis=1).mean()), total=float(average @ average), workers=workers, batch=batch
    )


def heard(steps: Sequence[Norms], first: int = IGNORED_FIRST_STEPS + 1) -> list[Reading]:
    """As a job reports them, from its step `first` on."""
    return [
        Reading(
            seconds=float(at),
            samples=at * step.batch,
            noise=GradientNorms(workers=step.workers, batch=step.batch, local=step.local, total=step.total),
        )
        for at, step in enumerate(steps, start=first)
    ]


@pytest.mark.parametrize(("workers", "batch"), [(2, 16), (4, 64), (8, 512)])
def test_the_noise_scale_is_recovered_whatever_the_cluster_and_batch(workers: int, batch: float) -> None:
    rng = np.random.default_rng(1)
    steps = [norms(rng, workers, batch) for _ in range(3000)]
    assert noise_scale(heard(steps)) == pytest.approx(PHI, rel=0.1)
    assert np.mean([step.signal for step in steps]) == pytest.approx(SIGNAL, rel=0.1)
    assert np.mean([step.variance for step in steps]) == pytest.approx(VARIANCE, rel=0.1)


@pytest.mark.parametrize(
    "impossible",
    [
        GradientNorms(workers=1, batch=8.0, before=1.0, now=1.0, dot=-9.0),  # beyond the product of the lengths
        GradientNorms(workers=1, batch=0.0, before=1.0, now=1.0, dot=0.5),
        GradientNorms(workers=4, batch=2.0, local=2.0, total=1.0),
        GradientNorms(workers=2, batch=1e18, local=1e100, total=(0.5 + 1e-16) * 1e100),  # hardly a signal
    ],
)
def test_norms_that_cannot_be_measure_nothing(impossible: GradientNorms) -> None:
    """They are a job's; they raised, and the trial was never charged."""
    assert noise_scale([Reading(seconds=1.0, samples=1e18, noise=impossible)] * 10) is None


def test_averaging_separately_beats_averaging_ratios() -> None:
    rng = np.random.default_rng(3)
    steps = [norms(rng, 2, 8) for _ in range(2000)]
    apart = sum(n.variance for n in steps) / sum(n.signal for n in steps)
    ratios = float(np.mean([n.variance / n.signal for n in steps]))
    assert abs(apart - PHI) < abs(ratios - PHI)


def test_one_worker_is_measured_by_successive_gradients() -> None:
    rng = np.random.default_rng(4)
    readings = []
    for at in range(IGNORED_FIRST_STEPS + 1, 3000):
        before, now = gradients(rng, 2, 32)
        squares = {"before": float(before @ before), "now": float(now @ now), "dot": float(before @ now)}
        noise = GradientNorms(workers=1, batch=32, **squares)
        readings.append(Reading(seconds=float(at), samples=at * 32.0, noise=noise))
    assert noise_scale(readings) == pytest.approx(PHI, rel=0.1)


def test_the_volatile_start_is_ignored() -> None:
    steady = Norms(local=3.0, total=2.0, workers=2, batch=8)
    wild = Norms(local=300.0, total=2.0, workers=2, batch=8)
    start = heard([wild] * IGNORED_FIRST_STEPS, first=1)
    assert noise_scale(start) is None
    assert noise_scale([*start, *heard([steady] * FEWEST_REPORTS)]) == pytest.approx(steady.variance / steady.signal)


def test_an_unstable_first_half_is_ignored() -> None:
    low, high = (Norms(local=local, total=2.0, workers=2, batch=8) for local in (2.1, 3.0))
    assert noise_scale(heard([low] * 6 + [high] * 6)) == pytest.approx(high.variance / high.signal)


def test_no_noise_scale_from_few_reports_infinite_gradients_or_no_signal() -> None:
    steady = Norms(local=3.0, total=2.0, workers=2, batch=8)
    assert noise_scale(heard([steady] * (FEWEST_REPORTS - 1))) is None
    diverged = GradientNorms(workers=2, batch=8)
    assert noise_scale([Reading(seconds=0.0, samples=800.0, noise=diverged)] * 20) is None
    lost = Norms(local=4.0, total=2.0, workers=2, batch=8)
    assert noise_scale(heard([lost] * 20)) is None


def test_two_successive_gradients_count_as_two_workers() -> None:
    found = successive(before=3.0, now=5.0, dot=1.0, batch=16)
    assert found == Norms(local=4.0, total=2.5, workers=2, batch=32)


@pytest.mark.parametrize(
    ("local", "total", "workers", "batch", "says"),
    [
        (math.nan, 1.0, 2, 8, "diverged"),
        (1.0, math.inf, 2, 8, "diverged"),
        (1.0, 1.0, 1, 8, "successive"),
        (1.0, 1.0, 4, 2, "without a sample"),
    ],
)
def test_bad_norms_are_refused(local: float, total: float, workers: int, batch: float, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        Norms(local=local, total=total, workers=workers, batch=batch)
