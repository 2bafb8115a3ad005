"""`for batch in mlcd.steps(loader, batch_size=B)`: the loop that mlcd can watch."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from mlcd.training.arguments import check_count, check_function, check_loader, check_number
from mlcd.training.training_progress import TrainingProgress, course

Batch = TypeVar("Batch")


def steps(loader: Iterable[Batch], *, batch_size: int | None = None, total: int | None = None) -> Iterator[Batch]:
    """The loader's batches; each counts as `batch_size` samples once its step is done.

    batch_size  the global batch: of all workers together. By default the job file's `batch`
    total       samples of the whole training: goes over the loader again and again until they are done, telling its
                sampler the epoch. Without it one pass over the loader, as the loader itself would give; the work's end
                is then that of the job file, and a script's own loop over epochs runs empty from there

    Counts go on from the checkpoint that was restored and from the loops before. In the middle of a job of mlcd it
    saves through what mlcd.checkpoint was given, and raises SystemExit(0) when mlcd asked for the end of a trial.
    Raises ValueError where the batch is not known but needed, and when the loader gives nothing although work is left;
    BadInput for arguments of the wrong type, as all functions here do.
    """
    check_loader("steps", loader)
    check_count("steps", "batch_size", batch_size)
    check_count("steps", "total", total)
    here = course()
    batch = here.surroundings.batch if batch_size is None else batch_size
    needed = total is not None or here.surroundings.progress_file is not None
    if batch is None and needed:
        raise ValueError(
            "mlcd.steps: how many samples is one step? give batch_size=, the batch of all workers together"
        )
    if (batch is not None and batch < 1) or (total is not None and total < 0):
        raise ValueError(f"mlcd.steps: batch_size must be at least 1 and total no less than 0 (got {batch}, {total})")
    return _steps(here, loader, batch or 1, total)


def _steps(here: TrainingProgress, loader: Iterable[Batch], batch: int, total: int | None) -> Iterator[Batch]:
    end = here.surroundings.samples if total is None else total
    here.begin(total)
    epoch = _epochs_done(here.samples, loader, batch)
    while not here.reached and (end is None or here.samples < end):
        if total is not None:
            _tell_epoch(loader, epoch)
        before = here.samples
        for item in loader:
            yield item
            here.advance(batch)
            if here.reached or (end is not None and here.samples >= end):
                break
        if total is None:
            break
        if here.samples == before:
            raise ValueError(f"mlcd.steps: the loader gave no batch, with {before} of {total} samples done")
        epoch += 1
    if here.reached or (end is not None and here.samples >= end):
        here.finish()


def checkpoint(*, save: Callable[[Path], None], load: Callable[[Path], None]) -> int:
    """Restore the training, and have it saved from now on; returns the samples already done, 0 at the start.

    save  is given an empty folder and fills it; called by the first worker only, between two steps
    load  is given such a folder; called at once, by every worker, when there is a checkpoint to go on from

    Outside mlcd, or when the job file says no `checkpoints: true`, neither is ever called.
    """
    check_function("checkpoint", "save", save)
    check_function("checkpoint", "load", load)
    return course().go_on_from(load, save)


def score(**metrics: float) -> bool:
    """Tell how good the model is now, by the names of your metrics; True when that is the job's `target`.

    Call it on every worker with the same numbers, inside the loop of `mlcd.steps`: where the target is met, that loop
    ends after this step, on all of them. Numbers that are none are left out, with a warning.
    """
    for name, value in metrics.items():
        check_number("score", name, value)
    return course().report(metrics)


def learning_rate(default: float) -> float:
    """The learning rate that the job file's rule gives for this job's batch; `default` where there is none."""
    check_number("learning_rate", "default", default)
    given = course().surroundings.learning_rate
    return default if given is None else given


def share_of_batch(batch_size: int | None = None) -> int:
    """This worker's part of the global batch (by default the job file's): parts differ by one sample at most.

    Raises ValueError where the batch is not known or too small for every worker to have a sample.
    """
    check_count("share_of_batch", "batch_size", batch_size)
    here = course().surroundings
    batch = here.batch if batch_size is None else batch_size
    if batch is None:
        raise ValueError("mlcd.share_of_batch: give batch_size=, the batch of all workers together")
    if batch < here.workers:
        raise ValueError(f"mlcd.share_of_batch: a batch of {batch} cannot be shared by {here.workers} workers")
    return (here.rank + 1) * batch // here.workers - here.rank * batch // here.workers


def _epochs_done(samples: int, loader: object, batch: int) -> int:
    length = getattr(loader, "__len__", None)
    try:
        passes = 0 if length is None else int(length())
    except TypeError:  # a loader over a stream has __len__ and refuses it
        return 0
    return samples // (passes * batch) if passes else 0


def _tell_epoch(loader: object, epoch: int) -> None:
    for sampler in (getattr(loader, "sampler", None), getattr(loader, "batch_sampler", None)):
        tell = getattr(sampler, "set_epoch", None)
        if tell is not None:
            tell(epoch)
