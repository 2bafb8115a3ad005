"""A callback of Keras that reports, saves, restores, and ends the training when the work is done."""

from pathlib import Path
from typing import Any

import keras

from mlcd.keras.noise import Pairs, why_not
from mlcd.training.training_progress import course

_WEIGHTS = "mlcd.weights.h5"


class Progress(keras.callbacks.Callback):  # type: ignore[misc]  # keras has no types
    """Counts `batch_size` samples for each step, the batch of all workers together (by default the job file's).

    The checkpoint has the model's weights and its optimizer's. Only the first worker reports and saves; all restore.
    The model must be built when fit is called, where there is a checkpoint. With `noise`, by default where mlcd asks
    for it (MLCD_NOISE=1), the squared norms of successive gradients are reported every few steps. Raises ValueError
    where the batch is not known.
    """

    def __init__(self, *, batch_size: int | None = None, noise: bool | None = None) -> None:
        super().__init__()
        self._course = course()
        batch = self._course.surroundings.batch if batch_size is None else batch_size
        if batch is None or batch < 1:
            raise ValueError("mlcd.keras.Progress: give batch_size=, the batch of all workers together")
        self._batch = batch
        self._steps = 0
        self._noise = self._course.surroundings.noise if noise is None else noise
        self._pairs: Pairs | None = None

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002, D102
        def save(folder: Path) -> None:
            self.model.save_weights(str(folder / _WEIGHTS))

        def load(folder: Path) -> None:
            self.model.optimizer.build(self.model.trainable_variables)
            self.model.load_weights(str(folder / _WEIGHTS))

        if self._course.samples == 0:  # the first fit of this process: later ones go on from where it is
            self._course.go_on_from(load, save)
        self._course.begin()
        if self._noise and self._course.surroundings.head and self._pairs is None:
            refused = why_not(self.model)
            if refused:
                self._course.warn(f"the noise is not measured: {refused}")
                self._noise = False
            else:
                self._pairs = Pairs(self.model, self._course, self._batch)
        self._stop_when_done()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002, D102
        self._steps = 0
        self._stop_when_done()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002, D102
        # With steps_per_execution Keras calls once for several steps, with the number of the last.
        done, self._steps = batch + 1 - self._steps, batch + 1
        self._course.advance(done * self._batch)
        if self._pairs is not None:
            self._pairs.report(done)
        self._stop_when_done()

    def on_train_end(self, logs: Any = None) -> None:  # noqa: ARG002, D102
        self._course.finish()

    def _stop_when_done(self) -> None:
        work = self._course.surroundings.samples
        if self._course.reached or (work is not None and self._course.samples >= work):
            self.model.stop_training = True
