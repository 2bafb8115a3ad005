"""mlcd.torch with three processes: the parameter server's mean, and a checkpoint that only the first one can read."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.test_platform_examples import free_ports

from mlcd.platforms.placement import Placement
from mlcd.platforms.registry import platform

pytest.importorskip("torch", reason="PyTorch is not installed: scripts/setup-venv test")

WORKER = """
import sys, torch, mlcd.torch
from mlcd.training.course import course
rank = mlcd.torch.init()
torch.manual_seed(rank)  # the first one's weights are everyone's
model = mlcd.torch.parallel(torch.nn.Sequential(torch.nn.Linear(300, 200), torch.nn.Linear(200, 2)), bucket_cap_mb=0.1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
done = mlcd.torch.checkpoint(model=model, optimizer=optimizer)
for step in range(3):
    torch.manual_seed(1000 * step + rank)
    optimizer.zero_grad()
    model(torch.randn(5, 300)).square().mean().backward()
    optimizer.step()
    course().advance(15)
course().save()
print("RESULT", done, course().samples, [round(p.double().sum().item(), 5) for p in model.parameters()])
torch.distributed.barrier()
"""


def run(folders: list[Path], form: str) -> list[str]:
    """What each of three workers says, with a checkpoint folder each."""
    port = free_ports()
    started = []
    for rank, folder in enumerate(folders):
        place = Placement(rank=rank, addresses=("127.0.0.1",) * 3, port=port, topology=form)
        env = {
            **os.environ,
            **platform("pytorch")(place)[0].env,
            "MLCD_TOPOLOGY": form,
            "MLCD_CHECKPOINT_DIR": str(folder),
            "OMP_NUM_THREADS": "1",
        }
        command = [sys.executable, "-c", WORKER]
        started.append(subprocess.Popen(command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    said = [process.communicate(timeout=120) for process in started]
    assert [process.returncode for process in started] == [0, 0, 0], said
    return [line for out, _ in said for line in out.splitlines() if line.startswith("RESULT")]


@pytest.mark.slow
def test_parameter_server_and_ring_learn_the_same_and_go_on_from_the_first_workers_files(tmp_path: Path) -> None:
    results = {}
    for form in ("ring", "ps"):
        folders = [tmp_path / form / str(rank) for rank in range(3)]
        first, second = run(folders, form), run(folders, form)
        assert len(set(first)) == 1, "every worker has the same parameters"
        assert len(set(second)) == 1
        assert first[0].startswith("RESULT 0 45 ")
        assert second[0].startswith("RESULT 45 90 ")
        assert not folders[1].exists(), "the others neither write nor need files"
        results[form] = (first[0], second[0])
    assert results["ring"] == results["ps"]
