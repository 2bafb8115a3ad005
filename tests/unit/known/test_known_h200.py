import numpy as np
import pytest

from mlcd.known.h200 import GPU_USD_PER_HOUR, HOST_USD_PER_HOUR, h200


def test_every_model_was_measured_in_every_configuration() -> None:
    known = h200()
    assert len(known.models) >= 24
    assert len(known.configs) == 6 * 10 * 3
    for model in known.models:
        assert not np.isnan(model.latency_seconds).any(), model.name
        assert (model.latency_seconds > 0).all()
        assert (model.memory_gib > 0).all()


def test_memory_runs_out_only_in_large_batches_on_small_shares() -> None:
    known = h200()
    out = [known.configs[row] for model in known.models for row in np.flatnonzero(np.isinf(model.latency_seconds))]
    assert out
    assert {config["batch"] for config in out} <= {256, 512}
    assert {config["sms"] for config in out} <= {8, 16}


@pytest.mark.parametrize("slo_seconds", [0.01, 0.03, 0.1])
def test_no_configuration_suits_more_than_half_of_the_models(slo_seconds: float) -> None:
    known = h200()
    worth = np.array([known.per_dollar(model, slo_seconds) for model in known.models])
    near = worth >= 0.95 * worth.max(axis=1, keepdims=True)
    assert near.mean(axis=0).max() <= 0.5


def test_operator_shares_are_valid_and_few_operators_take_most_of_the_time() -> None:
    for reference in ("fp32", "fp16"):
        for model in h200(reference).models:
            shares = [use.share for use in model.target.operators]
            assert sum(shares) == pytest.approx(1.0, abs=0.01)
            assert shares == sorted(shares, reverse=True)


def test_models_and_curves_use_the_same_operator_names() -> None:
    known = h200()
    used = {(use.operator, use.shape) for model in known.models for use in model.target.operators}
    curves = {(curve.operator, curve.shape) for curve in known.curves}
    assert len(curves) == len(known.curves) >= 150
    assert curves <= used
    for curve in known.curves:
        assert (curve.seconds > 0).all()


def test_a_larger_share_costs_more_and_the_whole_costs_the_whole() -> None:
    known = h200()
    sms = np.array([int(config["sms"]) for config in known.configs])
    assert known.usd_per_hour[sms == 132] == pytest.approx(HOST_USD_PER_HOUR + GPU_USD_PER_HOUR)
    assert known.usd_per_hour[sms == 8] == pytest.approx(HOST_USD_PER_HOUR + 8 / 132 * GPU_USD_PER_HOUR)


def test_the_whole_gpu_is_faster_on_full_batches() -> None:
    known = h200()
    place = {
        (config["sms"], config["precision"]): i for i, config in enumerate(known.configs) if config["batch"] == 128
    }
    for model in known.models:
        assert model.latency_seconds[place[132, "fp32"]] < model.latency_seconds[place[8, "fp32"]], model.name


def test_throughput_is_zero_where_the_limit_is_broken() -> None:
    known = h200()
    for model in known.models:
        value = known.per_dollar(model, 0.03)
        assert (value[model.latency_seconds > 0.03] == 0).all()
        assert value.max() > 0
