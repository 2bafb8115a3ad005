"""Standard streams that are closed, full or cut off, and signals that ask mlcd to end."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unmeasured import UNMEASURED

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX streams and signals")

MLCD = [sys.executable, "-c", "from mlcd.cli.main import main; main()"]
JOB = """\
name: small
resources: {infra: sim/aws, instance_type: [c5.xlarge, c5.4xlarge, p3.2xlarge]}
num_nodes: 1..40
job: {model: resnet152, samples: 50000, epochs: 10}
goal: {minimize: time}
search: {max_trials: 60, strategy: exhaustive}
"""
TIMEOUT_SECONDS = 120


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "home"))
    (tmp_path / "job.yaml").write_text(JOB.replace("max_trials: 60", "max_trials: 3"))
    (tmp_path / "long.yaml").write_text(JOB)
    return tmp_path


def shell(folder: Path, redirected: str, *args: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {redirected}', "sh", *MLCD, *args],
        cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False,
    )  # fmt: skip


def statuses(folder: Path) -> list[str]:
    listed = json.loads(shell(folder, "", "runs", "-o", "json").stdout)
    return [run["status"] for run in listed["runs"]]


@pytest.mark.parametrize(
    "redirected", [*(pytest.param(one, marks=pytest.mark.extra) for one in (">&-", "2>&-")), "<&- >&- 2>&-"]
)
def test_a_run_does_not_need_its_streams(folder: Path, redirected: str) -> None:
    done = shell(folder, redirected, "train", "job.yaml")
    assert done.returncode == 0, done.stderr
    assert "bug in mlcd" not in done.stderr
    assert statuses(folder) == ["done"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_message_that_cannot_be_written_keeps_the_exit_code(folder: Path) -> None:
    assert shell(folder, "2>/dev/full", "show", "nothing").returncode == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_progress_that_cannot_be_written_does_not_end_the_run(folder: Path) -> None:
    done = shell(folder, "2>/dev/full", "train", "job.yaml", "-o", "json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["status"] == "done"


def test_a_reader_of_the_progress_that_goes_away_does_not_end_the_run(folder: Path) -> None:
    started = subprocess.Popen(
        [*MLCD, "train", "job.yaml", "-o", "json"],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert started.stdout is not None
    assert started.stderr is not None
    started.stderr.readline()
    started.stderr.close()
    assert json.loads(started.stdout.read())["status"] == "done"
    started.stdout.close()
    assert started.wait(timeout=TIMEOUT_SECONDS) == 0


@pytest.mark.parametrize("sign", [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.extra)])
def test_a_run_that_is_asked_to_end_settles_what_was_paid(folder: Path, sign: signal.Signals) -> None:
    with subprocess.Popen(
        [*MLCD, "train", "long.yaml"],
        cwd=folder, env={**os.environ, **UNMEASURED}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as started:  # fmt: skip
        assert started.stderr is not None
        for _ in range(4):
            started.stderr.readline()
        started.send_signal(sign)
        started.send_signal(sign)  # session managers send several
        _, err = started.communicate(timeout=TIMEOUT_SECONDS)
    assert started.returncode == 130, err
    assert "Traceback" not in err
    assert "mlcd resume small-" in err
    assert statuses(folder) == ["interrupted"]


@pytest.mark.extra
def test_a_run_under_nohup_goes_on_when_the_terminal_is_closed(folder: Path) -> None:
    with subprocess.Popen(
        ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", *MLCD, "train", "job.yaml"],
        cwd=folder, env={**os.environ, **UNMEASURED}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as started:  # fmt: skip
        assert started.stderr is not None
        started.stderr.readline()
        started.send_signal(signal.SIGHUP)
        _, err = started.communicate(timeout=TIMEOUT_SECONDS)
    assert started.returncode == 0, err
