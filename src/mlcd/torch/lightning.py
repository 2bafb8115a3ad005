"""A callback for Lightning's Trainer: reports, saves, restores, and stops the training when the work is done."""

import math
from typing import Any

try:
    from lightning.pytorch.callbacks import Callback
except ModuleNotFoundError as error:  # the same library under its older name
    if error.name != "lightning":
        raise
    try:
        from pytorch_lightning.callbacks import Callback
    except ModuleNotFoundError:
        raise error from None

from mlcd.torch.fit import FitProgress


class LightningProgress(Callback):  # type: ignore[misc]  # lightning is not installed where this is checked
    """`Trainer(..., callbacks=[mlcd.torch.LightningProgress()])`.

    Each batch counts as `batch_size` samples: by default the batch size of the training's DataLoader times the number
    of workers, else the job file's batch. The training ends at the job file's samples, or at the Trainer's own end
    where the file has none. The checkpoint holds module, optimizers and schedules; a training that continues from one
    starts its data anew. What validation logs is reported under the same names. Only the first worker reports and
    saves; all restore.
    """

    def __init__(self, *, batch_size: int | None = None) -> None:
        super().__init__()
        self._fit = FitProgress(callback="mlcd.torch.LightningProgress", batch_size=batch_size)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: D102
        things = {"module": pl_module}
        things.update((f"optimizer{number}", each) for number, each in enumerate(trainer.optimizers))
        things.update((f"schedule{number}", each.scheduler) for number, each in enumerate(trainer.lr_scheduler_configs))
        self._fit.begin(batch=_global_batch(trainer), steps=_batches(trainer), things=things)
        self._stop_when_done(trainer)

    def on_train_batch_end(self, trainer: Any, *ignored: Any) -> None:  # noqa: ARG002, D102
        self._fit.step()
        self._stop_when_done(trainer)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002, D102
        if not trainer.sanity_checking:
            self._fit.metrics({name: value.item() for name, value in trainer.callback_metrics.items()})
            self._stop_when_done(trainer)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002, D102
        self._fit.finish()

    def _stop_when_done(self, trainer: Any) -> None:
        if self._fit.done:
            trainer.should_stop = True


def _global_batch(trainer: Any) -> int | None:
    """The batch size of the loader times the workers; None for loaders without one batch size."""
    size = getattr(trainer.train_dataloader, "batch_size", None)
    if size is None:
        sampler = getattr(trainer.train_dataloader, "batch_sampler", None)
        size = getattr(sampler, "batch_size", None)
    return int(size) * int(trainer.world_size) if isinstance(size, int) else None


def _batches(trainer: Any) -> int | None:
    """Batches of the whole training on this worker; None if it has no end that is known."""
    each = trainer.num_training_batches
    accumulated = max(1, int(trainer.accumulate_grad_batches))
    ends = []
    if trainer.max_epochs is not None and trainer.max_epochs >= 0 and math.isfinite(each):
        ends.append(int(each) * int(trainer.max_epochs))
    if trainer.max_steps >= 0:
        ends.append(int(trainer.max_steps) * accumulated)
    return min(ends) if ends else None
