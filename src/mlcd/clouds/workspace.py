"""The folders of a run with real nodes: $MLCD_HOME/work/RUN, with its leases, its checkpoint and its outputs."""

import contextlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path

CHECKPOINT = "step-"
"""A checkpoint is a folder `step-SAMPLES` with mlcd.json in it: {"samples": N}; it is renamed once it is whole."""

LEFT_BEHIND = (".git", ".venv", ".venvs", "__pycache__", "node_modules", ".mypy_cache", ".ruff_cache", ".pytest_cache")
"""What of a user's folder no job needs."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """One run's folders. All of them are made when they are needed."""

    home: Path
    run_id: str

    @property
    def root(self) -> Path:
        """Where everything of the run lies."""
        return self.home / "work" / self.run_id

    @property
    def outputs(self) -> Path:
        """What the training was asked to bring home."""
        return self.root / "outputs"

    @property
    def checkpoint(self) -> Path:
        """The furthest checkpoint of the training."""
        return self.root / "checkpoint"

    def lease(self, lease_id: str) -> Path:
        """A lease's folder (mlcd.clouds.nodes says what is in it)."""
        return self.root / "leases" / lease_id

    def reached_samples(self) -> float:
        """How far the training is by its furthest checkpoint, those of leases that died with mlcd included."""
        for folder in sorted((self.root / "leases").glob("*/checkpoint")):
            self.adopt(folder)
        newest = furthest(self.checkpoint)
        return newest[0] if newest else 0.0

    def adopt(self, folder: Path) -> None:
        """Make the furthest checkpoint in `folder` the run's own, unless that is as far already.

        The job may be saving there meanwhile. On a full disk the checkpoint is moved instead of copied; where that
        cannot be done either, it stays where it is (`has`).
        """
        while not self.has(folder):
            found = furthest(folder)
            if found is None:
                return
            part = self.checkpoint / f"part-{found[1].name}"
            try:
                self.checkpoint.mkdir(parents=True, exist_ok=True)
                shutil.rmtree(part, ignore_errors=True)
                shutil.copytree(found[1], part)
                # A job takes its last checkpoint away once a further one is whole: then this copy may lack something.
                if furthest(folder) == found:
                    part.replace(self.checkpoint / found[1].name)
            except OSError:
                shutil.rmtree(part, ignore_errors=True)
                if furthest(folder) == found and not _moved(found[1], self.checkpoint / found[1].name):
                    return
        self._forget_older()

    def has(self, folder: Path) -> bool:
        """Whether the run's own checkpoint is as far as that in `folder`."""
        found, mine = furthest(folder), furthest(self.checkpoint)
        return found is None or (mine is not None and mine[0] >= found[0])

    def _forget_older(self) -> None:
        mine = furthest(self.checkpoint)
        if mine is not None:
            for old in self.checkpoint.iterdir():
                if old.name != mine[1].name:
                    shutil.rmtree(old, ignore_errors=True)

    def lend_checkpoint(self, folder: Path) -> float:
        """Copy the run's checkpoint into a lease's folder; how far it is."""
        folder.mkdir(parents=True, exist_ok=True)
        mine = furthest(self.checkpoint)
        if mine is None:
            return 0.0
        shutil.copytree(mine[1], folder / mine[1].name)
        return mine[0]


def furthest(folder: Path) -> tuple[float, Path] | None:
    """(samples, path) of the furthest whole checkpoint in `folder`."""
    found = []
    for path in folder.glob(f"{CHECKPOINT}*/mlcd.json"):
        with contextlib.suppress(OSError, ValueError, KeyError):  # half-written: not a checkpoint
            found.append((float(json.loads(path.read_text())["samples"]), path.parent))
    return max(found, default=None)


def bring(source: Path, target: Path) -> None:
    """A file or folder of a job that has ended, to `target`: moved where the disk has no room for a copy.

    Raises OSError where neither can be done.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        else:
            shutil.copy2(source, target)
    except OSError:
        if target.is_dir():
            shutil.rmtree(target)
        source.replace(target)


def _moved(source: Path, target: Path) -> bool:
    try:
        source.replace(target)
    except OSError:
        return False
    return True


def copy_workdir(source: Path | None, target: Path) -> None:
    """A copy of the user's folder for one lease, without what no job needs. Raises OSError."""
    if source is None:
        target.mkdir(parents=True, exist_ok=True)
        return
    shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_BEHIND), dirs_exist_ok=True)
