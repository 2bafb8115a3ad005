"""The configurations of a server on a GPU, and their prices."""

from pathlib import Path

import pytest
from tests import fake_gpu
from tests.tiny_torch import exported, scripted

from mlcd.clouds.serving import CommandServing, LocalServing
from mlcd.errors import SpecError
from mlcd.jobs.serve import prepare
from mlcd.spec.serving import parse_serve

pytest.importorskip("torch")

LLM = """
name: llm
model: some/name
server: {run: "exec serve $MODEL --port $PORT --seqs $SEQS"}
knobs: {SEQS: [1, 8], GPU_SHARE: [25, 100]}
goal: {maximize: tokens per dollar}
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    exported(folder / "words.pt2", words=True)
    scripted(folder / "dense.pt")
    return folder


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_gpu.install(tmp_path, monkeypatch)


def job(models: Path, more: str = "", file: str = "words.pt2") -> str:
    return f"name: a\nmodel: {models / file}\ngoal: {{maximize: requests per dollar, slo: {{p99: 50ms}}}}\n{more}"


@pytest.mark.usefixtures("gpu")
def test_shares_batches_and_precisions_are_searched_with_the_tables_of_an_h200(models: Path, tmp_path: Path) -> None:
    prepared = prepare(parse_serve(job(models)), folder=tmp_path)
    knobs = {knob.name: knob.values for knob in prepared.problem.space.knobs}
    assert knobs["gpu_share"] == (12, 25, 50, 100)
    assert knobs["precision"] == ("fp32", "tf32", "bf16", "fp16")
    assert knobs["compile"] == ("off",)
    assert prepared.strategy == "falcon-transfer"
    assert isinstance(prepared.server, LocalServing)
    assert prepared.server.gpu is not None
    prices = dict(zip(prepared.problem.space.configs, prepared.problem.usd_per_hour, strict=True))
    whole = {usd.dollars for config, usd in prices.items() if config["gpu_share"] == 100}
    assert list(whole) == [pytest.approx(63.296 / 8 + 2 * 0.0425, abs=1e-4)]
    assert any("p5en.48xlarge" in note for note in prepared.notes)


@pytest.mark.usefixtures("gpu")
def test_the_job_sets_prices_and_values(models: Path, tmp_path: Path) -> None:
    more = "knobs: {gpu_share: [50, 100], precision: [fp16], compile: [off, on], batch: 8}\n"
    more += "resources: {prices: {local.gpu: 4 USD, local.2: 1 USD}}"
    problem = prepare(parse_serve(job(models, more)), folder=tmp_path).problem
    found = {
        (c["gpu_share"], c["compile"]): p.dollars
        for c, p in zip(problem.space.configs, problem.usd_per_hour, strict=True)
    }
    assert found == {(50, "off"): 3.0, (50, "on"): 3.0, (100, "off"): 5.0, (100, "on"): 5.0}


def test_without_a_gpu_pytorch_runs_on_processors(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    prepared = prepare(parse_serve(job(models)), folder=tmp_path)
    assert {config["precision"] for config in prepared.problem.space.configs} == {"fp32", "bf16"}
    assert prepared.strategy == "heterbo", "the tables of processors are of ONNX Runtime"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("knobs: {gpu_share: 50}", "knobs.gpu_share: .*no NVIDIA GPU"),
        ("knobs: {precision: int8}", "knobs.precision: .*not what pytorch offers on processors"),
        ("knobs: {compile: on}", "knobs.compile: .*on a GPU"),
    ],
)
def test_what_needs_a_gpu_is_refused_without_one(
    more: str, message: str, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SpecError, match=message):
        prepare(parse_serve(job(models, more)), folder=tmp_path)


def test_shares_need_the_service(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_gpu.install(tmp_path, monkeypatch, mps=False)
    found = prepare(parse_serve(job(models)), folder=tmp_path).problem
    assert {config["gpu_share"] for config in found.space.configs} == {100}
    with pytest.raises(SpecError, match="nvidia-cuda-mps-control"):
        prepare(parse_serve(job(models, "knobs: {gpu_share: 50}")), folder=tmp_path)
    with pytest.raises(SpecError, match="nvidia-cuda-mps-control"):
        prepare(parse_serve(LLM), folder=tmp_path)


def test_torchscript_needs_its_inputs(models: Path, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"inputs: .*TorchScript does not tell"):
        prepare(parse_serve(job(models, file="dense.pt")), folder=tmp_path)
    prepared = prepare(parse_serve(job(models, "inputs: {x: FP32:6}", file="dense.pt")), folder=tmp_path)
    assert prepared.test.inputs[0].shape == (1, 6)  # type: ignore[attr-defined]


@pytest.mark.usefixtures("gpu")
def test_a_command_pays_for_its_share(tmp_path: Path) -> None:
    spec = parse_serve(LLM + "resources: {prices: {local: 1 USD, local.gpu: 4 USD}}")
    prepared = prepare(spec, folder=tmp_path)
    problem = prepared.problem
    found = {
        config["GPU_SHARE"]: usd.dollars
        for config, usd in zip(problem.space.configs, problem.usd_per_hour, strict=True)
    }
    assert found == {25: 2.0, 100: 5.0}
    assert isinstance(prepared.server, CommandServing)
    assert prepared.server.gpu is not None


def test_a_share_is_percent() -> None:
    with pytest.raises(SpecError, match=r"knobs.GPU_SHARE: is percent"):
        parse_serve(LLM.replace("25, 100", "0, 100"))
