"""A callback for Hugging Face's Trainer: reports, saves, restores, and stops the training when the work is done."""

from typing import Any

from transformers import TrainerCallback

from mlcd.torch.fit import FitProgress


class TrainerProgress(TrainerCallback):  # type: ignore[misc]  # transformers has no types here
    """`Trainer(..., callbacks=[mlcd.torch.TrainerProgress()])`.

    Each optimizer step counts as `batch_size` samples: by default the Trainer's own global batch, which is
    per_device_train_batch_size x devices x gradient_accumulation_steps. The training ends at the job file's samples, or
    at the Trainer's own end where the file has none. The checkpoint holds model, optimizer and schedule; a training
    that continues from one starts its data anew. Metrics of evaluations are reported under the Trainer's names
    (`eval_loss`). Only the first worker reports and saves; all restore.
    """

    def __init__(self, *, batch_size: int | None = None) -> None:
        self._fit = FitProgress(callback="mlcd.torch.TrainerProgress", batch_size=batch_size)

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:  # noqa: ARG002, D102
        things = {
            name: given[key]
            for name, key in (("model", "model"), ("optimizer", "optimizer"), ("schedule", "lr_scheduler"))
            if given.get(key) is not None
        }
        batch = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
        steps = state.max_steps if state.max_steps > 0 else None
        before = self._fit.begin(batch=batch, steps=steps, things=things)
        state.global_step = max(state.global_step, before // self._fit.batch)

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:  # noqa: ARG002, D102
        self._fit.step()
        if self._fit.done:
            control.should_training_stop = True

    def on_evaluate(self, args: Any, state: Any, control: Any, **given: Any) -> None:  # noqa: ARG002, D102
        self._fit.metrics(given.get("metrics") or {})
        if self._fit.done:
            control.should_training_stop = True

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:  # noqa: ARG002, D102
        self._fit.finish()
