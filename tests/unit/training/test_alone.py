"""A script that is not distributed, on several workers, is warned about; one that is, never."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.torch_workers import TorchWorkers

LOOP = "import mlcd\nfor _ in mlcd.steps(range(5)): pass\n"
LISTEN = "import socket\nlistener = socket.create_server(('127.0.0.1', 0))\n"
DDP = """
import mlcd, torch
torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
for _ in mlcd.steps(range(5)):
    model(torch.ones(4, 2)).sum().backward()
torch.distributed.destroy_process_group()
"""


def env_of(folder: Path, rank: int, workers: int, **more: str) -> dict[str, str]:
    inherited = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "HOME") if name in os.environ}
    progress = str(folder / "progress.jsonl")
    job = {"RANK": str(rank), "WORLD_SIZE": str(workers), "MLCD_PROGRESS_FILE": progress, "MLCD_BATCH": "8"}
    return {**inherited, **job, **more}


def warned(folder: Path) -> list[str]:
    lines = [json.loads(line) for line in (folder / "progress.jsonl").read_text().splitlines()]
    return [line["warning"] for line in lines if "warning" in line]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_script_that_is_not_distributed_is_warned_about_once(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", LOOP], env=env_of(tmp_path, 0, 2), check=True)
    (text,) = warned(tmp_path)
    assert text.startswith("the job runs on 2 workers, and this one has no connection to the others")
    assert "num_nodes: 1" in text


@pytest.mark.parametrize(
    ("script", "workers", "more"),
    [(LOOP, 1, {}), (LISTEN + LOOP, 2, {}), (LOOP, 2, {"OMPI_COMM_WORLD_SIZE": "2"})],
    ids=["one worker", "a connection", "MPI"],
)
def test_other_scripts_are_not(tmp_path: Path, script: str, workers: int, more: dict[str, str]) -> None:
    subprocess.run([sys.executable, "-c", script], env=env_of(tmp_path, 0, workers, **more), check=True)
    assert warned(tmp_path) == []


def test_distributed_data_parallel_is_never_warned_about(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    with TorchWorkers() as workers:
        workers.run(DDP, [env_of(tmp_path, rank, 2, **address) for rank in range(2)], folder=tmp_path)
    assert warned(tmp_path) == []
    assert '"samples": 40' in (tmp_path / "progress.jsonl").read_text()
