"""mlcd.torch with one process; several are in tests/integration/test_torch_group.py and test_platform_examples.py."""

import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: scripts/setup-venv test")

import mlcd.torch as mt  # noqa: E402  torch may be missing
from mlcd.training.training_progress import current_progress  # noqa: E402


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("RANK", "WORLD_SIZE", *(name for name in os.environ if name.startswith("MLCD_"))):
        monkeypatch.delenv(name, raising=False)
    current_progress.cache_clear()
    yield
    current_progress.cache_clear()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def digits(size: int) -> Any:
    return torch.utils.data.TensorDataset(torch.arange(size))


def test_one_process_forms_its_own_group() -> None:
    assert mt.init() == 0
    assert mt.init() == 0, "joining twice is joining once"
    model = mt.parallel(torch.nn.Linear(3, 2))
    model(torch.ones(4, 3)).sum().backward()
    assert model.module.weight.grad is not None
    torch.distributed.barrier()


def test_the_global_batches_do_not_depend_on_the_number_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    def batches(workers: int) -> list[list[int]]:
        shares = []
        for rank in range(workers):
            monkeypatch.setenv("RANK", str(rank))
            monkeypatch.setenv("WORLD_SIZE", str(workers))
            current_progress.cache_clear()
            loader: Any = mt.loader(digits(50), batch_size=16)
            loader.batch_sampler.set_epoch(3)
            shares.append([batch[0].tolist() for batch in loader])
        return [list(chain(*parts)) for parts in zip(*shares, strict=True)]

    alone = batches(1)
    assert [len(batch) for batch in alone] == [16, 16, 16]
    assert len(set(chain(*alone))) == 48
    assert batches(3) == alone
    assert batches(5) == alone


def test_each_epoch_has_its_own_order() -> None:
    loader: Any = mt.loader(digits(50), batch_size=50)
    orders = []
    for epoch in (0, 1, 0):
        loader.batch_sampler.set_epoch(epoch)
        orders.append(next(iter(loader))[0].tolist())
    assert orders[0] == orders[2] != orders[1]


def test_invalid_batches_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="give batch_size="):
        mt.loader(digits(5))
    with pytest.raises(ValueError, match="does not fit 5 samples"):
        mt.loader(digits(5), batch_size=6)
    monkeypatch.setenv("WORLD_SIZE", "4")
    current_progress.cache_clear()
    with pytest.raises(ValueError, match="and 4 workers"):
        mt.loader(digits(5), batch_size=3)
    with pytest.raises(TypeError, match="no length"):
        mt.loader(iter([1]), batch_size=4)  # type: ignore[arg-type]


def test_model_and_optimizer_are_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLCD_CHECKPOINT_DIR", str(tmp_path))

    def made() -> tuple[Any, Any]:
        model = mt.parallel(torch.nn.Linear(3, 2))
        return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    model, optimizer = made()
    assert mt.checkpoint(model=model, optimizer=optimizer) == 0
    model(torch.ones(4, 3)).sum().backward()
    optimizer.step()
    current_progress().advance(64)
    current_progress().save()
    current_progress.cache_clear()

    other, its_optimizer = made()
    assert mt.checkpoint(model=other, optimizer=its_optimizer) == 64
    assert torch.equal(other.module.weight, model.module.weight)
    momentum = its_optimizer.state_dict()["state"][0]["momentum_buffer"]
    assert torch.equal(momentum, optimizer.state_dict()["state"][0]["momentum_buffer"])


def test_an_object_without_a_state_dict_is_named() -> None:
    with pytest.raises(TypeError, match="scheduler has no state_dict"):
        mt.checkpoint(scheduler=3)


def test_a_full_disk_is_a_warning(tmp_path: Path) -> None:
    """No file may grow beyond 20 kB here: the system itself refuses the write."""
    code = """
import resource, torch, mlcd, mlcd.torch
model = torch.nn.Linear(10, 10)
mlcd.torch.checkpoint(model=model)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
for step in mlcd.steps(range(5), batch_size=1, total=10):
    if step == 4:
        model.more = torch.nn.Linear(100, 100)
"""
    env = {**os.environ, "MLCD_CHECKPOINT_DIR": str(tmp_path), "MLCD_CHECKPOINT_SECONDS": "1e-9"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "could not be saved" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["step-4"]
