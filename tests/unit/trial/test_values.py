"""Values of trials and epochs that cannot be built wrong."""

import math
from dataclasses import replace

import pytest
from tests.synthetic import make_problem, measured

from mlcd.trial.epoch import Epoch, Fleet, Phase
from mlcd.trial.trial import History, Load, Measurement
from mlcd.units import Usd

PHASE = Phase(mean_seconds=1.0, max_seconds=2.0)
EPOCH = Epoch(
    number=1,
    fleet=Fleet(4, 1024),
    loss=0.5,
    seconds=10.0,
    usd=Usd.of("0.01"),
    fetch=PHASE,
    compute=PHASE,
    update=PHASE,
    calls=4,
)
LOAD = Load(p50_seconds=0.01, p95_seconds=0.02, p99_seconds=0.03, requests=100)


@pytest.mark.parametrize(("functions", "memory_mb"), [(0, 1024), (1, 0)])
def test_a_fleet_has_functions_with_memory(functions: int, memory_mb: int) -> None:
    with pytest.raises(ValueError, match="at least one function"):
        Fleet(functions, memory_mb)


@pytest.mark.parametrize(("mean", "most"), [(-1.0, 1.0), (2.0, 1.0), (1.0, math.inf)])
def test_a_phase_needs_finite_times(mean: float, most: float) -> None:
    with pytest.raises(ValueError, match="times must be finite"):
        Phase(mean_seconds=mean, max_seconds=most)


@pytest.mark.parametrize(
    "change", [{"number": 0}, {"loss": math.nan}, {"seconds": -1.0}, {"usd": Usd(-1)}, {"failed": 5}]
)
def test_an_invalid_epoch_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"epoch|fail"):
        replace(EPOCH, **change)  # type: ignore[arg-type]  # on purpose


@pytest.mark.parametrize("change", [{"p50_seconds": 0.0}, {"p99_seconds": 0.015}, {"requests": 0}, {"errors": 101}])
def test_a_load_test_needs_requests_and_ordered_latencies(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"latencies|requests"):
        replace(LOAD, **change)  # type: ignore[arg-type]  # on purpose


def test_a_noise_scale_is_not_negative() -> None:
    problem = make_problem()
    trial = measured(problem, problem.space.configs[0], 10.0)
    assert isinstance(trial, Measurement)
    with pytest.raises(ValueError, match="noise scale"):
        replace(trial, noise_scale=-1.0)


def test_the_noise_scale_comes_from_the_last_trials() -> None:
    problem = make_problem()
    trial = measured(problem, problem.space.configs[0], 10.0)
    assert isinstance(trial, Measurement)
    scales = (1.0, 100.0, None, 100.0, 800.0, math.inf)
    history = History(tuple(replace(trial, noise_scale=scale) for scale in scales))
    assert history.noise_scale == pytest.approx((100 * 100 * 800) ** (1 / 3))
    assert History((trial,)).noise_scale is None
    assert history.reached_samples == 0
