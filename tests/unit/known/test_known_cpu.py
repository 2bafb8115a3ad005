"""The shipped tables: complete, positive, and how `mlcd serve` uses them."""

import numpy as np
import pytest

from mlcd.known import Known, KnownModel, OperatorCurve, OperatorUse, TargetModel
from mlcd.known.cpu import cpu, cpu_noise
from mlcd.known.resemblance import resemblance
from mlcd.space import Config


def use(operator: str, share: float) -> OperatorUse:
    return OperatorUse(operator=operator, shape="4", count=1, share=share, flops=1.0, bytes=1.0)


def known(**models: dict[str, float]) -> Known:
    config = Config.of({"batch": 1, "threads": 1, "replicas": 1, "precision": "fp32"})
    one = np.ones(1)
    return Known(
        configs=(config,),
        usd_per_hour=one,
        models=tuple(
            KnownModel(
                target=TargetModel(name=name, operators=tuple(use(*item) for item in shares.items())),
                family=name,
                latency_seconds=one,
                memory_gib=one,
            )
            for name, shares in models.items()
        ),
        curves=(OperatorCurve(operator="Add", shape="4", flops=1.0, bytes=1.0, seconds=one),),
        source="made up",
        simulated=True,
    )


def test_a_model_resembles_those_with_its_operators() -> None:
    tables = known(convs={"Conv": 0.9, "Relu": 0.1}, dense={"Gemm": 1.0}, both={"Conv": 0.5, "Gemm": 0.5})
    found = resemblance(tables, TargetModel(name="new", operators=(use("Conv", 0.8), use("Add", 0.1), use("Odd", 0.1))))
    assert [name for name, _ in found.nearest] == ["convs", "both", "dense"]
    assert found.nearest[0][1] == pytest.approx(0.8 * 0.9 / (np.hypot(0.9, 0.1) * np.sqrt(0.66)))
    assert found.covered == pytest.approx(0.9)
    assert found.unseen == ("Odd",)
    assert found.word == "likely"


def test_nothing_known_is_a_guess() -> None:
    found = resemblance(known(), TargetModel(name="new", operators=(use("Odd", 1.0),)))
    assert (found.nearest, found.covered, found.unseen, found.word) == ((), 0.0, ("Odd",), "a guess")
    assert resemblance(known(a={"Gemm": 1.0}), TargetModel(name="new", operators=())).confidence == 0.0


def test_the_shipped_tables_are_complete() -> None:
    tables = cpu()
    assert not tables.simulated
    assert len(tables.configs) == 24
    assert len(tables.models) >= 19
    assert {"resnet50-like", "vit-small", "gru"}.isdisjoint(model.name for model in tables.models)
    for model in tables.models:
        assert np.isfinite(model.latency_seconds).all()
        assert (model.latency_seconds > 0).all()
        assert (model.memory_gib > 0).all()
        assert sum(part.share for part in model.target.operators) == pytest.approx(1.0, abs=0.01)
    for curve in tables.curves:
        assert np.isfinite(curve.seconds).all()
        assert (curve.seconds > 0).all()
    assert 0 < cpu_noise() < 0.3


def test_no_configuration_is_best_for_most_models() -> None:
    """Otherwise a search would be pointless (within 5% of the best, under 50 ms)."""
    tables = cpu()
    near = np.zeros(len(tables.configs))
    for model in tables.models:
        worth = tables.per_dollar(model, 0.05)
        near += worth >= 0.95 * worth.max()
    assert near.max() <= len(tables.models) / 2
