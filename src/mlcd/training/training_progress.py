"""How far the training of this process is: counting, reporting, saving, and ending when asked to."""

import atexit
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from mlcd.training import checkpoints
from mlcd.training.progress import ProgressFile
from mlcd.training.worker_env import WorkerEnv

REPORT_SECONDS = 0.1
"""Between two progress lines, at least."""

PATIENCE_SECONDS = 10.0
"""How long a process that was asked to stop may take to clean up after itself."""

Save = Callable[[Path], None]


class TrainingProgress:
    """The samples of the whole training that are done, those of the restored checkpoint included.

    One for each process: several loops go on counting where the last one stopped. Only the head reports and saves.
    """

    def __init__(self, surroundings: WorkerEnv) -> None:
        self.surroundings = surroundings
        self.samples = 0
        self._progress = ProgressFile(surroundings.progress_file if surroundings.head else None)
        self._reported: int | None = None
        self._save: Save | None = None
        self._saved: int | None = None
        self._save_next = 0.0
        self._step_samples = surroundings.batch
        self._diverged = False
        self.reached = False
        """Whether the job's target was met: the loop ends, and a trial that goes on from here has nothing to do."""

    def go_on_from(self, load: Save, save: Save) -> int:
        """Have `load` restore the newest checkpoint, where there is one; `save` is called from now on.

        Returns the samples done so far.
        """
        folder = self.surroundings.checkpoint_folder
        found = checkpoints.newest(folder) if folder is not None else None
        if found is not None:
            load(found.path)
            self.restored(found.samples)
        self.save_by(save)
        return self.samples

    def restored(self, samples: int) -> None:
        """The training goes on from a checkpoint with this many samples."""
        self.samples = self._saved = samples

    def save_by(self, save: Save) -> None:
        """Save by this function, every so often and before the end."""
        self._save = save
        self._save_next = time.monotonic() + self.surroundings.checkpoint_seconds

    def begin(self, total: int | None = None) -> None:
        """A loop starts; `total` is the work of the whole training where the script says it."""
        if self._reported is None:
            atexit.register(self._report)
            self._reported = self.samples
            extra = {} if total is None else {"total": total}
            self._progress.write(samples=self.samples, **extra)

    def advance(self, samples: int) -> None:
        """One step more is done. Raises SystemExit(0) when the stop file is there, once all is saved."""
        self.samples += samples
        self._step_samples = samples
        if not self.surroundings.head:
            return
        now = time.monotonic()
        stop = self.surroundings.stop_file
        if stop is not None and stop.exists():
            self._end()
        if now >= self._progress.last_written + REPORT_SECONDS:
            self._report()
        if self._save is not None and now >= self._save_next:
            self.save()

    def noise(self, *, workers: int, batch: int | None = None, **norms: float) -> None:
        """Report squared norms of the gradients of the step done last, by `workers` with `batch` samples in all.

        Where the batch is not given it is what `advance` counts for a step, or the job file's. Numbers that are none
        are reported as null, with a warning when they begin.
        """
        finite = all(math.isfinite(value) for value in norms.values())
        if not finite and not self._diverged:
            self.warn(f"the gradient at {self.samples} samples is not finite: its noise is not measured")
        self._diverged = not finite
        squares = {name: value if finite else None for name, value in norms.items()}
        samples_a_step = self._step_samples if batch is None else batch
        if self._reported is not None:
            self._reported = self.samples
        self._progress.write(samples=self.samples, noise={**squares, "workers": workers, "batch": samples_a_step})

    def report(self, metrics: Mapping[str, float]) -> bool:
        """Report how good the model is now; True when that is the job's target, at which the loop ends."""
        target = self.surroundings.target
        finite = {name: float(value) for name, value in metrics.items() if math.isfinite(value)}
        for name in metrics.keys() - finite.keys():
            self.warn(f"the {name} at {self.samples} samples is not a number")
        if finite:
            self._progress.write(samples=self.samples, metrics=finite)
        if target is not None and target.metric in finite and target.is_met_by(finite[target.metric]):
            self.reached = True
        return self.reached

    def finish(self) -> None:
        """The work is done."""
        self._report()
        self.save()

    def save(self) -> None:
        """Save now, where the script said how and this process is the head; nothing new, nothing saved.

        A full disk is told and survived: the last checkpoint stays, the training goes on.
        """
        folder = self.surroundings.checkpoint_folder
        if self._save is None or folder is None or not self.surroundings.head or self._saved == self.samples:
            return
        try:
            checkpoints.write(folder, self.samples, self._save)
        except OSError as error:
            self.warn(f"the checkpoint at {self.samples} samples could not be saved: {error}")
        else:
            self._saved = self.samples
            self._progress.write(checkpoint=self.samples)
        self._save_next = time.monotonic() + self.surroundings.checkpoint_seconds

    def warn(self, text: str) -> None:
        """Something is wrong and the training goes on."""
        print(f"mlcd: {text}", file=sys.stderr)  # noqa: T201
        self._progress.write(warning=text)

    def _report(self) -> None:
        if self.samples != self._reported:
            self._reported = self.samples
            self._progress.write(samples=self.samples)

    def _end(self) -> None:
        self._report()
        self.save()
        # What the script does on its way out may wait for the other workers, which are not told to stop.
        threading.Thread(target=_leave, daemon=True, name="mlcd-stop").start()
        raise SystemExit(0)


def _leave() -> None:
    time.sleep(PATIENCE_SECONDS)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


@cache
def course() -> TrainingProgress:
    """This process's course, by its variables as they are at the first call."""
    return TrainingProgress(WorkerEnv.read(os.environ))
