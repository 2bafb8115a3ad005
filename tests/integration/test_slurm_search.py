"""A whole search on a real Slurm cluster: `mlcd train JOB --on slurm`, every trial and the training through sbatch."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.conftest import ROOT
from tests.slurm_cluster import Cluster, NodeKind, slurm_cluster, why_not

from mlcd.clouds.processes import tagged

REASON = why_not() or ("" if find_spec("torch") else "PyTorch is not installed")
pytestmark = [
    pytest.mark.waits,
    pytest.mark.together("the machine's room for nodes"),
    pytest.mark.skipif(bool(REASON), reason=f"no search on a Slurm cluster here: {REASON}"),
    pytest.mark.slow,
]

TIMEOUT_SECONDS = 900.0  # after which the test gives up; no assertion depends on it

JOB = f"""\
name: digits-on-slurm
workdir: {ROOT / "examples" / "digits-cnn"}
resources: {{infra: local, prices: {{small: 0.50 USD, large: 1.20 USD}}}}
num_nodes: {{default: 1, large: 2}}
run: python train.py --epochs 60
envs: {{OMP_NUM_THREADS: 1}}
platform: {{name: pytorch, topology: ring}}
job: {{samples: 1500, epochs: 60, batch: 192}}
progress: {{steps: mlcd.steps}}
checkpoints: true
outputs: [model.pt, metrics.json]
goal: {{minimize: time, budget: 2 USD}}
search: {{work: thrown, strategy: heterbo, trial: {{minutes: 0.15, extension: 5, precision: 0.3}}}}
"""

SLOW_SCRIPT = """\
import time
import mlcd

for _ in mlcd.steps(range(10**9), batch_size=10, total=10**8):
    time.sleep(0.05)
"""

SLOW_JOB = """\
name: slow
workdir: code
resources: {infra: slurm, prices: {small: 0.50 USD}}
num_nodes: 2
run: python train.py
job: {samples: 1000, epochs: 100000, batch: 10}
goal: {minimize: time, budget: 2000000 USD}
search: {trial: {minutes: 30}}
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    # Enough of a processor to import PyTorch in some seconds; one job runs at a time, so two nodes share two of them.
    kinds = {"small": NodeKind(count=2, cpus=0.6, mbit=100), "large": NodeKind(count=2, cpus=1.0, mbit=400)}
    with slurm_cluster(kinds) as cluster:
        yield cluster


def ended_jobs() -> dict[str, tuple[str, int]]:
    """What went through Slurm so far: name -> (partition, nodes)."""
    command = ["squeue", "--noheader", "--states=all", "--format=%j|%P|%D"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return {name: (partition, int(nodes)) for name, partition, nodes in (line.split("|") for line in lines)}


def mlcd(*arguments: str) -> list[str]:
    return [str(Path(sys.executable).with_name("mlcd")), *arguments]


def squeue() -> str:
    return subprocess.run(["squeue", "--noheader"], capture_output=True, text=True, check=True).stdout


def test_a_search_and_its_training_go_through_sbatch(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    home = tmp_path / "home"
    done = subprocess.run(
        mlcd("train", "job.yaml", "--on", "slurm", "-y", "-o", "json"),
        cwd=tmp_path,
        env={**os.environ, "MLCD_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout)

    trials = [(trial["config"]["instance"], trial["config"]["nodes"]) for trial in result["trials"]]
    assert {partition for partition, _ in trials} == {"small", "large"}
    assert ("large", 2) in trials
    assert all(trial["measured"] is not None for trial in result["trials"]), result["trials"]

    jobs = ended_jobs()
    leases = {path.name for path in home.glob("work/*/leases/*")}
    assert leases == jobs.keys(), "every lease was a job of Slurm's, and nothing else was"
    best = result["choice"]["config"]
    assert sorted(jobs.values()) == sorted([*trials, (best["instance"], best["nodes"])])

    outputs = Path(result["outputs"])
    assert (outputs / "model.pt").stat().st_size > 10_000
    assert json.loads((outputs / "metrics.json").read_text())["accuracy"] > 0.9
    assert squeue() == ""


def test_mlcd_down_ends_what_a_killed_run_left_running(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text(SLOW_SCRIPT)
    (tmp_path / "job.yaml").write_text(SLOW_JOB)
    home = tmp_path / "home"
    env = {**os.environ, "MLCD_HOME": str(home)}
    run = subprocess.Popen(mlcd("train", "job.yaml", "-y"), cwd=tmp_path, env=env, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not any(file.stat().st_size for file in home.glob("work/*/leases/*/progress.jsonl")):
            assert run.poll() is None, "mlcd ended before its trial made progress"
            assert time.monotonic() < deadline, "no progress"
            time.sleep(0.1)
    finally:
        run.kill()
        run.wait()
    (lease,) = home.glob("work/*/leases/*")
    assert tagged(lease.name)

    listed = subprocess.run(
        mlcd("down", "--dry-run", "--on", "slurm"), env=env, capture_output=True, text=True, check=True
    )
    assert lease.name in listed.stdout
    assert lease.name[:8] in squeue()
    # Nobody needs to be asked: the run that had it is dead.
    command = mlcd("down", lease.parent.parent.name, "--on", "slurm")
    subprocess.run(command, env=env, capture_output=True, check=True, stdin=subprocess.DEVNULL)
    assert squeue() == ""
    assert tagged(lease.name) == []
