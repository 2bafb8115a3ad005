"""A folder of checkpoints: one folder each, complete or absent.

step-SAMPLES/mlcd.json   {"samples": SAMPLES}, written last; `epoch` and `epoch_samples` too, where mlcd.epochs is used
step-SAMPLES/...         the files that the training saved
.step-SAMPLES.partial/   one that is being written
"""

import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

_NAME = re.compile(r"step-(\d+)")
_MARK = "mlcd.json"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint, saved after `samples` of the training.

    epoch          the place of the epoch in which it was saved; None where epochs have no numbers
    epoch_samples  samples of that epoch
    """

    path: Path
    samples: int
    epoch: int | None = None
    epoch_samples: int = 0


def newest(folder: Path) -> Checkpoint | None:
    """The complete checkpoint with the most samples, or None."""
    found = sorted(_whole(folder), key=lambda checkpoint: checkpoint.samples)
    return _with_epoch(found[-1]) if found else None


def _with_epoch(found: Checkpoint) -> Checkpoint:
    try:
        mark = json.loads((found.path / _MARK).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return found
    epoch, samples = (mark.get(name) if isinstance(mark, dict) else None for name in ("epoch", "epoch_samples"))
    if type(epoch) is int and type(samples) is int and epoch >= 0 and samples >= 0:
        return replace(found, epoch=epoch, epoch_samples=samples)
    return found


def write(folder: Path, samples: int, save: Callable[[Path], None], **place: int) -> Checkpoint:
    """Let `save` fill a new checkpoint; older ones are deleted only when it is complete.

    place  `epoch` and `epoch_samples`, where epochs have numbers

    Raises whatever `save` raises, OSError where the disk is full; the folder is then unchanged.
    """
    final, partial = folder / f"step-{samples}", folder / f".step-{samples}.partial"
    folder.mkdir(parents=True, exist_ok=True)
    older = [checkpoint for checkpoint in _whole(folder) if checkpoint.path != final]
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir()
        save(partial)
        (partial / _MARK).write_text(json.dumps({"samples": samples, **place}), encoding="utf-8")
        _reach_the_disk(partial)
        shutil.rmtree(final, ignore_errors=True)
        partial.rename(final)
    finally:
        shutil.rmtree(partial, ignore_errors=True)  # exists only if the checkpoint is incomplete
    for checkpoint in older:
        shutil.rmtree(checkpoint.path, ignore_errors=True)
    for left in folder.glob(".step-*.partial"):  # of a process that was killed while saving
        shutil.rmtree(left, ignore_errors=True)
    return Checkpoint(final, samples)


def _whole(folder: Path) -> list[Checkpoint]:
    if not folder.is_dir():
        return []
    found = []
    for path in folder.iterdir():
        name = _NAME.fullmatch(path.name)
        if name and (path / _MARK).is_file():
            found.append(Checkpoint(path, int(name[1])))
    return found


def _reach_the_disk(folder: Path) -> None:
    # Without it, a power cut could leave renamed but empty files that look like a complete checkpoint.
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
