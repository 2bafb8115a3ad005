"""PyTorch behind mlcd's server, on processors: what a GPU changes is the device alone."""

import io
import os
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.tiny_torch import ITEMS, dense_answer, exported, scripted, with_types

from mlcd.errors import BadInput
from mlcd.graphs import read_pt2
from mlcd.server.model import ModelRefused
from mlcd.server.options import Device, Engine, Precision, ServerOptions, engine_of
from mlcd.server.tensors import TensorSpec, input_of, input_text

torch = pytest.importorskip("torch")

from mlcd.server.torch_model import TorchModel, moved  # noqa: E402 - needs PyTorch

X = TensorSpec(name="input", datatype="FP32", shape=(-1, ITEMS))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("torch")
    exported(folder / "dense.pt2")
    exported(folder / "words.pt2", words=True)
    exported(folder / "four.pt2", fixed=4)
    scripted(folder / "dense.pt")
    with_types(folder / "bytes.pt2")
    (folder / "broken.pt2").write_bytes(b"no model")
    return folder


def rows_of(count: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((count, ITEMS)).astype("float32")


def test_the_engine_follows_from_the_suffix() -> None:
    assert engine_of(Path("a.onnx")) is Engine.ONNX_RUNTIME
    assert engine_of(Path("a.PT2")) is Engine.PYTORCH
    assert engine_of(Path("a.pt")) is Engine.PYTORCH


@pytest.mark.parametrize("count", [1, 3, 8])
def test_an_exported_model_computes_every_batch_up_to_the_largest(files: Path, count: int) -> None:
    model = TorchModel(ServerOptions(model=files / "dense.pt2", batch=8))
    (name,) = (spec.name for spec in model.inputs)
    assert [spec.shape for spec in model.inputs] == [(-1, ITEMS)]
    assert [(spec.datatype, spec.shape) for spec in model.outputs] == [("FP32", (-1, 3))]
    (found,) = model.run(0, {name: rows_of(count)})
    np.testing.assert_allclose(found, dense_answer(rows_of(count)), rtol=1e-5, atol=1e-6)


def test_sixteen_bits_round_the_answer_and_are_told_as_32(files: Path) -> None:
    model = TorchModel(ServerOptions(model=files / "dense.pt2", batch=4, precision=Precision.BF16))
    (found,) = model.run(0, {model.inputs[0].name: rows_of(4)})
    exact = dense_answer(rows_of(4))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, exact, rtol=0.05, atol=0.05)
    assert np.abs(found - exact).max() > 1e-6  # it did compute in 16 bits


def test_types_in_the_graph_become_the_precision(files: Path) -> None:
    model = TorchModel(ServerOptions(model=files / "bytes.pt2", batch=2, precision=Precision.BF16))
    assert not model._autocast  # the weights are kept in 16 bits
    exact = TorchModel(ServerOptions(model=files / "bytes.pt2", batch=2))
    rows = np.arange(2 * ITEMS, dtype="uint8").reshape(2, ITEMS)
    (found,), (wanted,) = (each.run(0, {each.inputs[0].name: rows}) for each in (model, exact))
    np.testing.assert_allclose(found, wanted, rtol=0.05, atol=0.05)
    assert (found != wanted).any()


def test_a_graph_that_cannot_be_retyped_runs_by_autocast(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlcd.server.torch_model.rewrite", lambda *_: None)
    model = TorchModel(ServerOptions(model=files / "bytes.pt2", batch=2, precision=Precision.BF16))
    assert model._autocast
    (found,) = model.run(0, {model.inputs[0].name: np.zeros((1, ITEMS), dtype="uint8")})
    assert found.shape == (1, 3)


def test_what_a_graph_makes_while_it_runs_is_made_on_the_device(files: Path) -> None:
    """`meta` stands for a GPU: a tensor that stayed on the processor would not go together with the others."""
    meta = torch.device("meta")
    module = moved(torch, torch.export.load(files / "bytes.pt2"), meta)
    assert module(torch.zeros(3, ITEMS, dtype=torch.uint8, device=meta)).device == meta


def test_indices_stay_whole_numbers(files: Path) -> None:
    model = TorchModel(ServerOptions(model=files / "words.pt2", batch=2, precision=Precision.BF16))
    assert model.inputs[0].datatype == "INT64"
    (found,) = model.run(0, {model.inputs[0].name: np.array([[1, 2, 3, 15]])})
    assert found.shape == (1, 3)


def test_an_index_beyond_the_table_is_refused(files: Path) -> None:
    model = TorchModel(ServerOptions(model=files / "words.pt2", batch=2))
    with pytest.raises(ModelRefused, match="out of range"):
        model.run(0, {model.inputs[0].name: np.array([[1, 2, 3, 16]])})


def test_a_scripted_model_is_told_its_inputs(files: Path) -> None:
    options = ServerOptions(model=files / "dense.pt", batch=4, inputs=(X,))
    (found,) = TorchModel(options).run(0, {"input": rows_of(3)})
    np.testing.assert_allclose(found, dense_answer(rows_of(3)), rtol=1e-5, atol=1e-6)
    with pytest.raises(BadInput, match="TorchScript does not tell its inputs"):
        TorchModel(replace(options, inputs=()))


@pytest.mark.parametrize(
    ("file", "batch", "message"),
    [
        ("broken.pt2", 1, "not a file that torch.export reads"),
        ("none.pt2", 1, "no such file"),
        ("four.pt2", 8, "the batch axis is fixed at 4"),
    ],
)
def test_a_file_that_cannot_be_served_is_refused_in_one_line(files: Path, file: str, batch: int, message: str) -> None:
    with pytest.raises(BadInput, match=message) as error:
        TorchModel(ServerOptions(model=files / file, batch=batch))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(b'"nodes"', b'"nodez"', id="a part is missing"),
        pytest.param(b'"weight"', b'"weighs"', id="of another name"),
        pytest.param(b'"as_tensor"', b'"as_tensoz"', id="of no known kind"),
    ],
)
def test_a_changed_description_of_a_model_is_refused(files: Path, tmp_path: Path, old: bytes, new: bytes) -> None:
    broken = tmp_path / "changed.pt2"
    with zipfile.ZipFile(files / "dense.pt2") as given, zipfile.ZipFile(broken, "w") as written:
        assert any(old in given.read(name) for name in given.namelist())
        for name in given.namelist():
            written.writestr(name, given.read(name).replace(old, new))
    with pytest.raises(BadInput, match=r"not a file that torch\.export reads"):
        read_pt2(broken, name="changed")


