"""mlcd.torch with three processes: the parameter server's mean, and a checkpoint that only the first can read."""

import os
from pathlib import Path

import pytest
from tests.integration.test_platform_examples import free_ports
from tests.torch_workers import TorchWorkers

from mlcd.platforms.placement import Placement
from mlcd.platforms.registry import platform

WORKER = """
import sys, torch, mlcd.torch
from mlcd.training.training_progress import current_progress
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
    current_progress().advance(15)
current_progress().save()
print("RESULT", done, current_progress().samples, [round(p.double().sum().item(), 5) for p in model.parameters()])
torch.distributed.barrier()
"""


def run(workers: TorchWorkers, folders: list[Path], form: str) -> list[str]:
    """The output of each of three workers, with a checkpoint folder each."""
    port = free_ports()
    environments = []
    for rank, folder in enumerate(folders):
        place = Placement(rank=rank, addresses=("127.0.0.1",) * 3, port=port, topology=form)
        given = {"MLCD_TOPOLOGY": form, "MLCD_CHECKPOINT_DIR": str(folder)}
        environments.append({**os.environ, **platform("pytorch")(place)[0].env, **given})
    said = workers.run(WORKER, environments, folder=folders[0].parent)
    return [line for out in said for line in out.splitlines() if line.startswith("RESULT")]


@pytest.mark.slow
@pytest.mark.together("PyTorch workers")
def test_parameter_server_and_ring_learn_the_same_and_restore_the_first_workers_checkpoint(
    tmp_path: Path, torch_workers: TorchWorkers
) -> None:
    results = {}
    for form in ("ring", "ps"):
        folders = [tmp_path / form / str(rank) for rank in range(3)]
        folders[0].parent.mkdir()
        first, second = run(torch_workers, folders, form), run(torch_workers, folders, form)
        assert len(set(first)) == 1, "every worker has the same parameters"
        assert len(set(second)) == 1
        assert first[0].startswith("RESULT 0 45 ")
        assert second[0].startswith("RESULT 45 90 ")
        assert not folders[1].exists(), "the others neither write nor need files"
        results[form] = (first[0], second[0])
    assert results["ring"] == results["ps"]
