"""The progress of this process's training: counting, reporting, saving, and ending when asked to."""

import atexit
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from mlcd.training import checkpoints
from mlcd.training.alone import trains_alone
from mlcd.training.progress import ProgressFile
from mlcd.training.worker_env import WorkerEnv

CHECKED_STEP = 2
"""The step at which workers that exchange gradients are connected: they have exchanged them once."""

REPORT_SECONDS = 0.1
"""The least time between two progress lines."""

CLEANUP_SECONDS = 10.0
"""How long a process that was asked to stop may take to clean up."""

Save = Callable[[Path], None]


class TrainingProgress:
    """Counts the samples done in the whole training, including those of the restored checkpoint.

    One per process: a further loop continues the count of the previous one. Only the head reports and saves.
    """

    def __init__(self, env: WorkerEnv) -> None:
        self.env = env
        self.samples = 0
        self._progress = ProgressFile(env.progress_file if env.head else None)
        self._reported: int | None = None
        self._save: Save | None = None
        self._saved: int | None = None
        self._save_next = 0.0
        self._step_samples = env.batch
        self._diverged = False
        self._steps = 0
        self._restored = 0
        self._restored_epoch: int | None = None
        self._epochs_done: int | None = None
        self._passes = 0
        self._pass_samples = 0
        self._epochs = 0
        self.epoch: int | None = None
        """The place of the present epoch among those of `mlcd.epochs`; None where the script does not use it."""
        self.epoch_samples = 0
        """Samples of the present epoch."""
        self._knobs_read: set[str] = set()
        self.reached = False
        """Whether the job's target was met: the loop ends, and a trial that continues from here has nothing to do."""

    # ---- epochs

    def epochs_left(self, count: int) -> Iterator[int]:
        """The places of the epochs that remain of `count`; from now on `epoch` is the present one."""
        self._epochs = count
        first = self._restored_epoch
        if first is None:  # a checkpoint that was saved in no epoch, or none
            total = self.env.samples
            first = int(self.samples * count / total) if total else 0
            self.epoch_samples = self.samples - first * total // count if total and count else 0
        for place in range(first, count):
            self.epoch = place
            self._restored_epoch = None
            yield place
            self.epoch_samples = 0

    def end_epochs(self) -> None:
        """Note that the loop over epochs is over. Where it tells how much work there is, the work is done: save."""
        if self.epoch is not None:
            self._epochs_done = self.epoch + 1
        self.epoch = None
        if self.env.samples is None and self._reported is not None:
            self.finish()

    def planned(self, pass_samples: int) -> int | None:
        """Samples of all epochs of `mlcd.epochs`, by those of one.

        None outside of them, and where the job file says what ends the training.
        """
        is_told = self.epoch is None or self.env.samples is not None or self.env.target is not None
        return None if is_told or not pass_samples else self._epochs * pass_samples

    def begin_pass(self, samples: int) -> None:
        """Note that a pass over a loader with this many samples begins; 0: its length is not known."""
        self._pass_samples = samples
        self._passes += 1
        if self.epoch is None and self._passes == 2 and self._restored > 0:
            share = f"{self._restored / self.env.samples:.0%}" if self.env.samples else f"{self._restored:,} samples"
            self.warn(
                f"this job continues from a checkpoint after {share} of the training, and its loop over epochs starts"
                " again at the first one: write `for epoch in mlcd.epochs(N)`, or one loop of mlcd.steps(..., total=N)"
            )

    @property
    def is_epoch_over(self) -> bool:
        """Whether the present epoch has all of its samples, where its length is known."""
        return self.epoch is not None and 0 < self._pass_samples <= self.epoch_samples

    def restore_newest(self, load: Save, save: Save) -> int:
        """Restore the newest checkpoint, if any, with `load`; `save` is called from now on.

        Returns the samples done so far.
        """
        folder = self.env.checkpoint_folder
        found = checkpoints.newest(folder) if folder is not None else None
        if found is not None:
            load(found.path)
            self.restored(found.samples)
            self._restored_epoch, self.epoch_samples = found.epoch, found.epoch_samples
        self.save_with(save)
        return self.samples

    def restored(self, samples: int) -> None:
        """Note that the training continues from a checkpoint with this many samples."""
        self.samples = self._saved = self._restored = samples

    def save_with(self, save: Save) -> None:
        """Save with this function, every `checkpoint_seconds` and before the end."""
        self._save = save
        self._save_next = time.monotonic() + self.env.checkpoint_seconds

    def begin(self, total: int | None = None) -> None:
        """Note that a loop starts; `total` is the work of the whole training where the script gives it."""
        if self._reported is None:
            atexit.register(self._report)
            self._reported = self.samples
            extra = {} if total is None else {"total": total}
            self._progress.write(samples=self.samples, **extra)

    def advance(self, samples: int) -> None:
        """Count one more step. When the stop file exists, saves and raises SystemExit(0)."""
        self.samples += samples
        self.epoch_samples += samples
        self._step_samples = samples
        if not self.env.head:
            return
        self._steps += 1
        if self._steps == CHECKED_STEP:
            self._check_workers()
        now = time.monotonic()
        stop = self.env.stop_file
        if stop is not None and stop.exists():
            self._end()
        if now >= self._progress.last_written + REPORT_SECONDS:
            self._report()
        if self._save is not None and now >= self._save_next:
            self.save()

    def noise(self, *, workers: int, batch: int | None = None, **norms: float) -> None:
        """Report squared norms of the last step's gradients, of `workers` with `batch` samples together.

        The default batch is what `advance` counts for a step, or the job file's. Values that are not finite are
        reported as null, with a warning for the first of them.
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
        """Report metrics of the model now; returns whether they meet the job's target, at which the loop ends."""
        target = self.env.target
        finite = {name: float(value) for name, value in metrics.items() if math.isfinite(value)}
        for name in metrics.keys() - finite.keys():
            self.warn(f"the {name} at {self.samples} samples is not a number")
        if finite:
            self._progress.write(samples=self.samples, metrics=finite)
        if target is not None and target.metric in finite and target.is_met_by(finite[target.metric]):
            self.reached = True
        return self.reached

    def knob(self, name: str) -> str | int | float | None:
        """The knob's value; None where the job file has no such knob, or it does not apply. Reports that it was read.

        Warns once if the name is nearly that of a knob.
        """
        if name in self._knobs_read:
            return self.env.knobs.get(name)
        self._knobs_read.add(name)
        self._progress.write(knobs=[name])
        declared = self.env.declared_knobs
        if name not in declared and (near := get_close_matches(name, declared, n=1, cutoff=0.7)):
            self.warn(f"the script asks for the knob {name!r}, which the job file does not have; {near[0]!r} is one")
        return self.env.knobs.get(name)

    def describe(self, sizes: Mapping[str, float]) -> None:
        """Report the sizes of the model that is trained."""
        self._progress.write(model=sizes)

    def finish(self) -> None:
        """Report and save at the end of the work."""
        self._report()
        self.save()

    def save(self) -> None:
        """Save now, if the script gave a function for it, this process is the head and there are new samples.

        On a full disk it warns: the last checkpoint stays and the training continues.
        """
        folder = self.env.checkpoint_folder
        if self._save is None or folder is None or not self.env.head or self._saved == self.samples:
            return
        try:
            checkpoints.write(folder, self.samples, self._save, **self._place())
        except OSError as error:
            self.warn(f"the checkpoint at {self.samples} samples could not be saved: {error}")
        else:
            self._saved = self.samples
            self._progress.write(checkpoint=self.samples)
        self._save_next = time.monotonic() + self.env.checkpoint_seconds

    def _place(self) -> dict[str, int]:
        """Where in its epochs the training is; {} where the script does not number them."""
        if self.epoch is None:
            return {} if self._epochs_done is None else {"epoch": self._epochs_done, "epoch_samples": 0}
        if self.is_epoch_over:
            return {"epoch": self.epoch + 1, "epoch_samples": 0}
        return {"epoch": self.epoch, "epoch_samples": self.epoch_samples}

    def warn(self, text: str) -> None:
        """Report a problem that does not stop the training."""
        print(f"mlcd: {text}", file=sys.stderr)  # noqa: T201
        self._progress.write(warning=text)

    def _check_workers(self) -> None:
        """Warn if the job has several workers and this one exchanges nothing with the others."""
        workers = self.env.workers
        if workers > 1 and self.env.progress_file is not None and trains_alone():
            self.warn(
                f"the job runs on {workers} workers, and this one has no connection to the others: each seems to train"
                " on its own, so its speed is not that of one training; make the script distributed"
                " (torch.distributed, mlcd.torch.parallel, tf.distribute), or set num_nodes: 1"
            )

    def _report(self) -> None:
        if self.samples != self._reported:
            self._reported = self.samples
            self._progress.write(samples=self.samples)

    def _end(self) -> None:
        self._report()
        self.save()
        # The script's own cleanup may wait for the other workers, which are not asked to stop.
        threading.Thread(target=_exit_after_cleanup, daemon=True, name="mlcd-stop").start()
        raise SystemExit(0)


def _exit_after_cleanup() -> None:
    time.sleep(CLEANUP_SECONDS)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


@cache
def current_progress() -> TrainingProgress:
    """The progress of this process, made from its environment variables at the first call."""
    return TrainingProgress(WorkerEnv.read(os.environ))
