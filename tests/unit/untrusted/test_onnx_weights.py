"""A model names the files with its weights: none of them may be any other file of this machine."""

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import TensorProto, helper, numpy_helper
from tests.report_kind_samples import serving_run

from mlcd.cli.serve_files import write_files
from mlcd.clouds.serving import LocalServing
from mlcd.clouds.workspace import link_or_copy
from mlcd.errors import BadInput
from mlcd.graphs import read_onnx
from mlcd.server.model import OnnxModel
from mlcd.server.options import ServerOptions
from mlcd.server.quantise import quantised, weights_of
from mlcd.space import Config
from mlcd.untrusted import Malformed, weights_beside
from mlcd.untrusted import onnx_weights as reader

WIDTH = 4
WEIGHTS = np.ones((WIDTH, WIDTH), np.float32)


def tensor(*locations: str, name: str = "w") -> Any:
    """A matrix whose numbers are elsewhere."""
    made = TensorProto(name=name, dims=WEIGHTS.shape, data_type=TensorProto.FLOAT)
    made.data_location = TensorProto.EXTERNAL
    for location in locations:
        made.external_data.add(key="location", value=location)
    return made


def model(*initializers: Any, nodes: tuple[Any, ...] = ()) -> Any:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", WIDTH]) for name in "xy")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"]), *nodes], "g", [x], [y], list(initializers)
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def written(folder: Path, made: Any) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "m.onnx"
    path.write_bytes(made.SerializeToString())
    return path


def secret(tmp_path: Path) -> Path:
    """A file of the user, as large as the weights that a model claims to have there."""
    path = tmp_path / "secret"
    path.write_bytes(WEIGHTS.tobytes())
    return path


def absolute(tmp_path: Path, folder: Path) -> str:
    return str(secret(tmp_path))


def above(tmp_path: Path, folder: Path) -> str:
    secret(tmp_path)
    return "../secret"


def above_through_a_folder(tmp_path: Path, folder: Path) -> str:
    secret(tmp_path)
    (folder / "sub").mkdir()
    return "sub/../../secret"


def link(tmp_path: Path, folder: Path) -> str:
    (folder / "weights").symlink_to(secret(tmp_path))
    return "weights"


def link_to_a_folder(tmp_path: Path, folder: Path) -> str:
    secret(tmp_path)
    (folder / "sub").symlink_to("..")
    return "sub/secret"


def hard_link(tmp_path: Path, folder: Path) -> str:
    os.link(secret(tmp_path), folder / "weights")
    return "weights"


def hidden(tmp_path: Path, folder: Path) -> str:
    (folder / ".ssh").mkdir()
    (folder / ".ssh" / "id").write_bytes(WEIGHTS.tobytes())
    return ".ssh/id"


def link_to_a_hidden_file(tmp_path: Path, folder: Path) -> str:
    (folder / "weights").symlink_to(hidden(tmp_path, folder))
    return "weights"


def fifo(tmp_path: Path, folder: Path) -> str:
    os.mkfifo(folder / "weights")
    return "weights"


def subfolder(tmp_path: Path, folder: Path) -> str:
    (folder / "weights").mkdir()
    return "weights"


def listening(tmp_path: Path, folder: Path) -> str:
    here = Path.cwd()
    os.chdir(folder)  # the name of a socket is short
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("weights")
    os.chdir(here)
    return "weights"


HOSTILE: tuple[Callable[[Path, Path], str], ...] = (
    absolute,
    above,
    above_through_a_folder,
    link,
    link_to_a_folder,
    hard_link,
    hidden,
    link_to_a_hidden_file,
    fifo,
    subfolder,
    listening,
)
NAMES = ("", ".", "/", "..", "a\nRUN evil", "a\0/../../secret", "~root/x", "x" * 5000, "\u202ea", "missing")
IN_MEMORY = "*/_ORT_MEM_ADDR_/*"
"""How ONNX Runtime names its own memory."""


