"""For PyTorch scripts: process group, DistributedDataParallel, global batch and checkpoints, in one line each.

    import mlcd.torch
    mlcd.torch.init()
    model = mlcd.torch.parallel(Net())
    loader = mlcd.torch.loader(dataset, batch_size=192)              # the batch of all workers together
    mlcd.torch.checkpoint(model=model, optimizer=optimizer)
    for images, labels in mlcd.steps(loader, batch_size=192, total=epochs * len(dataset)):
        ...

Each can be replaced by PyTorch's own. Run by hand, without mlcd's variables, all of it works with one process.

Scripts whose loop belongs to a library take a callback instead:

    trainer = transformers.Trainer(..., callbacks=[mlcd.torch.TrainerProgress()])
    trainer = lightning.Trainer(..., callbacks=[mlcd.torch.LightningProgress()])
"""

from typing import TYPE_CHECKING, Any

from mlcd.training.frameworks import without_framework

try:
    from mlcd.torch.group import device, init, parallel
    from mlcd.torch.shares import loader
    from mlcd.torch.state import checkpoint
except ModuleNotFoundError as error:
    raise without_framework(error, package="torch", module="mlcd.torch") from error

if TYPE_CHECKING:
    from mlcd.torch.hugging_face import TrainerProgress
    from mlcd.torch.lightning import LightningProgress

__all__ = ["LightningProgress", "TrainerProgress", "checkpoint", "device", "init", "loader", "parallel"]


def __getattr__(name: str) -> Any:
    """The callbacks, whose libraries are imported only where they are used."""
    try:
        if name == "TrainerProgress":
            from mlcd.torch.hugging_face import TrainerProgress  # noqa: PLC0415

            return TrainerProgress
        if name == "LightningProgress":
            from mlcd.torch.lightning import LightningProgress  # noqa: PLC0415

            return LightningProgress
    except ModuleNotFoundError as error:
        package = "transformers" if name == "TrainerProgress" else "lightning"
        raise without_framework(error, package=package, module=f"mlcd.torch.{name}") from error
    raise AttributeError(f"module 'mlcd.torch' has no attribute {name!r}")
