"""A Keras callback that reports, saves, restores, and stops the training when the work is done."""

from pathlib import Path
from typing import Any

import keras

from mlcd.keras.noise import Pairs, why_not
from mlcd.training.training_progress import current_progress

_WEIGHTS = "mlcd.weights.h5"


class Progress(keras.callbacks.Callback):  # type: ignore[misc]  # keras has no types
    """Counts `batch_size` samples for each step: the batch of all workers together (default: the job file's).

    The checkpoint has the weights of the model and of its optimizer. Only the first worker reports and saves; all
    restore. Where there is a checkpoint, the model must be built before fit is called. With `noise`, by default where
    mlcd asks for it (MLCD_NOISE=1), the squared norms of successive gradients are reported every few steps. Raises
    ValueError where the batch is unknown.
    """

    def __init__(self, *, batch_size: int | None = None, noise: bool | None = None) -> None:
        super().__init__()
        self._progress = current_progress()
        batch = self._progress.env.batch if batch_size is None else batch_size
        if batch is None or batch < 1:
            raise ValueError("mlcd.keras.Progress: give batch_size=, the batch of all workers together")
        self._batch = batch
        self._steps = 0
        self._noise = self._progress.env.noise if noise is None else noise
        self._pairs: Pairs | None = None

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002, D102
        def save(folder: Path) -> None:
            self.model.save_weights(str(folder / _WEIGHTS))

        def load(folder: Path) -> None:
            self.model.optimizer.build(self.model.trainable_variables)
            self.model.load_weights(str(folder / _WEIGHTS))

        if self._progress.samples == 0:  # the first fit of this process; later ones continue from it
            self._progress.restore_newest(load, save)
        self._progress.begin()
        if self._noise and self._progress.env.head and self._pairs is None:
            problem = why_not(self.model)
            if problem:
                self._progress.warn(f"the noise is not measured: {problem}")
                self._noise = False
            else:
                self._pairs = Pairs(self.model, self._progress, self._batch)
        self._stop_when_done()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002, D102
        self._steps = 0
        self._stop_when_done()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002, D102
        # With steps_per_execution, Keras calls this once for several steps, with the number of the last.
        done, self._steps = batch + 1 - self._steps, batch + 1
        self._progress.advance(done * self._batch)
        if self._pairs is not None:
            self._pairs.report(done)
        self._stop_when_done()

    def on_train_end(self, logs: Any = None) -> None:  # noqa: ARG002, D102
        self._progress.finish()

    def _stop_when_done(self) -> None:
        work = self._progress.env.samples
        if self._progress.reached or (work is not None and self._progress.samples >= work):
            self.model.stop_training = True