@pytest.fixture(params=[*HOSTILE, *NAMES, IN_MEMORY])
def hostile(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A model whose weights are said to be a file that has nothing to do with it."""
    folder = tmp_path / "downloaded"
    folder.mkdir()
    name = request.param if isinstance(request.param, str) else request.param(tmp_path, folder)
    return written(folder, model(tensor(name)))


def test_such_a_file_is_not_read(hostile: Path, tmp_path: Path) -> None:
    """By none of the ways to a model, each with one line that names the model."""
    ways: list[Callable[[], object]] = [
        lambda: read_onnx(hostile),
        lambda: OnnxModel(ServerOptions(model=hostile)),
        lambda: quantised(hostile, tmp_path / "cache"),
        lambda: weights_of(hostile),
    ]
    for way in ways:
        with pytest.raises(BadInput) as refused:
            way()
        assert str(refused.value).startswith(f"{hostile}: its weights are said to be in ")
        assert str(refused.value).isprintable()


def test_such_a_file_is_not_sent_to_nodes_nor_written(hostile: Path, tmp_path: Path) -> None:
    serving = LocalServing(hostile, home=tmp_path / "home", noise=0.0, cpus=(0, 1))
    chosen = Config.of({"batch": 1, "threads": 1, "replicas": 1, "precision": "fp32"})
    with pytest.raises(BadInput, match="its weights are said to be in"):
        serving.on_node(chosen, shares_files=False)
    with pytest.raises(BadInput, match="its weights are said to be in"):
        write_files("compose", tmp_path / "out", serving_run(), serving)
    assert not (tmp_path / "out").exists()


IN_ATTRIBUTES = {
    "constant": helper.make_node("Constant", [], ["c"], value=tensor("../secret")),
    "branch": helper.make_node(
        "If",
        ["c"],
        ["z"],
        then_branch=helper.make_graph([], "then", [], [], [tensor("../secret")]),
        else_branch=helper.make_graph([], "else", [], []),
    ),
    "list": helper.make_node("Odd", [], ["c"], domain="example", values=[tensor("../secret")]),
}


@pytest.mark.parametrize("node", IN_ATTRIBUTES.values(), ids=IN_ATTRIBUTES)
def test_tensors_everywhere_in_a_model(node: Any, tmp_path: Path) -> None:
    path = written(tmp_path, model(numpy_helper.from_array(WEIGHTS, "w"), nodes=(node,)))
    with pytest.raises(Malformed, match=r"'\.\./secret'"):
        weights_beside(path)


def test_a_function_and_a_sparse_tensor(tmp_path: Path) -> None:
    function = helper.make_function("example", "F", [], ["c"], [IN_ATTRIBUTES["constant"]], [])
    made = model(numpy_helper.from_array(WEIGHTS, "w"))
    made.functions.append(function)
    with pytest.raises(Malformed, match=r"'\.\./secret'"):
        weights_beside(written(tmp_path, made))
    made = model(numpy_helper.from_array(WEIGHTS, "w"))
    made.graph.sparse_initializer.add().values.CopyFrom(tensor("../secret"))
    with pytest.raises(Malformed, match=r"'\.\./secret'"):
        weights_beside(written(tmp_path, made))


def test_every_place_of_a_tensor_is_known() -> None:
    """The reader's table of messages says the same as ONNX's own definition."""
    found: dict[str, dict[int, str]] = {}
    holding = {"TensorProto"}
    messages = onnx.ModelProto.DESCRIPTOR.file.message_types_by_name
    while True:
        more = {
            name
            for name, message in messages.items()
            if any(field.message_type is not None and field.message_type.name in holding for field in message.fields)
        }
        if more <= holding:
            break
        holding |= more
    todo = ["ModelProto"]
    while todo:
        name = todo.pop()
        if name in found or name == "TensorProto":
            continue
        inner = {
            field.number: field.message_type.name
            for field in messages[name].fields
            if field.message_type is not None and field.message_type.name in holding
        }
        found[name] = inner
        todo += inner.values()
    assert found == reader.PARTS
    numbers = messages["TensorProto"].fields_by_name
    assert numbers["external_data"].number == reader.EXTERNAL_DATA
    assert numbers["data_location"].number == reader.DATA_LOCATION


def test_all_names_of_a_tensor_count(tmp_path: Path) -> None:
    path = written(tmp_path / "m", model(tensor("weights", "../secret")))
    (tmp_path / "m" / "weights").write_bytes(WEIGHTS.tobytes())
    with pytest.raises(Malformed, match=r"\.\./secret"):
        weights_beside(path)
    with pytest.raises(Malformed, match="does not say where"):
        weights_beside(written(tmp_path / "m", model(tensor())))


@pytest.mark.parametrize("cut", [1, 3, 10, 40, 90])
def test_a_damaged_file(cut: int, tmp_path: Path) -> None:
    path = written(tmp_path, model(tensor("../secret")))
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(Malformed):
        weights_beside(path)


def locations(message: Any) -> set[str]:
    """Every location in a message that ONNX itself has read."""
    found = set()
    if message.DESCRIPTOR.name == "TensorProto" and message.data_location == TensorProto.EXTERNAL:
        found |= {entry.value for entry in message.external_data if entry.key == "location"}
    for field, value in message.ListFields():
        if field.message_type is not None:
            found |= {each for inner in (value if field.is_repeated else [value]) for each in locations(inner)}
    return found


def test_whatever_onnx_reads_of_a_damaged_file_is_seen(tmp_path: Path) -> None:
    """No name of a file that ONNX finds in random bytes is missed: either it is listed or the model is refused."""
    rng = np.random.default_rng(0)
    whole = written(tmp_path, model(tensor("weights"), nodes=tuple(IN_ATTRIBUTES.values()))).read_bytes()
    path, agreed, refused = tmp_path / "m.onnx", 0, 0
    for _ in range(3000):
        damaged = bytearray(whole)
        for _ in range(rng.integers(1, 4)):
            damaged[rng.integers(len(damaged))] = rng.integers(256)
        path.write_bytes(damaged)
        try:
            listed = set(reader._locations(path))
        except Malformed:
            refused += 1
            continue
        with suppress(DecodeError):
            assert locations(onnx.ModelProto.FromString(bytes(damaged))) <= listed
            agreed += 1
    assert min(agreed, refused) > 300


def test_weights_in_the_folder_and_below_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    path = written(folder, model(tensor("./sub/w")))
    (folder / "sub").mkdir()
    (folder / "sub" / "w").write_bytes(WEIGHTS.tobytes())
    assert [str(name) for name in weights_beside(path)] == ["sub/w"]
    values = {"x": np.ones((1, WIDTH), np.float32)}
    assert OnnxModel(ServerOptions(model=path)).run(0, values)[0].tolist() == [[4.0] * WIDTH]
    serving = LocalServing(path, home=tmp_path / "home", noise=0.0, cpus=(0, 1))
    chosen = Config.of({"batch": 1, "threads": 1, "replicas": 1, "precision": "fp32"})
    sent = serving.on_node(chosen, shares_files=False)
    assert (sent.files, sent.copies) == ({"mlcd-model/m.onnx": path}, {"mlcd-model/sub/w": folder / "sub" / "w"})
    out = tmp_path / "out"
    write_files("compose", out, serving_run(), serving)
    assert (out / "sub" / "w").read_bytes() == WEIGHTS.tobytes()
    assert 'COPY ["sub/w", "/models/sub/"]' in (out / "Dockerfile").read_text().splitlines()


def test_a_model_of_a_cache_of_downloads(tmp_path: Path) -> None:
    """Hugging Face's cache has the files elsewhere in the repository's folder, and links to them by their names."""
    blobs, version = tmp_path / "models--a--b" / "blobs", tmp_path / "models--a--b" / "snapshots" / "1"
    blobs.mkdir(parents=True)
    version.mkdir(parents=True)
    (blobs / "01").write_bytes(model(tensor("m.onnx_data")).SerializeToString())
    (blobs / "02").write_bytes(WEIGHTS.tobytes())
    (version / "m.onnx").symlink_to("../../blobs/01")
    (version / "m.onnx_data").symlink_to("../../blobs/02")
    assert [str(name) for name in weights_beside(version / "m.onnx")] == ["m.onnx_data"]
    link_or_copy(version, tmp_path / "there")
    assert (tmp_path / "there" / "m.onnx_data").read_bytes() == WEIGHTS.tobytes()
    assert not (tmp_path / "there" / "m.onnx_data").is_symlink()
    assert (tmp_path / "there" / "m.onnx_data").samefile(blobs / "02")


@pytest.mark.parametrize("target", ["../secret", "secret", ".."])
def test_a_folder_of_a_model_takes_no_other_files_to_nodes(target: str, tmp_path: Path) -> None:
    secret(tmp_path)
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").symlink_to(tmp_path / target if target == "secret" else target)
    with pytest.raises(Malformed, match="is a link out of"):
        link_or_copy(folder, tmp_path / "there")
    assert not (tmp_path / "there").exists()
