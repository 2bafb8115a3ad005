"""Closed forms against Monte Carlo."""

import numpy as np
import pytest

from mlcd.search.acquisition import expected_rise, expected_saving, pandora_index

CASES = [(0.0, 0.3, 1.0), (1.0, 0.05, 2.6), (2.0, 0.8, 5.0), (-1.0, 0.2, 0.5), (3.0, 1.0, 60.0)]
DRAWS = 400_000


def draws(mean: float, deviation: float) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    return np.exp(mean + deviation * np.random.default_rng(1).standard_normal(DRAWS))


def close(found: float, sample: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> bool:
    error = sample.std() / np.sqrt(len(sample))
    return bool(abs(found - sample.mean()) < 5 * error + 1e-9)


@pytest.mark.parametrize(("mean", "deviation", "incumbent"), CASES)
def test_expected_saving(mean: float, deviation: float, incumbent: float) -> None:
    found = expected_saving(np.array([mean]), np.array([deviation**2]), incumbent)[0]
    assert close(found, np.maximum(incumbent - draws(mean, deviation), 0))


@pytest.mark.parametrize(("mean", "deviation", "incumbent"), CASES)
@pytest.mark.parametrize("cap", [0.4, 0.9, 1.5])
def test_expected_saving_where_it_fits(mean: float, deviation: float, incumbent: float, cap: float) -> None:
    limit = cap * incumbent
    found = expected_saving(np.array([mean]), np.array([deviation**2]), incumbent, np.log([limit]))[0]
    value = draws(mean, deviation)
    assert close(found, np.where(value <= limit, np.maximum(incumbent - value, 0), 0))


@pytest.mark.parametrize(("mean", "deviation", "best"), CASES)
def test_expected_rise(mean: float, deviation: float, best: float) -> None:
    found = expected_rise(np.array([mean]), np.array([deviation**2]), best)[0]
    assert close(found, np.maximum(draws(mean, deviation) - best, 0))


def test_a_configuration_that_cannot_fit_saves_nothing() -> None:
    saving = expected_saving(np.zeros(2), np.ones(2), 1.0, np.array([-np.inf, 0.0]))
    assert saving[0] == 0
    assert saving[1] > 0


def test_expected_saving_is_between_zero_and_the_incumbent() -> None:
    mean, variance = np.linspace(-50, 50, 201), np.full(201, 1e-12)
    saving = expected_saving(mean, variance, 3.0)
    assert ((saving >= 0) & (saving <= 3.0)).all()
    assert (expected_rise(mean, variance, 3.0) >= 0).all()


def test_more_uncertainty_means_a_larger_expected_saving() -> None:
    saving = expected_saving(np.full(3, 1.0), np.array([0.01, 0.1, 1.0]), 2.0)
    assert (np.diff(saving) > 0).all()


def test_at_its_index_a_trial_just_pays_its_price() -> None:
    mean, variance = np.array([0.0, 1.0, 2.0]), np.array([0.3, 0.1, 0.5])
    prices, cap = np.array([0.05, 0.01, 0.4]), np.array([np.inf, 0.9, np.inf])
    index = pandora_index(mean, variance, prices, 20.0, cap)
    for at in range(3):
        one = slice(at, at + 1)
        saving = expected_saving(mean[one], variance[one], float(index[at]), cap[one])[0]
        assert saving == pytest.approx(prices[at], rel=1e-3)
    dearer = pandora_index(mean, variance, 2 * prices, 20.0, cap)
    assert (dearer > index).all(), "the dearer a trial, the less it is worth"


def test_the_index_of_a_mixture_is_where_its_expected_saving_is_the_price() -> None:
    mean, variance = np.array([[1.0, 2.0], [2.0, 2.5]]), np.array([[0.1, 0.4], [0.3, 0.2]])
    weights, prices, cap = np.array([0.3, 0.7]), np.array([0.2, 1.5]), np.array([2.0, 9.0])
    index = pandora_index(mean, variance, prices, 100.0, cap, weights=weights)
    assert weights @ expected_saving(mean, variance, index, cap) == pytest.approx(prices, rel=1e-4)
