"""For PyTorch scripts: process group, DistributedDataParallel, global batch and checkpoints, in one line each.

    import mlcd.torch
    mlcd.torch.init()
    model = mlcd.torch.parallel(Net())
    loader = mlcd.torch.loader(dataset, batch_size=192)              # the batch of all workers together
    mlcd.torch.checkpoint(model=model, optimizer=optimizer)
    for images, labels in mlcd.steps(loader, batch_size=192, total=epochs * len(dataset)):
        ...

Each can be replaced by PyTorch's own. Run by hand, without mlcd's variables, all of it works with one process.
"""

from mlcd.training.frameworks import without_framework

try:
    from mlcd.torch.group import device, init, parallel
    from mlcd.torch.shares import loader
    from mlcd.torch.state import checkpoint
except ModuleNotFoundError as error:
    raise without_framework(error, package="torch", module="mlcd.torch") from error

__all__ = ["checkpoint", "device", "init", "loader", "parallel"]
