"""A whole search on a real Slurm cluster: `mlcd train JOB --on slurm`, every trial and the training through sbatch."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.conftest import ROOT
from tests.slurm_cluster import Cluster, NodeKind, slurm_cluster, why_not

REASON = why_not() or ("" if find_spec("torch") else "PyTorch is not installed")
pytestmark = [
    pytest.mark.skipif(bool(REASON), reason=f"no search on a Slurm cluster here: {REASON}"),
    pytest.mark.xdist_group("nodes"),  # one cluster at a time: its nodes have shares of this machine's processors
    pytest.mark.slow,
]

PATIENCE = 900.0  # until the test is given up; no assertion depends on it

JOB = f"""\
name: digits-on-slurm
workdir: {ROOT / "examples" / "digits-cnn"}
resources: {{infra: local, prices: {{small: 0.50 USD, large: 1.20 USD}}}}
num_nodes: {{default: 1..2, large: 2}}
run: python train.py --epochs 120
envs: {{OMP_NUM_THREADS: 1}}
platform: {{name: pytorch, topology: ring}}
job: {{samples: 1500, epochs: 120, batch: 192}}
progress: {{steps: mlcd.steps}}
checkpoints: true
outputs: [model.pt, metrics.json]
goal: {{minimize: time, budget: 2 USD}}
search: {{trial: {{minutes: 0.2}}}}
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    kinds = {"small": NodeKind(count=2, cpus=0.35, mbit=100), "large": NodeKind(count=2, cpus=0.7, mbit=400)}
    with slurm_cluster(kinds) as cluster:
        yield cluster


def ended_jobs() -> dict[str, tuple[str, int]]:
    """What went through Slurm so far: name -> (partition, nodes)."""
    command = ["squeue", "--noheader", "--states=all", "--format=%j|%P|%D"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return {name: (partition, int(nodes)) for name, partition, nodes in (line.split("|") for line in lines)}


def test_a_search_and_its_training_go_through_sbatch(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    home = tmp_path / "home"
    mlcd = [str(Path(sys.executable).with_name("mlcd")), "train", "job.yaml", "--on", "slurm", "-y", "-o", "json"]
    done = subprocess.run(
        mlcd,
        cwd=tmp_path,
        env={**os.environ, "MLCD_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout)

    trials = [(trial["config"]["instance"], trial["config"]["nodes"]) for trial in result["trials"]]
    assert {partition for partition, _ in trials} == {"small", "large"}
    assert ("large", 2) in trials
    assert all(trial["measured"] is not None for trial in result["trials"])

    jobs = ended_jobs()
    leases = {path.name for path in home.glob("work/*/leases/*")}
    assert leases == jobs.keys(), "every lease was a job of Slurm's, and nothing else was"
    best = result["choice"]["config"]
    assert sorted(jobs.values()) == sorted([*trials, (best["instance"], best["nodes"])])

    outputs = Path(result["outputs"])
    assert (outputs / "model.pt").stat().st_size > 10_000
    assert json.loads((outputs / "metrics.json").read_text())["accuracy"] > 0.9
    queue = subprocess.run(["squeue", "--noheader"], capture_output=True, text=True, check=True).stdout
    assert queue == ""
