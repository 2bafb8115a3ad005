import math

import numpy as np
import pytest

from mlcd.errors import BadInput
from mlcd.models.noise import (
    NoiseMeter,
    Norms,
    gamma,
    halves,
    successive,
)

DIMENSION, SIGNAL, VARIANCE = 200, 4.0, 800.0
PHI = VARIANCE / SIGNAL


def gradients(rng: np.random.Generator, workers: int, local_batch: float) -> np.ndarray:
    """`workers` gradients with |G|^2 = SIGNAL and a variance of VARIANCE a sample, over all dimensions."""
    true = np.full(DIMENSION, math.sqrt(SIGNAL / DIMENSION))
    return true + rng.standard_normal((workers, DIMENSION)) * math.sqrt(VARIANCE / DIMENSION / local_batch)


def norms(rng: np.random.Generator, workers: int, batch: float) -> Norms:
    found = gradients(rng, workers, batch / workers)
    average = found.mean(axis=0)
    return Norms(
        local=float((found**2).sum(axis=1).mean()), total=float(average @ average), workers=workers, batch=batch
    )


@pytest.mark.parametrize(("workers", "batch"), [(2, 16), (4, 64), (8, 512)])
def test_phi_is_recovered_whatever_the_cluster_and_batch(workers: int, batch: float) -> None:
    rng = np.random.default_rng(1)
    meter = NoiseMeter(decay=0.999, skip_steps=0)
    for _ in range(3000):
        meter.add(norms(rng, workers, batch))
    assert meter.phi == pytest.approx(PHI, rel=0.1)
    assert meter.signal == pytest.approx(SIGNAL, rel=0.1)
    assert meter.variance == pytest.approx(VARIANCE, rel=0.1)


def test_gamma_from_phi_is_the_ratio_of_the_measured_norms() -> None:
    rng = np.random.default_rng(2)
    steps = [norms(rng, 4, 64) for _ in range(3000)]
    measured = sum(n.local for n in steps) / sum(n.total for n in steps)
    assert gamma(PHI, 4, 64) == pytest.approx(measured, rel=0.02)


def test_averaging_apart_beats_averaging_ratios() -> None:
    rng = np.random.default_rng(3)
    steps = [norms(rng, 2, 8) for _ in range(2000)]
    apart = sum(n.variance for n in steps) / sum(n.signal for n in steps)
    ratios = float(np.mean([n.variance / n.signal for n in steps]))
    assert abs(apart - PHI) < abs(ratios - PHI)


def test_one_worker_by_halves_and_by_successive_gradients() -> None:
    rng = np.random.default_rng(4)
    by_halves, by_steps = NoiseMeter(decay=0.999, skip_steps=0), NoiseMeter(decay=0.999, skip_steps=0)
    for _ in range(3000):
        first, second = gradients(rng, 2, 16)
        average = (first + second) / 2
        by_halves.add(
            halves(first=float(first @ first), second=float(second @ second), total=float(average @ average), batch=32)
        )
        before, now = gradients(rng, 2, 32)
        by_steps.add(successive(before=float(before @ before), now=float(now @ now), dot=float(before @ now), batch=32))
    assert by_halves.phi == pytest.approx(PHI, rel=0.1)
    assert by_steps.phi == pytest.approx(PHI, rel=0.1)


def test_gamma_lies_between_one_and_the_workers() -> None:
    assert gamma(0.0, 8, 64) == 1
    assert gamma(math.inf, 8, 64) == 8
    assert gamma(50.0, 1, 64) == 1
    shares = [gamma(500.0, 8, batch) for batch in (8, 64, 512, 4096)]
    assert shares == sorted(shares, reverse=True)


def test_the_volatile_start_is_skipped_and_a_drift_is_not_stable() -> None:
    steady = Norms(local=3.0, total=2.0, workers=2, batch=8)
    wild = Norms(local=300.0, total=2.0, workers=2, batch=8)
    meter = NoiseMeter(skip_steps=10, window_steps=5)
    for _ in range(10):
        meter.add(wild)
    assert meter.phi is None
    assert meter.gamma(2, 8) is None
    for _ in range(9):
        meter.add(steady)
    assert not meter.stable
    meter.add(steady)
    assert meter.stable
    assert meter.phi == pytest.approx(steady.variance / steady.signal)
    assert meter.windowed_phi == pytest.approx(steady.variance / steady.signal)
    for _ in range(5):
        meter.add(Norms(local=3.5, total=2.0, workers=2, batch=8))
    assert not meter.stable


def test_no_signal_is_infinite_noise_and_no_noise_is_none() -> None:
    meter = NoiseMeter(skip_steps=0, window_steps=1)
    for _ in range(2):
        meter.add(Norms(local=4.0, total=2.0, workers=2, batch=8))
    assert meter.phi == math.inf
    assert meter.stable
    assert meter.gamma(4, 32) == 4
    still = NoiseMeter(skip_steps=0)
    still.add(Norms(local=2.0, total=2.0, workers=2, batch=8))
    assert still.phi == 0


@pytest.mark.parametrize(
    ("local", "total", "workers", "batch", "says"),
    [
        (math.nan, 1.0, 2, 8, "diverged"),
        (1.0, math.inf, 2, 8, "diverged"),
        (1.0, 1.0, 1, 8, "halves"),
        (1.0, 1.0, 4, 2, "without a sample"),
    ],
)
def test_bad_norms_are_refused(local: float, total: float, workers: int, batch: float, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        Norms(local=local, total=total, workers=workers, batch=batch)


def test_bad_questions_are_refused() -> None:
    with pytest.raises(BadInput):
        gamma(-1.0, 2, 8)
    with pytest.raises(BadInput):
        gamma(1.0, 8, 4)
    with pytest.raises(BadInput):
        NoiseMeter(decay=1.0)
