"""`mlcd init`: every template is a job that mlcd takes, and a script gets its lines."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.tiny_onnx import write_mlp
from tests.unit.scripts.test_scripts import HUGGING_FACE, PLAIN

from mlcd.cli.main import run
from mlcd.clouds.slurm.engine import COMMANDS
from mlcd.spec import TEMPLATES, read_train, template

SINFO = "gpu|up|g0|64|512000|idle|1-8|2-00:00:00|gpu:a100:4\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    here = tmp_path / "job-files"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("MLCD_HOME", str(here / "home"))
    monkeypatch.delenv("MLCD_CATALOG", raising=False)
    return here


class Mlcd:
    """Runs a command in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *args: str, code: int = 0) -> str:
        assert run(args) == code, self._capsys.readouterr()
        out, err = self._capsys.readouterr()
        return str(out if code == 0 else err)

    def json(self, *args: str) -> Any:
        return json.loads(self(*args, "-o", "json"))


@pytest.fixture
def mlcd(capsys: pytest.CaptureFixture[str], folder: Path) -> Mlcd:
    return Mlcd(capsys)


def program(folder: Path, name: str, text: str = "exit 1") -> None:
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / "bin" / name).chmod(0o755)


def with_skypilot(folder: Path, patch: pytest.MonkeyPatch) -> None:
    package = folder / "sky" / "lib" / "python3.11" / "site-packages" / "sky"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    patch.setenv("MLCD_SKY_PYTHON", str(folder / "sky" / "bin" / "python"))
    patch.setenv("AWS_ACCESS_KEY_ID", "x")
    for name in ("rsync", "ssh"):
        program(folder, name)
    patch.setenv("PATH", f"{folder / 'bin'}:/usr/bin:/bin")


