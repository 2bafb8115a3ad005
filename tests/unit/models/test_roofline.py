"""The roofline of a language model, and what runs of other models teach it."""

import numpy as np
import pytest

from mlcd.known.gpus import GPUS, Machine
from mlcd.known.language_models import LanguageModel, TokenLengths
from mlcd.models.serving.roofline import (
    DEFAULTS,
    FACTORS,
    Run,
    Setting,
    fits,
    held_requests,
    learnt_factors,
    log_seconds,
)

LENGTHS = TokenLengths(input_tokens=512.0, output_tokens=128.0)
SMALL = LanguageModel(parameters=1e9, layers=16, hidden=2048, kv_heads=8, head_dim=64)
LARGE = LanguageModel(parameters=13e9, layers=40, hidden=5120, kv_heads=40, head_dim=128)
T5 = LanguageModel(parameters=3e9, layers=24, encoder_layers=24, hidden=2048, kv_heads=32, head_dim=64)


def at(gpu: str, users: float = 1.0, count: int = 1) -> Setting:
    return Setting(machine=Machine(gpu=GPUS[gpu], count=count), users=users)


def seconds(model: LanguageModel, setting: Setting) -> float:
    return float(np.exp(log_seconds(model, [setting], LENGTHS, DEFAULTS)[0]))


def test_one_request_reads_all_weights_for_every_token() -> None:
    """Halving the bandwidth of the memory adds at least the time of reading the weights once more."""
    reading = LENGTHS.output_tokens * LARGE.weight_bytes / (GPUS["A100-80GB"].gb_per_second * 1e9)
    assert seconds(LARGE, at("A100-80GB")) > reading
    assert seconds(LARGE, at("L40S")) > seconds(LARGE, at("A100-80GB"))
    assert seconds(SMALL, at("H100")) < seconds(SMALL, at("T4"))


def test_more_requests_in_flight_bring_more_until_prompts_take_all_the_time() -> None:
    rates = [users / seconds(LARGE, at("H100", users)) for users in (1, 4, 16, 64)]
    assert rates == sorted(rates)
    assert rates[1] / rates[0] > 2 * rates[3] / rates[2]


def test_what_does_not_fit_into_memory_is_known_before() -> None:
    assert not fits(LARGE, Machine(gpu=GPUS["T4"]), LENGTHS)
    assert not fits(LARGE, Machine(gpu=GPUS["A10"]), LENGTHS)
    assert fits(LARGE, Machine(gpu=GPUS["A100"]), LENGTHS)
    assert fits(LARGE, Machine(gpu=GPUS["T4"], count=4), LENGTHS)
    assert held_requests(SMALL, Machine(gpu=GPUS["A100"]), LENGTHS) > 50


def test_a_full_cache_makes_requests_wait() -> None:
    held = held_requests(LARGE, Machine(gpu=GPUS["A100"]), LENGTHS)
    before, after = (users / seconds(LARGE, at("A100", users)) for users in (held, 4 * held))
    assert after < 1.3 * before


def made_up_run(model: LanguageModel, log_factors: np.ndarray, seed: int) -> Run:
    settings = tuple(
        at(gpu, users, count) for gpu in ("A10", "A100", "H100") for users in (1, 8, 32) for count in (1, 2)
    )
    noise = np.random.default_rng(seed).normal(0, 0.02, len(settings))
    return Run(model=model, settings=settings, log_seconds=log_seconds(model, settings, LENGTHS, log_factors) + noise)


def test_factors_are_learnt_from_other_models() -> None:
    truth = DEFAULTS + np.array([factor.deviation for factor in FACTORS]) * np.linspace(-0.8, 0.8, len(FACTORS))
    learnt = learnt_factors([made_up_run(LARGE, truth, 1), made_up_run(T5, truth, 2)], LENGTHS)
    settings = [at(gpu, users) for gpu in ("T4", "V100", "A100") for users in (2, 16)]
    errors = [
        np.abs(log_seconds(SMALL, settings, LENGTHS, f) - log_seconds(SMALL, settings, LENGTHS, truth)).mean()
        for f in (learnt, DEFAULTS)
    ]
    assert errors[0] < 0.12 < errors[1]
    assert np.array_equal(learnt_factors([], LENGTHS), DEFAULTS)


def test_an_outlier_does_not_move_the_factors() -> None:
    run = made_up_run(LARGE, DEFAULTS, 3)
    broken = run.log_seconds.copy()
    broken[4] += 4.0
    moved = learnt_factors([Run(model=run.model, settings=run.settings, log_seconds=broken)], LENGTHS)
    assert np.abs(log_seconds(LARGE, run.settings, LENGTHS, moved) - run.log_seconds).mean() < 0.15


@pytest.mark.parametrize("count", [0, -1])
def test_a_machine_has_gpus(count: int) -> None:
    with pytest.raises(ValueError, match="at least one GPU"):
        Machine(gpu=GPUS["T4"], count=count)
