"""`--track` with the real packages: an MLflow server on this machine, and Weights & Biases offline."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venvs" / "trackers" / "bin" / "python"
JOB = """
name: tracked
resources: {infra: sim/aws, instance_type: [c5.xlarge, p3.2xlarge]}
num_nodes: 1..4
job: {model: resnet152, samples: 50000, epochs: 5}
goal: {minimize: time, budget: 40 USD}
search: {max_trials: 3}
"""
pytestmark = pytest.mark.skipif(
    not PYTHON.exists(), reason=".venvs/trackers is missing; run: scripts/setup-engine trackers"
)


def mlcd(tmp_path: Path, tracker: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    (tmp_path / "job.yaml").write_text(JOB)
    return subprocess.run(
        [
            sys.executable,
            "-c",
            "from mlcd.cli.main import main; main()",
            "train",
            "job.yaml",
            "--track",
            tracker,
            "-o",
            "json",
        ],
        cwd=tmp_path,
        env={
            **os.environ,
            "MLCD_TRACK_PYTHON": str(PYTHON),
            "MLCD_HOME": str(tmp_path / "home"),
            "MLCD_TRACK_SECONDS": "600",
            **variables,
        },
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The address of an MLflow server of this test's own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    folder = tmp_path / "mlflow"
    folder.mkdir()
    words = ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    words += ["--backend-store-uri", f"sqlite:///{folder}/runs.db", "--artifacts-destination", str(folder / "files")]
    with (folder / "log").open("w") as log:
        running = subprocess.Popen(
            [PYTHON, "-m", "mlflow", "server", *words],
            env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},  # evaluations of language models
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=folder,
        )
    try:
        while True:
            assert running.poll() is None, (folder / "log").read_text()
            try:
                urllib.request.urlopen(f"{address}/health", timeout=5).close()
                break
            except OSError:
                time.sleep(0.2)
        yield address
    finally:
        os.killpg(running.pid, 15)
        running.wait(30)


def asked(address: str, path: str, body: object) -> dict[str, object]:
    request = urllib.request.Request(
        f"{address}/api/2.0/mlflow/{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        found: dict[str, object] = json.load(answer)
    return found


def test_a_run_is_on_the_mlflow_server(server: str, tmp_path: Path) -> None:
    done = mlcd(tmp_path, "mlflow", MLFLOW_TRACKING_URI=server, MLFLOW_EXPERIMENT_NAME="ours")
    assert done.returncode == 0, done.stderr
    assert "mlflow" not in done.stderr, "no warning"
    result = json.loads(done.stdout)
    found = urllib.request.urlopen(f"{server}/api/2.0/mlflow/experiments/get-by-name?experiment_name=ours", timeout=60)
    experiment = json.load(found)["experiment"]["experiment_id"]
    runs = asked(server, "runs/search", {"experiment_ids": [experiment]})["runs"]
    tags = [{tag["key"]: tag["value"] for tag in run["data"]["tags"]} for run in runs]  # type: ignore[attr-defined]
    parents = [run for run, of in zip(runs, tags, strict=True) if "mlflow.parentRunId" not in of]  # type: ignore[call-overload]
    (parent,) = parents
    assert parent["info"]["run_name"] == result["run_id"]
    assert parent["info"]["status"] == "FINISHED"
    assert len(runs) == 1 + len(result["trials"]) + 1, "a child for each trial and for the training"  # type: ignore[arg-type]
    metrics = {metric["key"]: metric["value"] for metric in parent["data"]["metrics"]}
    assert metrics["total_usd"] == pytest.approx(result["receipt"]["total_usd"])
    params = {param["key"]: param["value"] for param in parent["data"]["params"]}
    assert params["budget_usd"] == "40.0"
    run_id = parent["info"]["run_id"]
    page = urllib.request.urlopen(f"{server}/get-artifact?run_id={run_id}&path=report.html", timeout=60).read()
    assert result["run_id"] in page.decode()


@pytest.mark.extra  # tests/unit/track has what hangs; this is MLflow's own client
def test_a_server_that_never_answers_costs_a_warning(tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(8)
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        variables = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "1", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
        done = mlcd(tmp_path, "mlflow", MLFLOW_TRACKING_URI=address, **variables)
    assert done.returncode == 0
    assert done.stderr.count("is no longer tracked") == 1
    assert json.loads(done.stdout)["status"] == "done"


def test_a_run_is_kept_by_wandb_offline(tmp_path: Path) -> None:
    done = mlcd(tmp_path, "wandb", WANDB_MODE="offline", WANDB_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "wandb" not in done.stderr, "no warning"
    result = json.loads(done.stdout)
    kept = sorted((tmp_path / "wandb").glob("offline-run-*/run-*.wandb"))
    assert len(kept) == 1 + len(result["trials"]) + 1
    parent = b"".join(file.read_bytes() for file in kept)
    assert result["run_id"].encode() in parent
    assert b"report.html" in parent
