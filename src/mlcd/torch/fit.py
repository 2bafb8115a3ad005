"""What the callbacks for Hugging Face's Trainer and Lightning share: counting the steps of a library's loop."""

from collections.abc import Mapping
from typing import Any

from mlcd.torch.state import checkpoint
from mlcd.training.training_progress import current_progress


class FitProgress:
    """The progress of a training whose loop belongs to a library.

    A second training of the same process continues the count; only the first restores a checkpoint.
    """

    def __init__(self, *, callback: str, batch_size: int | None) -> None:
        """`callback` names the caller in errors; `batch_size` is the global batch, None if the library knows it."""
        if batch_size is not None and (isinstance(batch_size, bool) or batch_size < 1):
            raise ValueError(f"{callback}: batch_size must be at least 1 (got {batch_size})")
        self._callback, self._given = callback, batch_size
        self._progress = current_progress()
        self._batch = 0
        self._end: int | None = None

    @property
    def samples(self) -> int:
        """Samples done so far, those of the restored checkpoint included."""
        return self._progress.samples

    @property
    def batch(self) -> int:
        """The samples of one step over all workers, once the training has begun."""
        return self._batch

    @property
    def done(self) -> bool:
        """Whether the work is done or the job's target is met: the library's loop should end."""
        return self._progress.reached or (self._end is not None and self.samples >= self._end)

    def begin(self, *, batch: int | None, steps: int | None, things: Mapping[str, Any]) -> int:
        """Restore `things` from the newest checkpoint and save them from now on; returns the samples already done.

        batch  the global batch that the library reports, if any
        steps  steps of the whole training, if the library knows

        Raises ValueError where the batch is not known.
        """
        env = self._progress.env
        known = self._given or batch or env.batch
        if not known:
            raise ValueError(f"{self._callback}: give batch_size=, the batch of all workers together")
        self._batch = known
        total = None if steps is None else steps * known
        if self.samples == 0:
            checkpoint(**things)
        # The job file's work counts; without it, the library's own end is the work.
        self._end = env.samples if env.samples is not None else total
        self._progress.begin(None if env.samples is not None else total)
        return self.samples

    def step(self) -> None:
        """Count one step. Saves and raises SystemExit(0) when mlcd has asked for the end of a trial."""
        if not self.done:
            self._progress.advance(self._batch)

    def metrics(self, found: Mapping[str, Any]) -> None:
        """Report those metrics that are numbers."""
        numbers = {
            name: float(value)
            for name, value in found.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        }
        if numbers:
            self._progress.report(numbers)

    def finish(self) -> None:
        """Report and save at the end of the training."""
        self._progress.finish()
