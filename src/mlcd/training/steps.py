"""`for batch in mlcd.steps(loader, batch_size=B)`: the loop that mlcd can watch."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from mlcd.training.arguments import check_count, check_epochs, check_function, check_loader, check_number
from mlcd.training.training_progress import TrainingProgress, current_progress

Batch = TypeVar("Batch")


def steps(loader: Iterable[Batch], *, batch_size: int | None = None, total: int | None = None) -> Iterator[Batch]:
    """The loader's batches; each counts as `batch_size` samples once its step is done.

    batch_size  the global batch, of all workers together. Default: the job file's `batch`
    total       samples of the whole training: repeats the loader until they are done, and sets its sampler's epoch.
                Without it, one pass over the loader; the training then ends at the job file's samples, after which
                the passes of a script's own loop over epochs are empty

    In a loop over epochs, number them with `mlcd.epochs`: else they start again after a checkpoint. Where the job file
    has no samples, all epochs over a loader of this length are then the work of the training.

    Counting continues from the restored checkpoint and from earlier loops. In a job of mlcd it saves with the function
    given to mlcd.checkpoint, and raises SystemExit(0) when mlcd has asked for the end of a trial. Raises ValueError
    where the batch is unknown but needed, and when the loader gives no batch before the work is done; BadInput for
    arguments of the wrong type, as all functions here do.
    """
    check_loader("steps", loader)
    check_count("steps", "batch_size", batch_size)
    check_count("steps", "total", total)
    here = current_progress()
    batch = here.env.batch if batch_size is None else batch_size
    needed = total is not None or here.env.progress_file is not None
    if batch is None and needed:
        raise ValueError(
            "mlcd.steps: the samples of one step are unknown; give batch_size=, the batch of all workers together"
        )
    if (batch is not None and batch < 1) or (total is not None and total < 0):
        raise ValueError(f"mlcd.steps: batch_size must be at least 1 and total no less than 0 (got {batch}, {total})")
    return _steps(here, loader, batch or 1, total)


def _steps(here: TrainingProgress, loader: Iterable[Batch], batch: int, total: int | None) -> Iterator[Batch]:
    end = here.env.samples if total is None else total
    here.begin(here.planned(_passes(loader) * batch) if total is None else total)
    epoch = _epochs_done(here.samples, loader, batch)
    if total is None:
        here.begin_pass(_passes(loader) * batch)
        epoch = epoch if here.epoch is None else here.epoch
    while not here.reached and not here.is_epoch_over and (end is None or here.samples < end):
        if total is not None or here.epoch is not None:
            _tell_epoch(loader, epoch)
        before = here.samples
        for item in loader:
            yield item
            here.advance(batch)
            if here.reached or here.is_epoch_over or (end is not None and here.samples >= end):
                break
        if total is None:
            break
        if here.samples == before:
            raise ValueError(f"mlcd.steps: the loader gave no batch, with {before} of {total} samples done")
        epoch += 1
    if here.reached or (end is not None and here.samples >= end):
        here.finish()


def epochs(epochs: int | range) -> Iterator[int]:
    """The epochs that remain, for `for epoch in mlcd.epochs(10)` around a loop of `mlcd.steps` without `total`.

    epochs  how many there are, or their numbers: range(1, 11)

    After a checkpoint they continue with the epoch in which it was saved, and its steps with the rest of that epoch.
    Outside mlcd, all of them. Ends early when the job's target is met.
    """
    check_epochs("epochs", epochs)
    return _epochs(current_progress(), epochs if isinstance(epochs, range) else range(epochs))


def _epochs(here: TrainingProgress, numbers: range) -> Iterator[int]:
    for place in here.epochs_left(len(numbers)):
        yield numbers[place]
        if here.reached:
            break
    here.end_epochs()


def checkpoint(*, save: Callable[[Path], None], load: Callable[[Path], None]) -> int:
    """Restore the training, and save it from now on; returns the samples already done, 0 at the start.

    save  gets an empty folder and fills it; called by the first worker only, between two steps
    load  gets such a folder; called immediately, by every worker, when there is a checkpoint to continue from

    Outside mlcd, or without `checkpoints: true` in the job file, neither is ever called.
    """
    check_function("checkpoint", "save", save)
    check_function("checkpoint", "load", load)
    return current_progress().restore_newest(load, save)


def score(**metrics: float) -> bool:
    """Report the model's metrics, by names of your own; returns whether they meet the job's `target`.

    Call it on every worker with the same numbers, inside the loop of `mlcd.steps`: when the target is met, that loop
    ends after this step, on all workers. Values that are not finite are ignored, with a warning.
    """
    for name, value in metrics.items():
        check_number("score", name, value)
    return current_progress().report(metrics)


def learning_rate(default: float) -> float:
    """The learning rate for this job's batch by the job file's rule; `default` without a rule."""
    check_number("learning_rate", "default", default)
    given = current_progress().env.learning_rate
    return default if given is None else given


def share_of_batch(batch_size: int | None = None) -> int:
    """This worker's share of the global batch (default: the job file's); shares differ by one sample at most.

    Raises ValueError where the batch is unknown, or too small for every worker to have a sample.
    """
    check_count("share_of_batch", "batch_size", batch_size)
    here = current_progress().env
    batch = here.batch if batch_size is None else batch_size
    if batch is None:
        raise ValueError("mlcd.share_of_batch: give batch_size=, the batch of all workers together")
    if batch < here.workers:
        raise ValueError(f"mlcd.share_of_batch: a batch of {batch} cannot be shared by {here.workers} workers")
    return (here.rank + 1) * batch // here.workers - here.rank * batch // here.workers


def _epochs_done(samples: int, loader: object, batch: int) -> int:
    count = _passes(loader)
    return samples // (count * batch) if count else 0


def _passes(loader: object) -> int:
    """Steps of one pass over the loader; 0 if it has no length."""
    length = getattr(loader, "__len__", None)
    try:
        return 0 if length is None else int(length())
    except TypeError:  # a loader over a stream has a __len__ that raises
        return 0


def _tell_epoch(loader: object, epoch: int) -> None:
    for sampler in (getattr(loader, "sampler", None), getattr(loader, "batch_sampler", None)):
        tell = getattr(sampler, "set_epoch", None)
        if tell is not None:
            tell(epoch)
