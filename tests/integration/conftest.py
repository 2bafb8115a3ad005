"""What several files here share."""

from collections.abc import Iterator

import pytest
from tests.torch_workers import TorchWorkers


@pytest.fixture(scope="session")
def torch_workers() -> Iterator[TorchWorkers]:
    """Processes that have imported PyTorch already."""
    pytest.importorskip("torch", reason="PyTorch is not installed: scripts/setup-venv test")
    with TorchWorkers() as workers:
        yield workers
