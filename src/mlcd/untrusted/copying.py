"""Folders that somebody else filled, copied without following links out of them."""

import shutil
import stat
from collections.abc import Callable
from pathlib import Path

from mlcd.untrusted.values import Malformed


def copy_tree(
    source: Path,
    target: Path,
    *,
    ignore: Callable[[str, list[str]], set[str]] | None = None,
    within: Path | None = None,
) -> None:
    """Copy a file or a folder to `target`. Links that stay within `within` (default: `source`) are copied as links.

    Raises Malformed, before anything is copied, for a link that leads out of it and for what is neither file, folder
    nor link (FIFOs, sockets, devices); OSError.
    """
    root = within or (source if source.is_dir() and not source.is_symlink() else source.parent)
    check_tree(source, within=root, ignore=ignore)
    if source.is_symlink() or not source.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target, follow_symlinks=False)
    else:
        shutil.copytree(source, target, symlinks=True, ignore=ignore, dirs_exist_ok=True)


def check_tree(
    source: Path, *, within: Path | None = None, ignore: Callable[[str, list[str]], set[str]] | None = None
) -> None:
    """Raises Malformed where `source` contains, or is, a link out of `within` or no file, folder or link; OSError."""
    root = within or source
    todo = [source]
    while todo:
        path = todo.pop()
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            if not _stays_within(path, root):
                raise Malformed(str(path), f"is a link out of {root}: {path.readlink()}")
        elif stat.S_ISDIR(mode):
            names = sorted(child.name for child in path.iterdir())
            ignored = ignore(str(path), names) if ignore else set()
            todo += [path / name for name in names if name not in ignored]
        elif not stat.S_ISREG(mode):
            raise Malformed(str(path), "is neither a file nor a folder")


def inside(root: Path, name: str) -> Path:
    """The path `name` under `root`. Raises Malformed where it, or a folder on the way to it, leads out of `root`."""
    path = root / name
    if not _stays_within(path, root):
        raise Malformed(str(path), f"is not within {root}")
    return path


def _stays_within(path: Path, root: Path) -> bool:
    """Whether what `path` leads to is within `root`; an absolute link never is: it leads elsewhere once copied."""
    if path.is_symlink() and path.readlink().is_absolute():
        return False
    return path.resolve().is_relative_to(root.resolve())
