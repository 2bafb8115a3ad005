"""Optional parts that are not installed: their name, and the command that installs them here."""

import json
import re
import shutil
import sys
import tomllib
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.tiny_onnx import write_mlp

from mlcd.cli.main import run
from mlcd.extras import EXTRAS, Extra, extra_of, install_line

PACKAGES = {"scikit_learn": "sklearn", "mlflow_skinny": "mlflow"}
DEVELOPERS = {"test", "docs"}
REPOSITORY = Path(__file__).parents[3]
STATED = ["numpy>=1.26", 'onnx>=1.16 ; extra == "serve"', "uvicorn>=0.29; extra == 'serve'", "joblib; extra == 'bench'"]


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of the extras is installed."""
    lacking = {module for extra in EXTRAS.values() for module in extra.modules}
    monkeypatch.setattr("mlcd.extras.find_spec", lambda name: None if name in lacking else find_spec(name))


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """mlcd with its metadata, in an environment at this path."""
    monkeypatch.setattr(metadata, "requires", lambda _name: STATED)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    return tmp_path


def test_a_model_without_the_extra_serve_names_it_and_how_to_install_it(
    bare: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "home"))
    assert run(["serve", str(write_mlp(tmp_path / "m.onnx")), "--slo", "p99=50ms"]) == 7
    said = capsys.readouterr().err
    assert said.startswith("mlcd: mlcd serve needs the extra 'serve' (httptools, onnx, onnxruntime, ")
    assert install_line("serve") in said
    assert "bug" not in said


def test_any_module_of_an_extra_that_is_missing_is_named(
    bare: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(**_: object) -> None:
        raise ModuleNotFoundError("No module named 'lithops'", name="lithops.config")

    monkeypatch.setattr("mlcd.cli.main.cli.main", broken)
    assert run(["check"]) == 7
    assert "needs the extra 'lithops'" in capsys.readouterr().err


def test_in_a_venv_pip_installs_the_packages(installed: Path) -> None:
    assert install_line("serve") == f"{installed}/bin/python -m pip install 'onnx>=1.16' 'uvicorn>=0.29'"


def test_a_pip_on_the_path_of_the_same_venv_is_short(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: str(installed / "bin" / name))
    assert install_line("bench") == "pip install joblib"


def test_pipx_injects_the_packages(installed: Path) -> None:
    (installed / "pipx_metadata.json").write_text("{}")
    assert install_line("serve") == "pipx inject mlcd 'onnx>=1.16' 'uvicorn>=0.29'"


def test_uv_tool_has_no_pip(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (installed / "uv-receipt.toml").write_text("")
    monkeypatch.setattr("mlcd.extras.find_spec", lambda _name: None)
    assert install_line("bench") == f"uv pip install --python {installed}/bin/python joblib"


def test_a_clone_that_was_never_installed_is(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", none)
    assert install_line("serve").endswith(f"pip install -e '{REPOSITORY}[serve]'")


def test_the_table_is_that_of_the_package() -> None:
    stated = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(EXTRAS) == set(stated) - DEVELOPERS - {"skypilot"}
    for name, extra in EXTRAS.items():
        packages = {re.split(r"[^A-Za-z0-9_-]", each)[0].replace("-", "_") for each in stated[name]}
        assert set(extra.modules) == {PACKAGES.get(package, package) for package in packages}
    assert extra_of("onnxruntime.capi") == "serve"
    assert extra_of("numpy") == ""


def test_check_lists_every_extra_with_how_to_get_it(
    bare: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "home"))
    assert run(["check", "-o", "json"]) == 0
    found = {each["what"]: each for each in json.loads(capsys.readouterr().out)["findings"]}
    for name in EXTRAS:
        assert found[f"[{name}]"]["state"] == "no"
        assert install_line(name) in found[f"[{name}]"]["text"]


def test_an_extra_knows_what_it_lacks() -> None:
    assert Extra(name="x", modules=("json", "no_such_module"), purpose="").missing == ("no_such_module",)
