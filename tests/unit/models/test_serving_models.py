"""Key operators, resource curves, pruning, the additive latency and the process over models and configurations."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.serving_world import CONFIGS, OPERATORS, world

from mlcd.errors import BadInput
from mlcd.graphs.grammar import weight_bytes
from mlcd.graphs.grammar import work as work_of_call
from mlcd.known.match import matching_rows
from mlcd.known.tables import Known, OperatorCurve, OperatorUse, TargetModel
from mlcd.models.serving.additive import additive_latency, calibrate
from mlcd.models.serving.curves import Shape, classify, resource_curves
from mlcd.models.serving.gaussian import Belief, matern, spread
from mlcd.models.serving.interpolation import Work
from mlcd.models.serving.operators import key_operators, operator_seconds, operator_shares
from mlcd.models.serving.pruning import knobs_that_matter, redundant_rows
from mlcd.models.serving.transfer import overlap, transfer_belief
from mlcd.search.serving.falcon_transfer import known_points
from mlcd.space import Config


def use(
    operator: str, share: float, *, shape: str = "s", count: int = 1, flops: float = 1e8, moved: float = 1e6
) -> OperatorUse:
    return OperatorUse(operator=operator, shape=shape, count=count, share=share, flops=flops, bytes=moved)


def target(*uses: OperatorUse) -> TargetModel:
    return TargetModel(name="t", operators=uses)


def test_key_operators_are_the_fewest_that_exceed_the_threshold() -> None:
    model = target(use("add", 0.05), use("conv", 0.4), use("dense", 0.3), use("conv", 0.2, shape="other"))
    assert operator_shares(model) == pytest.approx({"add": 0.05, "conv": 0.6, "dense": 0.3})
    assert key_operators(model, 0.5) == ("conv",)
    assert key_operators(model, 0.6) == ("conv",)
    assert key_operators(model, 0.9) == ("conv", "dense")
    assert key_operators(model, 1.0) == ("conv", "dense", "add")


@given(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=8), st.floats(0.05, 1.0))
def test_no_smaller_set_of_operators_exceeds_the_threshold(weights: list[float], threshold: float) -> None:
    shares = [w / sum(weights) for w in weights]
    model = target(*(use(f"op{at}", share) for at, share in enumerate(shares)))
    chosen = key_operators(model, threshold)
    ranked = sorted(shares, reverse=True)
    assert sum(ranked[: len(chosen)]) >= threshold - 1e-6
    assert sum(ranked[: len(chosen) - 1]) < threshold


def test_a_measured_operator_is_used_as_measured() -> None:
    known = world()
    (found,) = operator_seconds(known, target(use("conv2d", 1.0, shape="medium", count=7, flops=7 * 2.3e8)))
    curve = next(c for c in known.curves if (c.operator, c.shape) == ("conv2d", "medium"))
    assert found.seconds == pytest.approx(7 * curve.seconds)
    assert found.exact == 1
    assert found.like == ""


def test_a_shape_between_measured_ones_takes_a_time_between() -> None:
    known = world()
    half = OPERATORS["conv2d-large"]
    wanted = use("conv2d", 1.0, shape="half", flops=half.flops / 2, moved=half.bytes / 2)
    (found,) = operator_seconds(known, target(wanted))
    assert found.exact == 0
    large = np.array([half.seconds(config) for config in CONFIGS])
    big = np.array([float(config["batch"]) >= 16 for config in CONFIGS])
    ratio = found.seconds[big] / large[big]
    assert np.median(ratio) == pytest.approx(0.5, abs=0.2)
    assert (found.seconds < large * 1.05).all()


def test_an_operator_never_measured_is_replaced_by_the_nearest_in_flops_per_byte() -> None:
    known = world()
    like_dense = OPERATORS["dense-medium"]
    wanted = use("einsum", 1.0, flops=like_dense.flops, moved=like_dense.bytes)
    (found,) = operator_seconds(known, target(wanted))
    assert found.like == "dense"
    truth = np.array([like_dense.seconds(config) for config in CONFIGS])
    assert np.abs(np.log(found.seconds / truth)).max() < 0.7
    with pytest.raises(ValueError, match="no operator was measured"):
        operator_seconds(replace(known, curves=()), target(wanted))


def test_an_operator_never_measured_is_as_unsure_as_measured_ones_differ() -> None:
    known = world()
    new, old = use("einsum", 0.5, flops=1e8, moved=1e6), use("dense", 0.5, shape="medium", flops=3e8, moved=1.5e6)
    unknown, measured = operator_seconds(known, target(new, old))
    assert len(measured.deviation) == 0
    families = len({curve.operator for curve in known.curves})
    assert unknown.deviation.shape == (families, len(CONFIGS))
    both, sure = additive_latency(known, target(new, old)), additive_latency(known, target(old))
    share = both.parts["einsum"] / both.seconds
    assert (both.deviation**2).sum(axis=0) == pytest.approx((share**2) * (unknown.deviation**2).sum(axis=0))
    points = known_points(known.configs)
    variance = np.diag(transfer_belief(known, target(new, old), points).covariance)
    assert (variance > np.diag(transfer_belief(known, target(old), points).covariance)).all()
    assert len(sure.deviation) == 0
    full = tuple(
        replace(curve, seconds=np.where(np.arange(len(CONFIGS)) == 7, np.inf, curve.seconds)) for curve in known.curves
    )
    out_of_memory = additive_latency(replace(known, curves=full), target(new, old)).deviation
    assert (out_of_memory[:, 7] == 0).all()
    assert np.isfinite(out_of_memory).all()


def curve(batches: np.ndarray, shape: str, flops: float, moved: float, seconds: np.ndarray) -> OperatorCurve:
    assert len(batches) == len(seconds)
    return OperatorCurve(operator="Gemm", shape=shape, flops=flops, bytes=moved, seconds=seconds)


def test_weights_are_read_once_for_a_batch() -> None:
    """Of two shapes as large, the one that is as heavy in weights is followed, not the one with equal bytes in all."""
    configs = tuple(Config.of({"batch": batch}) for batch in (1, 4, 16, 64))
    batches = np.array([float(config["batch"]) for config in configs])
    heavy = curve(batches, "1x1000x1000", 2e6, 4.008e6, 1e-3 + 1e-6 * batches)
    light = curve(batches, "100x100x100", 2e6, 1.2e5, 1e-5 * batches)
    known = Known(configs=configs, usd_per_hour=np.ones(4), models=(), curves=(heavy, light), source="", simulated=True)
    wanted = OperatorUse(operator="Gemm", shape="1x1100x900", count=1, share=1.0, flops=1.98e6, bytes=3.968e6)
    (found,) = operator_seconds(known, target(wanted))
    assert found.exact == 0
    assert (
        np.abs(np.log(found.seconds / heavy.seconds)).max() < 0.25 * np.abs(np.log(light.seconds / heavy.seconds)).max()
    )
    work = Work.of("Gemm", "1x1000x1000", 2e6, 4.008e6)
    assert (work.weights, work.moved) == (4e6, 8e3)
    assert Work.of("Relu", "64x56x56", 1.0, 8.0).weights == weight_bytes("Gemm", "not a shape") == 0


@pytest.mark.parametrize(("name", "shape"), [("Conv", "64x56x56>128x28x28 k3x3 s2x2 g1"), ("LSTM", "64x512>512 l2 d1")])
def test_weights_are_a_part_of_the_bytes_of_a_call(name: str, shape: str) -> None:
    total = work_of_call(name, shape)[1]
    assert 0 < weight_bytes(name, shape) < total
    assert weight_bytes("Conv", "64x56x56>128x28x28 k3x3 s2x2 g1") == 4 * 64 * 128 * 9


def test_residuals_are_those_of_models_whose_operators_were_not_measured() -> None:
    known = world()
    residuals = calibrate(known).residuals
    at = [model.name for model in known.models].index("lstm")
    lstm, gru = known.models[at], next(model for model in known.models if model.name == "gru")
    alone = replace(known, models=tuple(model for model in known.models if model is not gru))
    at_alone = [model.name for model in alone.models].index("lstm")
    assert any(use.operator == "recurrent" for use in lstm.target.operators)
    # Only gru also has recurrent operators: without it, leaving lstm out leaves nothing measured of them.
    assert np.nanstd(calibrate(alone).residuals[at_alone]) > 2 * np.nanstd(residuals[at])


@pytest.mark.parametrize(
    ("values", "shape"),
    [
        ([1.0, 1.01, 1.0, 1.02], Shape.PLANE),
        ([0.0, 1.0, 2.0, 3.0], Shape.SLOPE),
        ([3.0, 2.05, 0.95, 0.0], Shape.SLOPE),
        ([3.0, 0.6, 0.1, 0.0], Shape.CONVEX),
        ([0.0, 0.2, 0.8, 3.0], Shape.CONVEX),
        ([0.0, 2.0, 2.8, 3.0], Shape.CONCAVE),
    ],
)
def test_the_four_shapes(values: list[float], shape: Shape) -> None:
    assert classify(np.arange(4.0), np.array(values)) is shape


def test_resource_curves_of_an_operator() -> None:
    known = world()
    curve = next(c for c in known.curves if (c.operator, c.shape) == ("conv2d", "large"))
    found = {c.knob: c for c in resource_curves(known, "conv2d", curve.seconds)}
    assert set(found) == {"batch", "sms", "precision"}
    assert found["batch"].values == (1, 2, 4, 8, 16, 32, 64, 128)
    assert found["sms"].log_seconds == tuple(sorted(found["sms"].log_seconds, reverse=True))
    assert found["sms"].span > 3
    flat = resource_curves(known, "nothing", known.batches * 1e-3)
    assert {c.shape for c in flat} == {Shape.PLANE}


def cores_and_batch() -> tuple[Known, np.ndarray]:
    """A GPU operator that does not depend on CPU cores (as in the published measurements)."""
    configs = tuple(Config.of({"cores": cores, "batch": batch}) for cores in (1, 2, 4) for batch in (1, 8, 64))
    seconds = np.array([1e-3 + 1e-4 * float(config["batch"]) for config in configs])
    curve = OperatorCurve(operator="conv2d", shape="x", flops=1e9, bytes=1e6, seconds=seconds)
    price = np.array([1.0 + 0.1 * float(config["cores"]) for config in configs])
    known = Known(configs=configs, usd_per_hour=price, models=(), curves=(curve,), source="made up", simulated=True)
    return known, seconds


def test_a_knob_whose_curve_is_a_plane_is_pruned_whatever_the_cutoff() -> None:
    known, seconds = cores_and_batch()
    cores = np.array([float(config["cores"]) for config in known.configs])
    nearly, clearly = seconds * (1 + 0.005 * cores), seconds * (1 + 0.1 * cores)
    steady = np.full(len(seconds), 1.0) * known.batches * (1 + 0.005 * cores)
    assert "cores" not in knobs_that_matter(known, [("conv2d", 1.0, nearly)], 1.0)
    assert "cores" in knobs_that_matter(known, [("conv2d", 1.0, clearly)], 1.0)
    assert knobs_that_matter(known, [("add", 1.0, steady)], 1.0) == []


def test_a_knob_that_does_not_matter_is_pruned_to_the_best_of_its_values() -> None:
    known, seconds = cores_and_batch()
    assert knobs_that_matter(known, [("conv2d", 1.0, seconds)], 0.95) == ["batch"]
    value = known.batches / (known.usd_per_hour * seconds)
    pruned = redundant_rows(known, ["batch"], value)
    assert [str(config) for config, out in zip(known.configs, pruned, strict=True) if not out] == [
        "cores=1, batch=1",
        "cores=1, batch=8",
        "cores=1, batch=64",
    ]
    assert not redundant_rows(known, ["cores", "batch"], value).any()


def test_a_cut_off_of_1_keeps_every_knob_that_does_anything() -> None:
    known = world()
    curve = next(c for c in known.curves if (c.operator, c.shape) == ("conv2d", "medium"))
    assert knobs_that_matter(known, [("conv2d", 1.0, curve.seconds)], 1.0) == ["batch", "sms", "precision"]


def test_calibrated_weights_reproduce_the_sums() -> None:
    """Every operator inside a model takes 1.5 times what it takes by itself: the weights recover that."""
    known = world()
    models = tuple(
        replace(
            model, latency_seconds=1.5 * np.sum([of.seconds for of in operator_seconds(known, model.target)], axis=0)
        )
        for model in known.models
    )
    calibration = calibrate(replace(known, models=models))
    common = ("conv2d", "dense", "normalise")
    assert [calibration.weights[name] for name in common] == pytest.approx([1.5] * 3, abs=0.12)
    assert np.abs(calibration.residuals).max() < 0.35
    assert np.abs(np.nanmedian(calibration.residuals)) < 0.05


def test_the_additive_latency_is_the_sum_of_its_parts_and_near_the_truth() -> None:
    known = world()
    for model in known.models[:6]:
        others = known.without(model.name)
        predicted = additive_latency(others, model.target)
        assert predicted.seconds == pytest.approx(sum(predicted.parts.values()))
        ran = np.isfinite(model.latency_seconds)
        assert np.median(np.abs(np.log(predicted.seconds[ran] / model.latency_seconds[ran]))) < 0.6


def test_a_belief_matches_its_measurements() -> None:
    points = np.linspace(0, 3, 30)[:, None]
    belief = Belief(mean=np.zeros(30), covariance=matern(spread(points)))
    rows = np.array([3, 20])
    mean, variance = belief.given(rows, np.array([1.0, -1.0]), np.array([0.0, 0.5]))
    assert mean[3] == pytest.approx(1.0, abs=1e-3)
    assert -1 < mean[20] < -0.5
    assert variance[3] < 1e-6 < variance[20] < 0.3
    assert variance.max() < 1
    untouched = belief.given(np.array([], dtype=np.intp), np.array([]), np.array([]))
    assert untouched[1] == pytest.approx(np.ones(30))


def test_overlap_of_shares() -> None:
    one, other = target(use("conv", 0.9), use("add", 0.1)), target(use("dense", 1.0))
    assert overlap(one, one) == pytest.approx(1)
    assert overlap(one, other) == 0
    assert 0 < overlap(one, target(use("conv", 0.5), use("dense", 0.5))) < 1


def test_known_models_make_the_prediction_better_than_operators_alone() -> None:
    known = world()
    points = known_points(known.configs)
    errors, without = [], []
    for model in known.models:
        others = known.without(model.name)
        ran = np.isfinite(model.latency_seconds)
        truth = np.log(model.latency_seconds[ran])
        alone = np.log(additive_latency(others, model.target).seconds)[ran]
        belief = transfer_belief(others, model.target, points)
        rows = np.flatnonzero(ran)[[5, 40]]
        mean, variance = belief.given(rows, np.log(model.latency_seconds[rows]), np.full(2, 0.01))
        level = np.mean(np.log(model.latency_seconds[rows]) - alone[[5, 40]])
        errors.append(np.abs(mean[ran] - truth).mean())
        without.append(np.abs(alone + level - truth).mean())
        assert (variance > 0).all()
        assert np.linalg.eigvalsh(belief.covariance).min() > -1e-9
    assert np.mean(errors) < np.mean(without)


def test_beliefs_are_calibrated() -> None:
    """Two deviations hold about 19 of 20 truths: here at least 4 of 5 over all models, with two trials each."""
    known = world()
    inside = []
    for model in known.models:
        belief = transfer_belief(known.without(model.name), model.target, known_points(known.configs))
        ran = np.flatnonzero(np.isfinite(model.latency_seconds))
        rows = ran[[3, len(ran) // 2]]
        mean, variance = belief.given(rows, np.log(model.latency_seconds[rows]), np.full(2, 0.01))
        off = np.abs(mean[ran] - np.log(model.latency_seconds[ran])) / np.sqrt(variance[ran])
        inside.append(float((off < 2).mean()))
    assert np.mean(inside) > 0.8


def test_with_too_few_models_the_belief_is_broad_around_the_operators() -> None:
    known = world()
    few = replace(known, models=known.models[:2])
    belief = transfer_belief(few, known.models[5].target, known_points(known.configs))
    expected = additive_latency(few, known.models[5].target).seconds
    assert belief.mean == pytest.approx(np.log(expected))
    assert np.diag(belief.covariance) == pytest.approx(np.full(len(CONFIGS), 0.2025))


def test_known_rows_match_configurations() -> None:
    measured = tuple(Config.of({"batch": b, "precision": p}) for p in ("fp32", "fp16") for b in (1, 4, 16))
    wanted = (
        Config.of({"precision": "fp16", "batch": 16, "instance": "x"}),
        Config.of({"precision": "fp32", "batch": 6, "instance": "x"}),
        Config.of({"precision": "int8", "batch": 100, "instance": "x"}),
    )
    assert matching_rows(measured, wanted).tolist() == [5, 1, 2]
    message = r"the measured tables have the knobs batch, precision; none of these can be chosen here"
    with pytest.raises(BadInput, match=message):
        matching_rows(measured, (Config.of({"threads": 1}),))
