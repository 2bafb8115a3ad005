"""Folders that somebody else filled: copied and deleted without following links out of them."""

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from mlcd.untrusted.values import Malformed

MOST_FOLDERS_DEEP = 100
"""Levels of folders that are copied. Deeper ones are made by mistake or to break what walks them: Python's own copying
and deleting recurse, and give up at about 500."""
_COPY_BYTES = 1024 * 1024

Ignore = Callable[[str, list[str]], set[str]]


PART = ".mlcd-part"
"""The name of a file that is being copied, in the folder where it will be."""


def copy_tree(
    source: Path,
    target: Path,
    *,
    ignore: Ignore | None = None,
    within: Path | None = None,
    copy_file: Callable[[Path, Path], None] | None = None,
) -> None:
    """Copy a file or a folder to `target`, over what is there. Holes of sparse files stay holes.

    copy_file  how a file is copied, where it is not read and written

    Relative links that stay within `source` are copied as links; links to files that are elsewhere in `within`
    (default: nowhere) as the files. Raises Malformed for any other link, for what is neither file, folder nor link
    (FIFOs, sockets, devices) and for folders too deep: before anything is copied, unless the folder changes meanwhile;
    OSError. Where somebody changes the folder meanwhile, links are not followed either.
    """
    check_tree(source, ignore=ignore, within=within)
    copy_one = copy_file or _copy_file
    target.parent.mkdir(parents=True, exist_ok=True)
    for path, mode in _walk(source, ignore):
        copy = target / path.relative_to(source)
        if stat.S_ISDIR(mode):
            copy.mkdir(exist_ok=True)
            continue
        if not stat.S_ISLNK(mode):
            copy_one(path, copy)
        elif _is_link_within(path, source):
            copy.unlink(missing_ok=True)
            copy.symlink_to(path.readlink())
        else:
            copy_one(_file_of_link(path, source, within), copy)
    check_tree(target)


def check_tree(source: Path, *, ignore: Ignore | None = None, within: Path | None = None) -> None:
    """Raises Malformed where `copy_tree` would; OSError."""
    for path, mode in _walk(source, ignore):
        if stat.S_ISLNK(mode):
            if not _is_link_within(path, source):
                _file_of_link(path, source, within)
        elif not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
            raise Malformed(str(path), "is neither a file nor a folder")


def delete_tree(path: Path, *, below: Path) -> None:
    """Delete a file or a folder, of any depth, as far as that is possible; never what a link leads to.

    Nothing is deleted where `path` is reached through a link below `below`.
    """
    with suppress(OSError, Malformed):
        check_way(path, below=below)
        if stat.S_ISDIR(path.lstat().st_mode):
            _delete_folder(path)
        else:
            path.unlink()


def inside(root: Path, name: str) -> Path:
    """The path `name` under `root`. Raises Malformed where it, or a folder on the way to it, leads out of `root`."""
    path = root / name
    if not _is_within(path, root):
        raise Malformed(str(path), f"is not within {root}")
    return path


def check_way(path: Path, *, below: Path) -> None:
    """Raises Malformed where `path` is reached through a link; links on the way to `below`, which is ours, may be."""
    way = path.parent.relative_to(below)
    if os.path.realpath(path.parent) != os.path.normpath(Path(os.path.realpath(below)) / way):
        raise Malformed(str(path), "is reached through a link")


def _walk(source: Path, ignore: Ignore | None) -> Iterator[tuple[Path, int]]:
    """(path, mode) of `source` and of everything in it, a folder before its content. Follows no link."""
    todo = [(source, 0)]
    while todo:
        path, depth = todo.pop()
        mode = path.lstat().st_mode
        yield path, mode
        if stat.S_ISDIR(mode):
            if depth >= MOST_FOLDERS_DEEP:
                raise Malformed(str(source), f"has folders more than {MOST_FOLDERS_DEEP} levels deep")
            names = sorted(child.name for child in path.iterdir())
            ignored = ignore(str(path), names) if ignore else set()
            todo += [(path / name, depth + 1) for name in names if name not in ignored]


def _is_link_within(link: Path, source: Path) -> bool:
    """Whether the link stays within the folder `source`; an absolute one never does: it leads elsewhere once copied."""
    return link != source and not link.readlink().is_absolute() and _is_within(link, source)


def _file_of_link(link: Path, source: Path, within: Path | None) -> Path:
    """The regular file in `within` that a link leads to. Raises Malformed where there is none."""
    real = Path(os.path.realpath(link))
    if within is None or not _is_within(link, within) or not real.is_file():
        raise Malformed(str(link), f"is a link out of {source if within is None else within}: {link.readlink()}")
    return real


def _is_within(path: Path, root: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root))


def _copy_file(source: Path, target: Path) -> None:
    """Under its name is a whole copy or none, also where this process is killed."""
    part = target.with_name(PART)
    part.unlink(missing_ok=True)  # of a copy that was cut off
    try:
        _copy_into(source, part)
        part.replace(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _copy_into(source: Path, target: Path) -> None:
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with open(os.open(source, flags), "rb") as read, target.open("xb") as written:  # noqa: PTH123 - of a descriptor
        found = os.fstat(read.fileno())
        if not stat.S_ISREG(found.st_mode):  # replaced meanwhile
            raise Malformed(str(source), "is neither a file nor a folder")
        if hasattr(os, "SEEK_DATA"):
            _copy_data(read.fileno(), written.fileno(), found.st_size)
        else:
            shutil.copyfileobj(read, written, _COPY_BYTES)
    target.chmod(stat.S_IMODE(found.st_mode) & 0o777 | 0o600)
    os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))


def _copy_data(read: int, written: int, size: int) -> None:
    """Copy the first `size` bytes without the holes: an empty file of a terabyte costs nothing here either."""
    at = 0
    while at < size:
        try:
            at = os.lseek(read, at, os.SEEK_DATA)
        except OSError:  # no data after this
            break
        end = min(os.lseek(read, at, os.SEEK_HOLE), size)
        os.lseek(read, at, os.SEEK_SET)
        os.lseek(written, at, os.SEEK_SET)
        while at < end and (data := os.read(read, min(_COPY_BYTES, end - at))):
            at += len(data)
            while data:
                data = data[os.write(written, data) :]
        if at < end:  # it became shorter meanwhile
            break
    os.ftruncate(written, size)


def _delete_folder(folder: Path) -> None:
    """Delete a folder from above: inner folders are moved up first, so that no depth is too deep."""
    todo, moved = [folder], 0
    while todo:
        this = todo[-1]
        this.chmod(0o700)
        inner = []
        with os.scandir(this) as entries:
            for entry in entries:
                path = Path(entry.path)
                if not entry.is_dir(follow_symlinks=False):
                    path.unlink()
                elif this != folder:
                    path.chmod(0o700)  # a folder that cannot be written cannot be moved
                    moved += 1
                    inner.append(path.rename(folder / f"{moved}.deleted-{os.getpid()}"))
                else:
                    inner.append(path)
        if inner:
            todo += inner
        else:
            this.rmdir()
            todo.pop()
