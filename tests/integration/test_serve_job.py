"""`mlcd serve` from the command line: real servers, real load, and nothing left running."""

import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.tiny_onnx import write_mlp, write_odd, write_open

from mlcd.cli.main import run as mlcd
from mlcd.clouds import processes
from mlcd.clouds.lease_records import LeaseRecords
from mlcd.clouds.local import Local
from mlcd.clouds.nodes import PREFIX
from mlcd.engine.serving import PROMISE_Z
from mlcd.store.store import Store

pytestmark = [
    pytest.mark.nodes,
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc"),
]

MLCD = (sys.executable, "-c", "from mlcd.cli.main import main; main()")
TIMEOUT_SECONDS = 240.0
JOB = """\
name: tiny
model: tiny.onnx
knobs: {batch: [1, 4], threads: 1, replicas: 1, precision: fp32}
goal: {maximize: requests per dollar, slo: {p99: SLO}}
load: {verify: 1s}
search: {strategy: exhaustive, max_trials: 2, trial: {seconds: 3s, watchdog: 120}}
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "home"
    monkeypatch.setenv("MLCD_HOME", str(folder))
    monkeypatch.chdir(tmp_path)
    yield folder
    assert left_running(folder) == []


def left_running(home: Path) -> list[int]:
    """Running processes named after a lease under this home."""
    leases = {path.name for path in home.glob("work/*/leases/*")}
    return [pid for lease, pids in processes.all_tagged().items() if lease in leases for pid in pids]


def job(folder: Path, *, slo: str = "5s") -> str:
    write_mlp(folder / "tiny.onnx")
    file = folder / "job.yaml"
    file.write_text(JOB.replace("SLO", slo))
    return str(file)


def answer(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(capsys.readouterr().out)
    return data


def test_searches_verifies_and_writes_the_files(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "files"
    assert mlcd(["serve", job(tmp_path), "--write", "compose", str(folder), "-o", "json"]) == 0
    said = answer(capsys)
    assert said["status"] == "done"
    assert said["nominal_prices"] is True
    assert [trial["failure"] for trial in said["trials"]] == [None, None]
    choice = said["choice"]
    with Store(home) as store:
        trials = store.load(said["run_id"]).history.measured
    (error,) = (trial.relative_error for trial in trials if trial.config.as_dict() == choice["config"])
    kept = math.exp(-PROMISE_Z * error) * (1 - said["load"]["headroom"])
    assert choice["requests_per_second"] == pytest.approx(kept * choice["measured_requests_per_second"])
    assert choice["load"]["errors"] == 0
    assert 0 < choice["load"]["p50_seconds"] <= choice["load"]["p99_seconds"] <= 5
    assert choice["load"]["memory_gib"] > 0
    spent = sum(trial["usd"] for trial in said["trials"]) + said["receipt"]["verifications"][0]["usd"]
    assert said["receipt"]["total_usd"] == pytest.approx(spent, abs=1e-6)
    assert len(said["why_not"]) == 1
    assert "tiny" in yaml.safe_load((folder / "compose.yaml").read_text())["services"]
    assert (folder / "tiny.onnx").read_bytes() == (tmp_path / "tiny.onnx").read_bytes()
    for command in (["show", said["run_id"]], ["resume", said["run_id"]], ["report", said["run_id"]], ["runs"]):
        assert mlcd(command) == 0
    shown = capsys.readouterr().out
    assert "Serve with: batch=" in shown
    assert "Why not" in shown
    assert "<title>tiny: batch=" in (tmp_path / f"{said['run_id']}.html").read_text()


def test_if_none_meets_the_goal_the_nearest_miss_is_named(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert mlcd(["serve", job(tmp_path, slo="1us"), "--trials", "1", "-o", "json"]) == 4
    said = answer(capsys)
    assert said["choice"] is None
    assert said["nearest"]["kind"] == "breaks-slo"
    assert said["nearest"]["load"]["p99_seconds"] > 1e-6


def test_no_server_is_left_when_mlcd_is_killed(home: Path, tmp_path: Path) -> None:
    command = [*MLCD, "serve", job(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        _wait(lambda: len(left_running(home)) >= 2)  # the keeper and the server
        run.send_signal(signal.SIGKILL)
    _wait(lambda: not left_running(home))
    (run_folder,) = home.glob("work/*")
    assert not [lease for lease in processes.all_tagged() if lease.startswith(f"{PREFIX}{run_folder.name}-")]


def test_the_server_ends_when_its_keeper_is_killed(home: Path, tmp_path: Path) -> None:
    command = [*MLCD, "serve", job(tmp_path), "--trials", "1"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        _wait(lambda: len(left_running(home)) >= 2)
        ((lease,), _) = LeaseRecords(home).all()
        keeper = lease.agents[0].pid
        os.kill(keeper, signal.SIGKILL)
        _wait(lambda: keeper not in left_running(home))
        assert run.wait(TIMEOUT_SECONDS) == 6  # the only trial failed


@pytest.mark.parametrize(("of_one_run", "ends_before"), [(False, False), (True, True)])
def test_nothing_is_left_when_mlcd_and_keeper_are_killed_at_once(
    home: Path, tmp_path: Path, of_one_run: bool, ends_before: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [*MLCD, "serve", job(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        _wait(lambda: len(left_running(home)) >= 2)  # the keeper and the server
        ((lease,), _) = LeaseRecords(home).all()
        for pid in (lease.agents[0].pid, run.pid):
            os.kill(pid, signal.SIGKILL)
    if ends_before:  # the kernel ends the server with its keeper: nothing runs, and the lease is still on record
        _wait(lambda: not left_running(home))
    (run_folder,) = home.glob("work/*")
    named = [run_folder.name] if of_one_run else []
    assert mlcd(["down", *named, "--on", "local", "-y", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["unproved"] == []
    assert left_running(home) == []
    assert LeaseRecords(home).all() == ([], {})
    assert not [group for group in lease.groups if Path(group).exists()]


def test_deploys_and_goes_down(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = job(tmp_path)
    assert mlcd(["serve", file, "--trials", "1", "--deploy", "--port", "0", "-o", "json"]) == 0
    address = answer(capsys)["deployed"]["address"]
    with urllib.request.urlopen(f"{address}/v2/health/ready", timeout=10) as ready:
        assert ready.status == 200
    engine = Local(home)
    assert [found.owned for found in engine.leftovers()] == [True]  # by itself: mlcd is not needed
    engine.sweep()  # as the next search does: it stays
    assert len(left_running(home)) >= 1
    assert mlcd(["down", "--on", "local", "-y"]) == 0
    assert left_running(home) == []
    assert LeaseRecords(home).all() == ([], {})


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield int(taken.getsockname()[1])


def test_a_port_in_use_is_reported_before_any_trial(
    home: Path, tmp_path: Path, taken_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    write_mlp(tmp_path / "tiny.onnx")
    assert mlcd(["serve", "tiny.onnx", "--deploy", "--port", str(taken_port)]) == 2
    assert f"--port: {taken_port} on 127.0.0.1 cannot be used: Address already in use" in capsys.readouterr().err
    assert not home.exists()


def _not_onnx(path: Path) -> Path:
    path.write_text("this is no model")
    return path


def _truncated(path: Path) -> Path:
    whole = write_mlp(path, width=64).read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    return path


@pytest.mark.parametrize(
    ("make", "flags", "message"),
    [
        (_not_onnx, [], "model: not an ONNX file"),
        (_truncated, [], "model: the file is cut off"),
        (write_odd, [], "Frobnicate"),
        (write_open, [], "axis 1 (length) has no size; give one, as sizes in the job file or e.g. --size length=128"),
        (write_mlp, ["--on", "sim/aws"], "--on: mlcd serves no models there in this version"),
        (write_mlp, ["--strategy", "falcn"], "--strategy: unknown strategy 'falcn'"),
        (write_mlp, ["--slo", "50ms"], "--slo: is not a latency limit"),
        (write_mlp, ["--size", "length"], "--size: must have the form AXIS=N"),
        (lambda path: path, [], "model: there is no such file"),
    ],
)
def test_bad_input_is_one_message(
    home: Path, tmp_path: Path, make: Any, flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path / "bad.onnx")
    assert mlcd(["serve", "bad.onnx", *flags]) == 2
    said = capsys.readouterr().err.strip()
    assert message in said
    assert len(said.splitlines()) == 1
    assert not home.exists()


def test_a_model_larger_than_memory(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_mlp(tmp_path / "tiny.onnx")
    monkeypatch.setattr("mlcd.jobs.serving_space.free_memory_bytes", lambda: 1000.0)
    assert mlcd(["serve", "tiny.onnx"]) == 2
    assert "model: needs about 0.0 GiB of memory and 0.0 GiB are free" in capsys.readouterr().err


def test_a_dry_run_starts_nothing(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert mlcd(["serve", job(tmp_path), "--dry-run", "-o", "json"]) == 0
    assert answer(capsys)["configurations"] == 2
    assert not home.exists()


def _wait(is_so: Any) -> None:
    until = time.monotonic() + TIMEOUT_SECONDS
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.1)
