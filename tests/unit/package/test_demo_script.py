"""`scripts/demo` ends as mlcd does, and says how to get `mlcd` on PATH."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone whose setup does nothing and whose mlcd prints its arguments."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "demo", tmp_path / "scripts" / "demo")
    for name, text in (("scripts/setup-venv", "exit 0"), (".venv/bin/mlcd", 'echo "$@"; exit "${CODE:-0}"')):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    return tmp_path


def demo(clone: Path, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [str(clone / "scripts" / "demo"), *args]
    return subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, check=False)


def test_it_says_how_to_get_mlcd_on_path(clone: Path) -> None:
    done = demo(clone, "--seed", "7")
    assert (done.returncode, done.stdout) == (0, "demo --seed 7\n")
    assert f'export PATH="{clone}/.venv/bin:$PATH"' in done.stderr
    assert "docs/install.md" in done.stderr
    assert (ROOT / "docs" / "install.md").is_file()


def test_it_says_nothing_where_mlcd_is_on_path(clone: Path) -> None:
    done = demo(clone, PATH=f"{clone}/.venv/bin:{os.environ['PATH']}")
    assert done.stderr == ""


def test_it_ends_as_mlcd_does(clone: Path) -> None:
    done = demo(clone, "--real", "--seed", "1", CODE="5")
    assert done.returncode == 5
    assert done.stdout == f"train {clone}/examples/digits-cnn.yaml --on local --seed 1\n"
    assert "export PATH=" in done.stderr