def test_an_archive_that_would_fill_the_memory_is_not_unpacked(files: Path, tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.pt2"
    with zipfile.ZipFile(files / "dense.pt2") as given, zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as written:
        for name in given.namelist():
            written.writestr(name, given.read(name))
        written.writestr("dense/data/weights/weight_9", bytes(64 * 2**20))
    assert bomb.stat().st_size < 2**20
    with pytest.raises(BadInput, match=r"would unpack to 0\.1 GiB"):
        read_pt2(bomb, name="bomb")
    with pytest.raises(BadInput, match=r"would unpack to 0\.1 GiB"):
        TorchModel(ServerOptions(model=bomb))


def test_a_gpu_that_is_not_there_is_refused(files: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(BadInput, match="finds no GPU"):
        TorchModel(ServerOptions(model=files / "dense.pt2", device=Device.CUDA))


def test_precisions_are_those_of_engine_and_device(files: Path) -> None:
    with pytest.raises(BadInput, match="pytorch on cpu has fp32, bf16"):
        ServerOptions(model=files / "dense.pt2", precision=Precision.INT8)
    with pytest.raises(BadInput, match="onnxruntime on cpu has fp32, int8"):
        ServerOptions(model=files / "dense.onnx", precision=Precision.FP16)
    with pytest.raises(BadInput, match="--compile"):
        ServerOptions(model=files / "dense.onnx", compiled=True)


def test_running_out_of_gpu_memory_is_told_as_such(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = TorchModel(ServerOptions(model=files / "dense.pt2", batch=2))

    def full(tensors: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nmore")

    monkeypatch.setattr(model, "_call", full)
    with pytest.raises(ModelRefused, match=r"CUDA out of memory. Tried to allocate 2.00 GiB.$"):
        model.run(0, {model.inputs[0].name: rows_of(1)})


def test_a_compiled_model_runs_full_batches_only(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler itself is not run here: it takes half a minute."""
    seen: list[int] = []

    def compile_(module: object) -> object:
        def call(x: object) -> object:
            seen.append(len(x))  # type: ignore[arg-type]
            return module(x)  # type: ignore[operator]

        return call

    monkeypatch.setattr(torch, "compile", compile_)
    model = TorchModel(ServerOptions(model=files / "dense.pt2", batch=4, compiled=True))
    (found,) = model.run(0, {model.inputs[0].name: rows_of(3)})
    np.testing.assert_allclose(found, dense_answer(rows_of(3)), rtol=1e-5, atol=1e-6)
    assert set(seen) == {4}


def test_inputs_on_the_command_line_round_trip(files: Path) -> None:
    assert input_of(input_text(X)) == X
    assert input_of("x=FP32:") == TensorSpec(name="x", datatype="FP32", shape=(-1,))
    assert input_of("x=FP33:3") is None
    assert input_of("x") is None
    options = ServerOptions(model=files / "dense.pt", inputs=(X,), compiled=True, device=Device.CUDA)
    assert options.arguments()[options.arguments().index("--input") :][:2] == ["--input", "input=FP32:6"]
    assert "--compile" in options.arguments()
    assert "cuda" in options.arguments()


class Command:
    """An object that runs a command where it is unpickled."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (self.text,)


def test_a_file_with_other_objects_than_tensors_runs_nothing(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    hostile, ran = tmp_path / "hostile.pt2", tmp_path / "ran"
    objects = io.BytesIO()
    torch.save((Command(f"touch {ran}"), {}), objects)
    with zipfile.ZipFile(files / "dense.pt2") as good, zipfile.ZipFile(hostile, "w") as made:
        changed = [name for name in good.namelist() if "sample_inputs" in name]
        for name in good.namelist():
            made.writestr(name, objects.getvalue() if name in changed else good.read(name))
    assert changed
    with pytest.raises(BadInput, match="holds Python objects besides tensors"):
        TorchModel(ServerOptions(model=hostile, batch=1))
    with pytest.raises(BadInput, match="holds Python objects besides tensors"):
        read_pt2(hostile, name="hostile")
    assert not ran.exists()
    assert os.environ.get("TORCH_FORCE_WEIGHTS_ONLY_LOAD") is None
    assert os.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] == "1"


@pytest.mark.parametrize("name", ["data/aotinductor/model/x.so", "extra/library.so"])
def test_a_file_with_compiled_libraries_is_not_read(files: Path, tmp_path: Path, name: str) -> None:
    hostile = tmp_path / "hostile.pt2"
    hostile.write_bytes((files / "dense.pt2").read_bytes())
    with zipfile.ZipFile(hostile, "a") as made:
        made.writestr(name, b"code")
    with pytest.raises(BadInput, match="compiled libraries"):
        TorchModel(ServerOptions(model=hostile, batch=1))
    with pytest.raises(BadInput, match="compiled libraries"):
        read_pt2(hostile, name="hostile")
