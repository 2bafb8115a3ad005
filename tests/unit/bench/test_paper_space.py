"""The paper's space: 1,440 configurations, 30 models, simulated from operator tables; here from synthetic ones."""

import csv
import gzip
from pathlib import Path

import numpy as np
import pytest

from mlcd.bench.serve.case import Bed, Case
from mlcd.bench.serve.paper_models import PAPER_MODELS, SOURCES, TARGETS
from mlcd.bench.serve.paper_space import BATCHES, GPUS, MEASURED_ON, paper_bed, paper_space, read_operators
from mlcd.errors import BadInput
from mlcd.known import Known
from mlcd.space import Config, Value
from papers.falcon_evaluations import Setting, as_json, evaluate

REAL = Path(__file__).resolve().parents[4] / "shared" / "measured" / "falcon"
FLOOR = {"M60": 3.0e-3, "T4": 2.9e-3, "K80": 5.0e-3, "V100": 2.95e-3}
SPEED = {"M60": 5.0, "T4": 3.0, "K80": 6.0, "V100": 1.0}
SHAPES = {
    "nn.conv2d": "0/((4, 4), (0, 0))/((-1, 3, {0}, {0}), (32, 3, 3, 3))",
    "nn.dense": "0/((2, 2), (0, 0))/((-1, {0}), ({1}, {0}))",
    "nn.bias_add": "0/((3, 1), (0, 0))/((-1, {0}, {0}), ({0},))",
    "subtract": "0/((3, 3), (0, 0))/((-1, {0}, {0}), (-1, {0}, 1))",
    **dict.fromkeys(("add", "multiply"), "0/((3, 3), (0, 0))/((-1, {0}, {0}), (-1, {0}, {0}))"),
    **dict.fromkeys(("nn.relu", "sigmoid", "tanh", "nn.concat"), "0/((3,), (0, 0))/((-1, {0}, {0}),)"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of the real form: time grows with batch and size, dense has another number of outputs on each GPU."""
    path = tmp_path_factory.mktemp("operators")
    rows = []
    for operator, shape in SHAPES.items():
        for size in (128, 64, 32):
            for at, gpu in enumerate(GPUS):
                outputs = 42 + 4 * at
                grown = size / 128 if operator == "nn.dense" else (size / 128) ** 2
                wide = outputs / 50 if operator == "nn.dense" else 1.0
                fastest = 1.0 if operator == "nn.dense" and gpu == "T4" else SPEED[gpu]
                for batch in BATCHES:
                    seconds = FLOOR[gpu] / wide + 1e-3 * batch * grown * fastest
                    where = {"cpus": 1, "instance": MEASURED_ON[gpu], "operator": operator}
                    rows.append(
                        {**where, "shape": shape.format(size, outputs), "batch": batch, "seconds": seconds * wide}
                    )
    with gzip.open(path / "operators.csv.gz", "wt", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ["cpus", "instance", "operator", "shape", "batch", "seconds"])
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.fixture(scope="module")
def known(folder: Path) -> Known:
    return paper_space(folder)


@pytest.fixture(scope="module")
def bed(folder: Path) -> Bed:
    return paper_bed(folder)


@pytest.fixture(scope="module")
def real() -> Known:
    return paper_space(REAL)


def test_it_is_the_papers_space(known: Known) -> None:
    assert len(known.configs) == 1440 == len(set(known.configs))
    assert (len(SOURCES), len(TARGETS), len(known.models)) == (18, 12, 30)
    assert not set(SOURCES) & set(TARGETS)
    assert known.simulated
    assert "simulated" in known.source


def test_the_floor_is_subtracted_and_outputs_are_scaled(folder: Path) -> None:
    operators = read_operators(folder)
    dense = operators["dense", "128"].seconds
    assert dense[GPUS.index("T4")] == pytest.approx(dense[GPUS.index("V100")], rel=0.05)
    conv = operators["conv2d", "128x128"].seconds
    assert (np.diff(conv, axis=1) > 0).all()
    ratio = conv[GPUS.index("K80"), -1] / conv[GPUS.index("V100"), -1]
    assert ratio == pytest.approx(6.0, rel=0.05)
    assert ("concat", "128x128") not in operators


def test_shares_add_up_to_less_than_the_whole_and_operators_are_known(known: Known) -> None:
    curves = {(curve.operator, curve.shape) for curve in known.curves}
    for model in known.models:
        assert 0.2 < sum(use.share for use in model.target.operators) <= 1.0
        assert all((use.operator, use.shape) in curves for use in model.target.operators)


def test_memory_runs_out_where_the_batch_is_too_large(known: Known) -> None:
    vgg = next(model for model in known.models if model.name == "vgg-19")
    given = np.array([float(config["gpu_memory"]) for config in known.configs])
    assert np.isinf(vgg.latency_seconds[vgg.memory_gib > given]).all()
    assert np.isfinite(vgg.latency_seconds[vgg.memory_gib <= given]).all()
    assert np.isinf(vgg.latency_seconds).any()


def test_more_cores_more_power_and_a_faster_gpu_are_never_slower(known: Known) -> None:
    model = next(m for m in known.models if m.name == "resnet-101")
    base: dict[str, Value] = {"cpus": 2, "gpu": "V100", "gpu_memory": 2.4, "batch": 8, "power": 0.75}

    def seconds(**changed: float | str) -> float:
        return float(model.latency_seconds[known.configs.index(Config.of({**base, **changed}))])

    assert seconds(cpus=5) < seconds() < seconds(cpus=1)
    assert seconds(power=1.0) < seconds() < seconds(power=0.5)
    assert seconds() < seconds(gpu="K80")
    assert seconds(batch=4) < seconds()


def test_prices_come_from_the_catalog_and_rise_with_what_is_rented(known: Known) -> None:
    price = dict(zip(known.configs, known.usd_per_hour, strict=True))
    base: dict[str, Value] = {"cpus": 1, "gpu": "T4", "gpu_memory": 0.8, "batch": 4, "power": 0.5}
    changes: tuple[dict[str, Value], ...] = ({"cpus": 2}, {"gpu": "V100"}, {"gpu_memory": 2.4}, {"power": 1.0})
    for change in changes:
        assert price[Config.of({**base, **change})] > price[Config.of(base)]
    assert price[Config.of({**base, "batch": 128})] == price[Config.of(base)]
    whole = price[Config.of({"cpus": 1, "gpu": "V100", "gpu_memory": 2.4, "batch": 4, "power": 1.0})]
    assert 0.0425 < whole < 3.06 * 2.4 / 16 + 0.0425


def test_the_same_tables_give_the_same_space(folder: Path, known: Known) -> None:
    again = paper_space(folder, {"vgg-16": PAPER_MODELS["vgg-16"]})
    before = next(model for model in known.models if model.name == "vgg-16")
    assert np.array_equal(again.models[0].latency_seconds, before.latency_seconds)


def test_targets_are_searched_for_and_only_sources_are_known(bed: Bed) -> None:
    assert bed.has_operators
    assert {model.name for model in bed.sources("vgg-16").models} == set(SOURCES)
    assert bed.trial_seconds == 900.0


def test_a_missing_or_broken_table_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match=r"operators\.csv\.gz is missing"):
        paper_bed(tmp_path)
    monkeypatch.setenv("MLCD_OPERATORS", str(tmp_path / "elsewhere"))
    with pytest.raises(BadInput, match="elsewhere"):
        paper_bed()
    (tmp_path / "operators.csv.gz").write_bytes(b"no gzip")
    with pytest.raises(BadInput, match="cannot be read as gzipped CSV"):
        paper_bed(tmp_path)
    with gzip.open(tmp_path / "operators.csv.gz", "wt", encoding="utf-8") as file:
        file.write("operator,shape\nadd,x\n")
    with pytest.raises(BadInput, match="needs operator, shape, instance, batch, seconds of four GPUs"):
        paper_bed(tmp_path)


@pytest.mark.skipif(not REAL.is_dir(), reason="the measured operator latencies are not here")
@pytest.mark.parametrize("slo_ms", [30.0, 100.0])
def test_no_configuration_of_the_real_tables_is_near_the_best_for_most_models(real: Known, slo_ms: float) -> None:
    worth = [real.per_dollar(model, slo_ms / 1000) for model in real.models]
    served = np.array([values / values.max() for values in worth if values.max() > 0])
    assert len(served) >= 15
    assert (served >= 0.95).mean(axis=0).max() <= 0.5


def test_an_evaluation_runs_real_searches(bed: Bed) -> None:
    setting = Setting(bed=bed, slo_ms=100.0, strategies=("falcon", "random"), seeds=1, rival="vesta")
    (found,) = evaluate(setting, (1,))
    cold = {row[0]: row for row in found.rows}
    assert float(cold["falcon"][2]) > float(cold["random"][2])
    assert found.picture.startswith("<svg")
    assert "SIMULATED" in found.picture


@pytest.mark.extra
def test_the_evaluations_run_real_searches(bed: Bed) -> None:
    setting = Setting(bed=bed, slo_ms=100.0, strategies=("falcon", "falcon-transfer", "random"), seeds=1, rival="vesta")
    case = Case.of(bed, "vgg-16", 0.1, noise=0.01, max_trials=30)
    assert case is not None
    found = evaluate(setting, (1, 3, 7))
    assert [one.number for one in found] == [1, 3, 7]
    for one in found:
        assert one.paper
        assert one.rows
        assert all(len(row) == len(one.columns) for row in one.rows)
    cold = {row[0]: row for row in found[0].rows}
    assert float(cold["falcon"][2]) > float(cold["random"][2])
    assert found[0].picture.startswith("<svg")
    assert "SIMULATED" in found[0].picture
    assert "picture" not in str(as_json(setting, found)["evaluations"])
    benefit = [row for row in found[2].rows if row[1] == "exhaustive best"]
    assert all(float(row[5]) > 0 for row in benefit)


def test_an_unknown_evaluation_is_refused(bed: Bed) -> None:
    with pytest.raises(BadInput, match="there is no evaluation 9"):
        evaluate(Setting(bed=bed, slo_ms=100.0, strategies=("falcon",)), (9,))
