"""`scripts/pytest-twice`: a test that fails once gets a second chance, alone; one that fails twice fails the run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unmeasured import UNMEASURED

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "pytest-twice"
SOUND = "def test_sound():\n    (HERE / f'sound-{os.getpid()}').touch()\n"
FAILS_ONCE = """\
def test_fails_once():
    tried = HERE / "tried"
    if not tried.exists():
        tried.touch()
        assert False
    assert "PYTEST_XDIST_WORKER" not in os.environ
"""
FAILS = "def test_fails():\n    assert False\n"
BREAKS = "raise RuntimeError('made: no tests here')\n"


def run(folder: Path, *tests: str, options: tuple[str, ...] = ()) -> "subprocess.CompletedProcess[str]":
    text = "import os\nfrom pathlib import Path\nHERE = Path(__file__).parent\n" + "".join(tests)
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_made.py").write_text(text)
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    env = {**env, **UNMEASURED, "PATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # the others take a second to load
    command = [str(SCRIPT), "-p", "xdist", *options, "test_made.py"]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def test_one_that_fails_once_runs_again_without_the_others(tmp_path: Path) -> None:
    ended = run(tmp_path, SOUND, FAILS_ONCE, options=("-n", "1"))
    assert ended.returncode == 0, ended.stdout
    assert "== failed once, now run again, alone: test_made.py::test_fails_once\n" in ended.stderr
    assert len(list(tmp_path.glob("sound-*"))) == 1
    assert list(tmp_path.glob(".pytest_cache")) == []


@pytest.mark.parametrize(
    ("tests", "code", "again"),
    [
        ((SOUND, FAILS, FAILS_ONCE), 1, True),
        ((SOUND, BREAKS), 2, False),
        ((SOUND,), 0, False),
    ],
)
def test_only_failed_tests_run_again_and_failures_are_not_hidden(
    tmp_path: Path, tests: tuple[str, ...], code: int, again: bool
) -> None:
    ended = run(tmp_path, *tests)
    assert ended.returncode == code, ended.stdout
    assert ("== failed once" in ended.stderr) is again
    if again:
        assert "1 failed, 1 passed" in ended.stdout.splitlines()[-1]  # the one that fails only once