def for_kubernetes(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """The catalog that the template's own comment shows."""
    with_skypilot(folder, patch)
    (folder / ".kube").mkdir()
    (folder / ".kube" / "config").touch()
    patch.setenv("HOME", str(folder))
    lines = re.findall(r"^#   (.*,.*)$", template(kind="kubernetes"), re.M)
    (folder / "pods.csv").write_text("\n".join(lines) + "\n")
    patch.setenv("MLCD_CATALOG", str(folder / "pods.csv"))


def with_slurm(folder: Path, patch: pytest.MonkeyPatch) -> None:
    for name in COMMANDS:
        program(folder, name, f"cat <<'EOF'\n{SINFO}EOF" if name == "sinfo" else "exit 0")
    patch.setenv("PATH", f"{folder / 'bin'}:/usr/bin:/bin")


NEEDS: dict[str, Callable[[Path, pytest.MonkeyPatch], object]] = {
    "aws": with_skypilot,
    "kubernetes": for_kubernetes,
    "slurm": with_slurm,
    "serve": lambda folder, _: write_mlp(folder / "my.onnx"),
    "transformers": lambda folder, _: (folder / "model").mkdir(),
}


@pytest.mark.parametrize("kind", TEMPLATES)
def test_every_template_passes_a_dry_run(mlcd: Mlcd, folder: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind == "serve":
        pytest.importorskip("onnx", reason="mlcd serve needs the extra [serve]")
    if kind in NEEDS:
        NEEDS[kind](folder, monkeypatch)
    said = mlcd("init", "-t", kind)
    (folder / "train.py").touch()  # what the templates for own scripts run where none was found
    assert "Wrote job.yaml" in said
    command = TEMPLATES[kind].command
    assert f"mlcd {command} job.yaml" in said
    looked = mlcd.json(command, "job.yaml", "--dry-run")
    describes_itself = kind in ("simulated", "serverless")
    named = "my" if kind == "serve" else "job-files"
    assert looked["name"] == (TEMPLATES[kind].name if describes_itself else named)
    assert not (folder / "home" / "work").exists()


def test_the_list_names_every_template(mlcd: Mlcd, folder: Path) -> None:
    said = mlcd("init", "--list")
    assert all(kind in said for kind in TEMPLATES)
    assert [each["name"] for each in mlcd.json("init", "--list")["templates"]] == list(TEMPLATES)
    assert not (folder / "job.yaml").exists()


def test_an_own_script_is_found_shown_and_edited(mlcd: Mlcd, folder: Path) -> None:
    (folder / "train.py").write_text(PLAIN)
    assert "train.py trains with pytorch" in mlcd("init", "look.yaml")
    said = mlcd("init", "-t", "pytorch")
    assert "train.py:10" in said
    assert "+    for a, b in mlcd.steps(loader, batch_size=16):" in said
    assert (folder / "train.py").read_text() == PLAIN
    spec = read_train("job.yaml")
    assert (spec.run, spec.job.samples, spec.job.epochs, spec.job.batch) == ("python train.py", 1000, 3, 16)
    assert spec.checkpoints
    assert spec.outputs == ("model.pt",)
    assert "CHANGE THIS" not in (folder / "job.yaml").read_text()

    mine = (folder / "job.yaml").read_text().replace("2 USD", "7 USD")
    (folder / "job.yaml").write_text(mine)
    made = mlcd.json("init", "-t", "pytorch", "--edit")
    assert made["file_is_kept"] is True
    assert (folder / "job.yaml").read_text() == mine
    assert made["script"]["edited"] is True
    assert made["script"]["line"] == 10
    assert (folder / "train.py.orig").read_text() == PLAIN
    assert "mlcd.steps(loader, batch_size=16)" in (folder / "train.py").read_text()
    assert "It reports to mlcd already" in mlcd("init", "-t", "pytorch", "--force")


def test_an_edit_alone_leaves_the_job_file_and_says_so(mlcd: Mlcd, folder: Path) -> None:
    (folder / "train.py").write_text(PLAIN)
    mlcd("init", "-t", "pytorch")
    assert "job.yaml is left as it is" in mlcd("init", "-t", "pytorch", "--edit")
    mlcd("init", "-t", "pytorch", code=2)


def test_a_script_alone_names_its_template(mlcd: Mlcd, folder: Path) -> None:
    (folder / "tune.py").write_text(HUGGING_FACE)
    made = mlcd.json("init", "--script", "tune.py")
    assert made["template"] == "huggingface"
    spec = read_train("job.yaml")
    assert (spec.run, spec.job.batch, spec.outputs) == ("python tune.py", 8, ("model",))
    mlcd("init", "aws.yaml", "-t", "aws")
    assert read_train("aws.yaml").run == "python tune.py"


def test_without_a_script_the_template_says_what_to_change(mlcd: Mlcd, folder: Path) -> None:
    said = mlcd("init", "-t", "pytorch")
    assert "No script with a training loop was found" in said
    assert "CHANGE THIS in job.yaml: job.samples (of one epoch), job.epochs, job.batch, outputs" in said
    assert (folder / "job.yaml").read_text().count("CHANGE THIS") == 4


def test_a_library_that_is_missing_is_named(mlcd: Mlcd, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "train.py").write_text(PLAIN)
    monkeypatch.setattr("mlcd.cli.init.find_spec", lambda name: None)
    assert f"torch is not installed in the Python that mlcd runs with ({sys.executable})" in mlcd(
        "init", "-t", "pytorch"
    )
    monkeypatch.setattr("mlcd.cli.init.find_spec", lambda name: name)
    assert "not installed" not in mlcd("init", "-t", "pytorch", "--force")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("-t", "pytorc"), "--template: unknown template (got 'pytorc'); allowed: simulated"),
        (("-t", "pytorc"), "did you mean 'pytorch'?"),
        (("-t", "hf"), "did you mean 'huggingface'?"),
        (("-t", "serve", "--edit"), "--edit: the template serve runs no script"),
        (("--edit",), "--edit: the template simulated runs no script"),
        (("--script", "nothing.py"), "nothing.py"),
        (("-t", "lightning", "--script", "train.py"), "trains with pytorch (line 10), not with lightning"),
    ],
)
def test_a_wrong_option_is_named_with_the_fix(mlcd: Mlcd, folder: Path, args: tuple[str, ...], says: str) -> None:
    (folder / "train.py").write_text(PLAIN)
    assert says in mlcd("init", *args, code=2)
    assert not (folder / "job.yaml").exists()


