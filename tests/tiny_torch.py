"""Tiny PyTorch models as files, for tests of the server."""

from pathlib import Path
from typing import Any

ITEMS = 6
"""Numbers of one item of `x`."""


def exported(path: Path, *, words: bool = False, fixed: int = 0) -> Path:
    """A file of torch.export: ITEMS numbers, or with `words` 4 indices below 16, to 3. `fixed`: its only batch."""
    import torch

    module, example = (_words(torch), torch.zeros(2, 4, dtype=torch.int64)) if words else (_dense(torch), None)
    example = torch.zeros(fixed or 2, ITEMS) if example is None else example
    dynamic = None if fixed else ({0: torch.export.Dim("batch", min=1, max=4096)},)
    torch.export.save(torch.export.export(module, (example,), dynamic_shapes=dynamic), path)
    return path


def with_types(path: Path) -> Path:
    """A file of torch.export that takes bytes and has float32 written into its graph: a cast, and a constant."""
    import torch

    class Bytes(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dense = torch.nn.Linear(ITEMS, 3)

        def forward(self, pixels: Any) -> Any:
            return self.dense(pixels.to(torch.float32) / 255 + torch.ones(ITEMS, dtype=torch.float32))

    torch.manual_seed(0)
    dynamic = ({0: torch.export.Dim("batch", min=1, max=4096)},)
    example = (torch.zeros(2, ITEMS, dtype=torch.uint8),)
    torch.export.save(torch.export.export(Bytes().eval(), example, dynamic_shapes=dynamic), path)
    return path


def scripted(path: Path) -> Path:
    """The same dense model by TorchScript."""
    import torch

    trace: Any = torch.jit.trace
    torch.jit.save(trace(_dense(torch), torch.zeros(2, ITEMS)), str(path))
    return path


def dense_answer(rows: Any) -> Any:
    """What the dense model computes, in numpy."""
    import torch

    with torch.no_grad():
        return _dense(torch)(torch.tensor(rows)).numpy()


def _dense(torch: Any) -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(ITEMS, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)).eval()


def _words(torch: Any) -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Embedding(16, 5), torch.nn.Flatten(1), torch.nn.Linear(20, 3)).eval()
