"""The wheel and the source archive build, and install into bare environments where mlcd works.

Packages come from the index that pip is configured with; where there is none, the tests are skipped with pip's message.
"""

import json
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from mlcd.version import __version__

pytestmark = [pytest.mark.extra, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
SOURCES = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src" / "mlcd").rglob("*") if path.is_file()}


def called(*command: str | Path, cwd: Path, code: int = 0) -> str:
    done = subprocess.run([str(each) for each in command], cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode != code and "pip" in map(str, command) and "No matching distribution" in done.stderr:
        pytest.skip(f"no index with the packages: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == code, f"{done.stdout[-1000:]}{done.stderr[-3000:]}"
    return done.stdout


def bare(folder: Path) -> Path:
    venv.create(folder, with_pip=True)
    return folder / "bin"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source archive, and the wheel that was built from the unpacked archive."""
    folder = tmp_path_factory.mktemp("built")
    python = bare(folder / "builder") / "python"
    called(python, "-m", "pip", "install", "--quiet", "hatchling>=1.24", cwd=folder)
    called(python, "-m", "hatchling", "build", "-t", "sdist", "-d", folder / "dist", cwd=ROOT)
    with tarfile.open(folder / "dist" / f"mlcd-{__version__}.tar.gz") as archive:
        archive.extractall(folder / "unpacked", filter="data")
    unpacked = folder / "unpacked" / f"mlcd-{__version__}"
    called(python, "-m", "hatchling", "build", "-t", "wheel", "-d", folder / "dist", cwd=unpacked)
    return folder / "dist"


def test_the_wheel_holds_the_whole_package_and_nothing_else(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        (metadata,) = (name for name in archive.namelist() if name.endswith("METADATA"))
        text = archive.read(metadata).decode()
    assert names == {name for name in SOURCES if "__pycache__" not in name}
    assert f"Version: {__version__}" in text
    assert "Description-Content-Type: text/markdown" in text
    assert "Provides-Extra: torch" in text
    assert wheel.stat().st_size < 5 * 2**20


@pytest.mark.parametrize("form", ["*.whl", "*.tar.gz"])
def test_it_installs_and_runs_in_a_bare_environment(built: Path, tmp_path: Path, form: str) -> None:
    (package,) = built.glob(form)
    programs = bare(tmp_path / "venv")
    called(programs / "python", "-m", "pip", "install", "--quiet", package, cwd=tmp_path)
    assert called(programs / "mlcd", "--version", cwd=tmp_path).strip() == f"mlcd {__version__}"
    env = {"PATH": str(programs), "MLCD_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}

    def mlcd(*args: str) -> str:
        command = [str(programs / "mlcd"), *args]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    mlcd("init")
    assert json.loads(mlcd("train", "job.yaml", "-o", "json"))["status"] == "done"
    mlcd("report", "--out", "page.html")
    assert "<svg" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "H100" in mlcd("catalog", "H100")
    assert json.loads(mlcd("check", "-o", "json"))["ok"] is True
    assert sys.executable not in mlcd("completion", "bash")
