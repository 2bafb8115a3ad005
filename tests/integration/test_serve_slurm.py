"""`mlcd serve` on a real Slurm cluster: servers as batch jobs on its nodes, loaded from here, and no job left."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import split_server
from tests.slurm_cluster import Cluster, NodeKind, slurm_cluster, why_not
from tests.tiny_onnx import write_mlp

from mlcd.cli.main import run as mlcd

REASON = why_not()
pytestmark = [
    pytest.mark.waits,
    pytest.mark.together("the machine's room for nodes"),
    pytest.mark.skipif(bool(REASON), reason=f"no Slurm cluster here: {REASON}"),
    pytest.mark.slow,
]
TIMEOUT_SECONDS = 300.0
JOB: dict[str, Any] = {
    "name": "tiny-on-slurm",
    "model": "tiny.onnx",
    "resources": {"infra": "slurm", "prices": {"small": "0.50 USD", "large": "1.20 USD"}, "replicas": [2]},
    "knobs": {"batch": 4, "threads": 1, "replicas": 1, "precision": "fp32"},
    "goal": {"minimize": "cost", "rate": "20/s", "slo": {"p99": "5s"}, "budget": "2 USD"},
    "load": {"verify": "2s"},
    "search": {"max_trials": 2, "strategy": "exhaustive", "trial": {"seconds": "15s", "watchdog": "120s"}},
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    kinds = {"small": NodeKind(count=2, cpus=0.3, mbit=100), "large": NodeKind(count=2, cpus=0.5, mbit=400)}
    with slurm_cluster(kinds) as cluster:
        yield cluster


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: Cluster) -> str:
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    write_mlp(tmp_path / "tiny.onnx")
    (tmp_path / "job.yaml").write_text(json.dumps(JOB))
    return str(tmp_path / "job.yaml")


def jobs(*states: str) -> dict[str, tuple[str, int]]:
    """Slurm's jobs in these states: name -> (partition, nodes)."""
    command = ["squeue", "--noheader", f"--states={','.join(states)}", "--format=%j|%P|%D"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return {name: (partition, int(nodes)) for name, partition, nodes in (line.split("|") for line in lines)}


def test_two_servers_are_loaded_and_verified(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = set(jobs("all"))
    assert mlcd(["serve", job, "-y", "-o", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["cloud"] == "slurm"
    assert said["nominal_prices"] is False
    assert [trial["failure"] for trial in said["trials"]] == [None, None]
    assert said["choice"]["config"]["instance"] == "small"
    assert said["choice"]["config"]["nodes"] == 2
    assert said["choice"]["usd_per_hour"] == pytest.approx(1.0)
    assert said["choice"]["load"]["errors"] == 0
    went = {name: of for name, of in jobs("all").items() if name not in before}
    assert sorted(went.values()) == [("large", 2), ("small", 2), ("small", 2)]
    assert jobs("running", "pending") == {}


def test_a_node_of_the_job_sends_the_load(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = set(jobs("all"))
    resources = {**JOB["resources"], "replicas": [1], "instance_type": "small"}
    changed = {**JOB, "resources": resources, "load": {**JOB["load"], "from": "node"}}
    Path(job).write_text(json.dumps({**changed, "search": {**JOB["search"], "max_trials": 1}}))
    assert mlcd(["serve", job, "-y", "-o", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["choice"]["config"]["nodes"] == 1
    assert said["choice"]["usd_per_hour"] == pytest.approx(0.5)
    assert [trial["usd_per_hour"] for trial in said["trials"]] == [pytest.approx(1.0)]
    assert said["choice"]["load"]["generator_share"] > 0
    assert sorted(of for name, of in jobs("all").items() if name not in before) == [("small", 2), ("small", 2)]


def test_one_server_over_two_nodes_of_a_job(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    run = f"exec {shlex.quote(sys.executable)} {shlex.quote(split_server.__file__)}; : $PORT $NODE_RANK $LAYERS"
    split = {
        "name": "split",
        "server": {"run": run, "api": "http", "ready": "/", "path": "/predict", "body": {"text": "x"}, "nodes": 2},
        "resources": {**JOB["resources"], "replicas": [1], "instance_type": "small"},
        "knobs": {"LAYERS": {"values": [22], "per": "node"}},
        "load": {"concurrency": 2, "verify": "2s"},
        "goal": {"maximize": "rate", "budget": "2 USD"},
        "search": {**JOB["search"], "max_trials": 1},
    }
    Path(job).write_text(json.dumps(split))
    assert mlcd(["serve", job, "-y", "-o", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["choice"]["config"] == {"instance": "small", "nodes": 2, "LAYERS_0": 22, "LAYERS_1": 22}
    assert said["choice"]["load"]["errors"] == 0


def test_money_is_not_spent_unasked(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert mlcd(["serve", job]) == 2
    assert "this would spend real money on slurm (at most $2.00)" in capsys.readouterr().err


def test_a_killed_mlcd_leaves_a_job_that_down_ends(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-c", "from mlcd.cli.main import main; main()", "serve", job, "-y"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ) as run:
        until = time.monotonic() + TIMEOUT_SECONDS
        while not jobs("running"):
            assert time.monotonic() < until
            assert run.poll() is None
            time.sleep(0.2)
        run.send_signal(signal.SIGKILL)
    assert mlcd(["down", "--on", "slurm", "-y"]) == 0
    assert jobs("running", "pending") == {}
