"""An image is built from what `--write` wrote: every file that it copies is there, and the wheel installs."""

import json
import os
import subprocess
import sys
from importlib.metadata import PathDistribution
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from tests.report_kind_samples import serving_run

from mlcd.cli.own_wheel import WHEEL_NAME, write_wheel
from mlcd.cli.serve_files import write_files
from mlcd.errors import BadInput
from mlcd.version import __version__


def write_model_with_weights_beside(path: Path, *, weights_file: str = "big.data") -> Path:
    weights = numpy_helper.from_array(np.zeros((64, 64), np.float32), "w")
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", 64]) for name in "xy")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [weights])
    onnx.save(helper.make_model(graph), path, save_as_external_data=True, location=weights_file, size_threshold=0)
    return path


@pytest.mark.parametrize("kind", ["compose", "kubernetes"])
def test_every_file_that_the_image_copies_is_written(kind: str, tmp_path: Path) -> None:
    model = write_model_with_weights_beside(tmp_path / "model.onnx")
    cloud: Any = SimpleNamespace(model=model, home=tmp_path, cpus=(0, 1), sizes={})
    folder = tmp_path / "out"
    written = write_files(kind, folder, serving_run(), cast(Any, cloud))
    assert all(path.is_file() for path in written)
    copies = [line for line in (folder / "Dockerfile").read_text().splitlines() if line.startswith("COPY ")]
    sources = [name for line in copies for name in json.loads(line.removeprefix("COPY "))[:-1]]
    assert sorted(sources) == sorted([WHEEL_NAME, "model.onnx", "big.data"])
    assert {path.name for path in written} >= set(sources)
    assert all((folder / name).is_file() for name in sources)


def _written(kind: str, model: Path, folder: Path) -> list[Path]:
    cloud: Any = SimpleNamespace(model=model, home=model.parent, cpus=(0, 1), sizes={})
    return write_files(kind, folder, serving_run(), cast(Any, cloud))


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("compose", "Dockerfile"),
        ("compose", "compose.yaml"),
        ("compose", "COMPOSE.yaml"),
        ("compose", WHEEL_NAME),
        ("compose", "Dockerfile/w"),
        ("kubernetes", "kubernetes.yaml"),
        ("skyserve", "service.yaml"),
    ],
)
def test_weights_do_not_take_the_place_of_what_mlcd_writes(kind: str, name: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    model = write_model_with_weights_beside(tmp_path / "model.onnx", weights_file=name)
    with pytest.raises(BadInput, match="is the name of a file that mlcd writes"):
        _written(kind, model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_nothing_is_written_through_links_of_the_folder(tmp_path: Path) -> None:
    model = write_model_with_weights_beside(tmp_path / "model.onnx")
    folder = tmp_path / "out"
    names = [path.relative_to(folder) for path in _written("compose", model, folder)]
    theirs = tmp_path / "theirs"
    theirs.write_text("kept")
    for name in names:
        (folder / name).unlink()
        (folder / name).symlink_to(theirs)
    assert all(path.is_file() and not path.is_symlink() for path in _written("compose", model, folder))
    assert theirs.read_text() == "kept"


def test_a_folder_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    model = write_model_with_weights_beside(tmp_path / "model.onnx")
    first = _written("triton", model, tmp_path / "out")
    label = first[0].parent.name
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "other"
    elsewhere.mkdir()
    folder.mkdir()
    (folder / label).symlink_to(elsewhere)
    with pytest.raises(BadInput, match="is a link: nothing is written through it"):
        _written("triton", model, folder)
    assert list(elsewhere.iterdir()) == []


def test_a_model_that_is_there_already_is_left_alone(tmp_path: Path) -> None:
    model = write_model_with_weights_beside(tmp_path / "model.onnx")
    before = model.read_bytes()
    _written("compose", model, tmp_path)
    assert model.read_bytes() == before


def test_the_wheel_installs_and_serves(tmp_path: Path) -> None:
    """Into an empty folder, without an index; what it needs besides comes from the test's own environment."""
    wheel, target = write_wheel(tmp_path), tmp_path / "site"
    install = ["-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", str(target), str(wheel)]
    subprocess.run([sys.executable, *install], check=True, env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"})
    env = {**os.environ, "PYTHONPATH": str(target)}
    said = subprocess.run(
        [sys.executable, "-c", "import mlcd, mlcd.version; print(mlcd.__file__, mlcd.version.__version__)"],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.split() == [str(target / "mlcd" / "__init__.py"), __version__]
    subprocess.run([sys.executable, "-m", "mlcd.server", "--help"], env=env, cwd=tmp_path, check=True, stdout=-3)
    (info,) = target.glob("*.dist-info")
    stated = PathDistribution(info)
    assert stated.version == __version__
    assert any("onnxruntime" in each and 'extra == "serve"' in each for each in stated.requires or [])
    assert not any(
        path.suffix == ".pyc" for path in (target / "mlcd").rglob("*.pyc") if "__pycache__" not in path.parts
    )


def test_the_same_package_gives_the_same_wheel(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert write_wheel(tmp_path / "a").read_bytes() == write_wheel(tmp_path / "b").read_bytes()
