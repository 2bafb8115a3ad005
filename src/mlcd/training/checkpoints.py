"""A folder of checkpoints: one folder each, whole or not there.

step-SAMPLES/mlcd.json   {"samples": SAMPLES}, written last
step-SAMPLES/...         what the training saved
.step-SAMPLES.partial/   one that is being written
"""

import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_NAME = re.compile(r"step-(\d+)")
_MARK = "mlcd.json"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One that is whole: `samples` of the training had been done."""

    path: Path
    samples: int


def newest(folder: Path) -> Checkpoint | None:
    """The whole checkpoint with the most samples, or None."""
    found = sorted(_whole(folder), key=lambda checkpoint: checkpoint.samples)
    return found[-1] if found else None


def write(folder: Path, samples: int, save: Callable[[Path], None]) -> Checkpoint:
    """Have `save` fill a new checkpoint; the older ones go only when it is whole.

    Raises whatever `save` raises, OSError where the disk is full; the folder is then as it was.
    """
    final, partial = folder / f"step-{samples}", folder / f".step-{samples}.partial"
    folder.mkdir(parents=True, exist_ok=True)
    older = [checkpoint for checkpoint in _whole(folder) if checkpoint.path != final]
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir()
        save(partial)
        (partial / _MARK).write_text(json.dumps({"samples": samples}), encoding="utf-8")
        _reach_the_disk(partial)
        shutil.rmtree(final, ignore_errors=True)
        partial.rename(final)
    finally:
        shutil.rmtree(partial, ignore_errors=True)  # there only where it did not become whole
    for checkpoint in older:
        shutil.rmtree(checkpoint.path, ignore_errors=True)
    for left in folder.glob(".step-*.partial"):  # of a process that was killed while it saved
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
    # Renamed but empty files after a power cut would look like a whole checkpoint.
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
