"""The folders of a run with real nodes: $MLCD_HOME/work/RUN, with its leases, its checkpoint and its outputs."""

import contextlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from mlcd.home import private_folder

CHECKPOINT_PREFIX = "step-"
"""A checkpoint is a folder `step-SAMPLES` that holds mlcd.json, {"samples": N}; it gets this name once complete."""

NOT_COPIED = (".git", ".venv", ".venvs", "__pycache__", "node_modules", ".mypy_cache", ".ruff_cache", ".pytest_cache")
"""Names in a user's folder that no job needs; they are not copied."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """One run's folders, each created when it is needed."""

    home: Path
    run_id: str

    @property
    def root(self) -> Path:
        """The folder that holds everything of the run."""
        return self.home / "work" / self.run_id

    @property
    def outputs(self) -> Path:
        """The outputs fetched from the training."""
        return self.root / "outputs"

    @property
    def checkpoint(self) -> Path:
        """The furthest checkpoint of the training."""
        return self.root / "checkpoint"

    def lease(self, lease_id: str) -> Path:
        """A lease's folder (mlcd.clouds.nodes describes its files)."""
        return self.root / "leases" / lease_id

    def reached_samples(self) -> float:
        """Samples covered by the furthest checkpoint, including those of leases that died with mlcd."""
        for folder in sorted((self.root / "leases").glob("*/checkpoint")):
            self.adopt(folder)
        newest = furthest(self.checkpoint)
        return newest[0] if newest else 0.0

    def adopt(self, folder: Path) -> None:
        """Make the furthest checkpoint in `folder` the run's own, unless the run's own is at least as far.

        The job may be saving there at the same time. On a full disk the checkpoint is moved instead of copied; where
        that fails too, it stays where it is (`has`).
        """
        while not self.has(folder):
            found = furthest(folder)
            if found is None:
                return
            part = self.checkpoint / f"part-{found[1].name}"
            try:
                private_folder(self.checkpoint)
                shutil.rmtree(part, ignore_errors=True)
                shutil.copytree(found[1], part)
                # A job deletes its last checkpoint once a further one is complete: then this copy may be incomplete.
                if furthest(folder) == found:
                    part.replace(self.checkpoint / found[1].name)
            except OSError:
                shutil.rmtree(part, ignore_errors=True)
                if furthest(folder) == found and not _try_move(found[1], self.checkpoint / found[1].name):
                    return
        self._delete_older()

    def has(self, folder: Path) -> bool:
        """Whether the run's own checkpoint is at least as far as the one in `folder`."""
        found, mine = furthest(folder), furthest(self.checkpoint)
        return found is None or (mine is not None and mine[0] >= found[0])

    def _delete_older(self) -> None:
        mine = furthest(self.checkpoint)
        if mine is not None:
            for old in self.checkpoint.iterdir():
                if old.name != mine[1].name:
                    shutil.rmtree(old, ignore_errors=True)

    def copy_checkpoint(self, folder: Path) -> float:
        """Copy the run's checkpoint into a lease's folder; returns its samples, 0 where there is none."""
        private_folder(folder)
        mine = furthest(self.checkpoint)
        if mine is None:
            return 0.0
        shutil.copytree(mine[1], folder / mine[1].name)
        return mine[0]


def furthest(folder: Path) -> tuple[float, Path] | None:
    """(samples, path) of the furthest complete checkpoint in `folder`; None where there is none."""
    found = []
    for path in folder.glob(f"{CHECKPOINT_PREFIX}*/mlcd.json"):
        with contextlib.suppress(OSError, ValueError, KeyError):  # half-written: not a checkpoint
            found.append((float(json.loads(path.read_text())["samples"]), path.parent))
    return max(found, default=None)


def copy_or_move(source: Path, target: Path) -> None:
    """Copy a file or folder of an ended job to `target`; move it where the disk has no room for a copy.

    Raises OSError where both fail.
    """
    private_folder(target.parent)
    try:
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        else:
            shutil.copy2(source, target)
    except OSError:
        if target.is_dir():
            shutil.rmtree(target)
        source.replace(target)


def _try_move(source: Path, target: Path) -> bool:
    try:
        source.replace(target)
    except OSError:
        return False
    return True


def copy_workdir(source: Path | None, target: Path) -> None:
    """Copy the user's folder for one lease, without NOT_COPIED. Raises OSError."""
    if source is None:
        private_folder(target)
        return
    shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns(*NOT_COPIED), dirs_exist_ok=True)
