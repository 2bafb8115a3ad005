"""The folders of a run with real nodes: $MLCD_HOME/work/RUN, with its leases, its checkpoint and its outputs."""

import os
import shutil
import stat
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from mlcd.clouds.reading import MOST_SAMPLES
from mlcd.home import private_folder
from mlcd.untrusted import Fields, Malformed, NotJson, check_tree, check_way, copy_tree, delete_tree, inside, read_json

CHECKPOINT_PREFIX = "step-"
"""A checkpoint is a folder `step-SAMPLES` that holds mlcd.json, {"samples": N}; it gets this name once complete."""

NOT_COPIED = (".git", ".venv", ".venvs", "__pycache__", "node_modules", ".mypy_cache", ".ruff_cache", ".pytest_cache")
"""Names in a user's folder that no job needs; they are not copied."""

MOST_CHECKPOINTS = 1000
"""Checkpoints in one folder; mlcd.checkpoint keeps one. A folder with more is not read."""
COPY_TRIES = 10
"""How often a checkpoint is copied anew because the job has saved another one meanwhile."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """One run's folders, each created when it is needed.

    Jobs write in them. What they wrote is read with limits and copied without following links; what is malformed is
    left where it is, never taken, and reported to `warn`.

    adopting  held while the run's checkpoint is read or replaced; one for all workspaces of a run
    """

    home: Path
    run_id: str
    warn: Callable[[str], None] = lambda _text: None
    adopting: AbstractContextManager[object] = field(default_factory=threading.RLock, repr=False, compare=False)

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
        with self.adopting:
            for folder in sorted((self.root / "leases").glob("*/checkpoint")):
                self.adopt(folder)
            mine = self._mine()
        return mine[0] if mine else 0.0

    def adopt(self, folder: Path) -> tuple[Malformed, ...]:
        """Make the furthest checkpoint in `folder` the run's own, unless the run's own is at least as far.

        Returns what is malformed there, without what is only half-written. The job may be saving there at the same
        time. On a full disk the checkpoint is moved instead of copied; where that fails too, it stays where it is
        (`has`).
        """
        problems: dict[str, Malformed] = {}
        with self.adopting:
            for _ in range(COPY_TRIES):
                there = checkpoints_in(folder, below=self.home)
                problems |= {str(problem): problem for problem in there.problems}
                mine = self._mine()
                if there.furthest is None or (mine is not None and mine[0] >= there.furthest[0]):
                    break
                if not self._take(folder, there.furthest):
                    break
            for text in problems:
                self.warn(f"{text}; this checkpoint is not used")
            self._delete_older()
        return tuple(problem for problem in problems.values() if not isinstance(problem, NotJson))

    def _take(self, folder: Path, found: tuple[float, Path]) -> bool:
        """Copy or move a checkpoint here; False where neither is possible. Nothing is taken if it changes meanwhile."""
        source, target = found[1], self.checkpoint / found[1].name
        part = target.with_name(f"part-{target.name}")
        delete_tree(part, below=self.home)
        try:
            check_way(part, below=self.home)
            private_folder(self.checkpoint)
            copy_tree(source, part)
            # A job deletes its last checkpoint once a further one is complete: then this copy may be incomplete.
            if furthest(folder, below=self.home) == found:
                delete_tree(target, below=self.home)  # an earlier one of the same name
                part.replace(target)
        except Malformed:
            delete_tree(part, below=self.home)  # changed meanwhile, or the way here is no longer ours
        except OSError:
            delete_tree(part, below=self.home)
            if furthest(folder, below=self.home) == found:
                return _try_move(source, target)
        return True

    def has(self, folder: Path) -> bool:
        """Whether the run's own checkpoint is at least as far as the one in `folder`, which has nothing malformed."""
        there, mine = checkpoints_in(folder, below=self.home), self._mine()
        if there.problems:
            return False
        return there.furthest is None or (mine is not None and mine[0] >= there.furthest[0])

    def _mine(self) -> tuple[float, Path] | None:
        there = checkpoints_in(self.checkpoint, below=self.home)
        for problem in there.problems:
            self.warn(f"{problem}; this checkpoint is not used")
        return there.furthest

    def _delete_older(self) -> None:
        mine = self._mine()
        if mine is not None:
            for old in self.checkpoint.iterdir():
                if old.name != mine[1].name:
                    delete_tree(old, below=self.home)

    def copy_checkpoint(self, folder: Path) -> float:
        """Copy the run's checkpoint into a lease's folder; its samples, 0 where there is none. Raises OSError."""
        private_folder(folder)
        with self.adopting:
            mine = self._mine()
            if mine is None:
                return 0.0
            copy_tree(mine[1], folder / mine[1].name)
        return mine[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """The complete checkpoints of a folder: (samples, path) of the furthest, and what is malformed."""

    furthest: tuple[float, Path] | None = None
    problems: tuple[Malformed, ...] = ()


def checkpoints_in(folder: Path, *, below: Path) -> Checkpoints:
    """The checkpoints that a job left in `folder`; no link may be on the way there from `below`."""
    found: list[tuple[float, Path]] = []
    problems: list[Malformed] = []
    try:
        names = _names(folder, below)
    except FileNotFoundError:
        return Checkpoints()
    except Malformed as problem:
        return Checkpoints(problems=(problem,))
    except OSError as error:
        return Checkpoints(problems=(Malformed(str(folder), f"cannot be read: {error.strerror or error}"),))
    for name in names:
        path = folder / name
        try:
            fields = Fields(read_json(path / "mlcd.json", below=below), str(path / "mlcd.json"))
            samples = fields.number("samples", least=0, most=MOST_SAMPLES)
            check_tree(path)
            found.append((samples, path))
        except FileNotFoundError:  # not complete, or just deleted: not a checkpoint
            continue
        except Malformed as problem:
            problems.append(problem)
        except OSError as error:
            problems.append(Malformed(str(path), f"cannot be read: {error.strerror or error}"))
    return Checkpoints(furthest=max(found, default=None), problems=tuple(problems))


def furthest(folder: Path, *, below: Path) -> tuple[float, Path] | None:
    """(samples, path) of the furthest complete checkpoint in `folder`; None where there is none."""
    return checkpoints_in(folder, below=below).furthest


def _names(folder: Path, below: Path) -> list[str]:
    """Names of what could be checkpoints."""
    check_way(folder / "step", below=below)
    if not stat.S_ISDIR(folder.lstat().st_mode):
        raise Malformed(str(folder), "should be a folder and is not")
    names = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(CHECKPOINT_PREFIX):
                names.append(entry.name)
            if len(names) > MOST_CHECKPOINTS:
                raise Malformed(str(folder), f"has more than {MOST_CHECKPOINTS:,} checkpoints")
    return names


def copy_or_move(source: Path, target: Path, *, within: Path) -> None:
    """Copy a file or folder of an ended job to `target`; move it where the disk has no room for a copy.

    Links to files that are elsewhere in `within` are copied as files. Raises Malformed, with nothing taken, for links
    out of it and for what is neither file nor folder; OSError where both fail.
    """
    real = Path(os.path.realpath(inside(within, str(source.relative_to(within)))))
    check_tree(real, within=within)
    private_folder(target.parent)
    if target.is_symlink() or target.is_dir() != real.is_dir():
        delete_tree(target, below=target.parent)
    try:
        copy_tree(real, target, within=within)
    except Malformed:
        delete_tree(target, below=target.parent)
        raise
    except OSError:
        check_tree(real)
        delete_tree(target, below=target.parent)
        real.replace(target)


def _try_move(source: Path, target: Path) -> bool:
    try:
        source.replace(target)
    except OSError:
        return False
    return True


def files_at(path: Path) -> dict[str, tuple[int, int]]:
    """The file at `path`, or those in that folder, each with its size and when it was written; links as they are."""
    found = {}
    below = (Path(folder) / name for folder, _, names in os.walk(path) for name in names)
    for each in below if path.is_dir() and not path.is_symlink() else [path]:
        with suppress(OSError):
            seen = each.lstat()
            found[str(each)] = (seen.st_size, seen.st_mtime_ns)
    return found


def copy_workdir(source: Path | None, target: Path) -> None:
    """Copy the user's folder for one lease, without NOT_COPIED and without mlcd's own state. Raises OSError."""
    if source is None:
        private_folder(target)
        return
    by_name, inside = shutil.ignore_patterns(*NOT_COPIED), target.resolve()

    def ignored(folder: str, names: list[str]) -> set[str]:
        here = Path(folder).resolve()
        return by_name(folder, names) | {name for name in names if _holds_state(here / name, inside)}

    shutil.copytree(source, target, symlinks=True, ignore=ignored, dirs_exist_ok=True)


def link_or_copy(source: Path, target: Path) -> None:
    """Put a file or folder at `target`, files as hard links where the disk has them.

    For what only reads: a write would change the source. Links within a folder stay links. Those to files of the
    repository that it is a version of, in Hugging Face's cache, become these files. Raises Malformed for any other: a
    downloaded folder must not take files of this machine along; OSError.
    """
    if source.is_dir():
        source = source.resolve()
        copy_tree(source, target, within=_repository_of(source), copy_file=_link)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    _link(source.resolve(), target)


def _repository_of(folder: Path) -> Path:
    """The folder whose files a model in `folder` may consist of: in Hugging Face's cache, links lead to `blobs`."""
    cached = folder.parent.name == "snapshots" and (folder.parents[1] / "blobs").is_dir()
    return folder.parents[1] / "blobs" if cached else folder


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another disk
        shutil.copy2(source, target)


def _holds_state(folder: Path, lease: Path) -> bool:
    """Whether `folder` is the $MLCD_HOME that the lease is in, its folder `work`, or the lease: no part of a job.

    A copy of it would contain itself, and so on without end.
    """
    if folder == lease:
        return True
    return folder in lease.parents and "work" in (folder.name, lease.relative_to(folder).parts[0])