OPTION = PLAIN.replace(
    "EPOCHS = 3",
    "import argparse\np = argparse.ArgumentParser()\np.add_argument('--out', default='best.pt')\nEPOCHS = 3",
).replace('"model.pt"', "p.parse_args().out")
UNNAMED = PLAIN.replace('"model.pt"', "name_of(model)")
NOTHING = PLAIN.replace('torch.save(model.state_dict(), "model.pt")\n', "")


def test_a_model_saved_under_an_option_is_an_output(mlcd: Mlcd, folder: Path) -> None:
    (folder / "train.py").write_text(OPTION)
    mlcd("init", "-t", "pytorch")
    assert read_train("job.yaml").outputs == ("best.pt",)
    assert "CHANGE THIS" not in (folder / "job.yaml").read_text()


def test_a_save_without_a_plain_name_is_marked(mlcd: Mlcd, folder: Path) -> None:
    (folder / "train.py").write_text(UNNAMED)
    said = " ".join(mlcd("init", "-t", "pytorch").split())
    assert "train.py:15 saves a file whose name is not plain (name_of(model))" in said
    assert "CHANGE THIS in job.yaml: outputs" in said
    (line,) = [line for line in (folder / "job.yaml").read_text().splitlines() if "CHANGE THIS" in line]
    assert line.startswith("outputs: []")
    notes = mlcd.json("train", "job.yaml", "--dry-run")["notes"]
    assert any("outputs is still marked CHANGE THIS" in note for note in notes)
    assert any("train.py:15 saves a file" in note for note in notes)


def test_empty_outputs_are_said_by_init_and_by_the_dry_run(mlcd: Mlcd, folder: Path) -> None:
    (folder / "train.py").write_text(NOTHING)
    assert "nothing is brought back" in " ".join(mlcd("init", "-t", "pytorch").split())
    notes = mlcd.json("train", "job.yaml", "--dry-run")["notes"]
    assert any("no outputs are declared" in note and "nothing is brought back" in note for note in notes)
    (folder / "train.py").write_text(PLAIN)
    (note,) = [each for each in mlcd.json("train", "job.yaml", "--dry-run")["notes"] if "no outputs" in each]
    assert "train.py:15 saves model.pt, which would be lost" in note
    assert "outputs: [model.pt]" in note
    text = (folder / "job.yaml").read_text().replace("outputs: []", "outputs: [x]")
    (folder / "job.yaml").write_text(text)
    assert not any("no outputs" in note for note in mlcd.json("train", "job.yaml", "--dry-run")["notes"])


@pytest.mark.parametrize(
    ("file", "script", "name"),
    [("job.yaml", "tune_bert.py", "tune_bert"), ("job.yaml", "train.py", "cats-dogs"), ("big.yaml", "tune.py", "big")],
)
def test_a_job_is_called_by_its_file_its_script_or_its_folder(
    mlcd: Mlcd, folder: Path, monkeypatch: pytest.MonkeyPatch, file: str, script: str, name: str
) -> None:
    (folder / "Cats & dogs").mkdir()
    monkeypatch.chdir(folder / "Cats & dogs")
    Path(script).write_text(PLAIN)
    mlcd("init", file, "-t", "pytorch")
    assert read_train(file).name.lower() == name


def test_a_job_that_serves_is_called_by_its_model(mlcd: Mlcd, folder: Path) -> None:
    (folder / "cats.onnx").touch()
    mlcd("init", "serve.yaml", "-t", "serve")
    assert "\nname: cats\n" in (folder / "serve.yaml").read_text()


def test_notes_come_before_the_lines_to_add(mlcd: Mlcd, folder: Path) -> None:
    """They stood between the announcement of the lines and the lines."""
    (folder / "train.py").write_text(PLAIN.replace("batch_size=16, shuffle=True", "batch_size=16, shuffle=False"))
    said = mlcd("init", "-t", "pytorch")
    assert said.index("Note: ") < said.index("Lines to add") < said.index("--- train.py")


def test_a_template_may_be_written_in_capitals(mlcd: Mlcd, folder: Path) -> None:
    assert mlcd.json("init", "-t", "vLLM")["template"] == "vllm"


def test_every_template_is_in_the_docs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "init.md").read_text(encoding="utf-8")
    assert [kind for kind in TEMPLATES if f"`{kind}`" not in page] == []
