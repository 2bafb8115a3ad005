"""Files that somebody else wrote: only regular ones, never through a link, never more than a limit, never waiting."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from mlcd.untrusted.values import Malformed, TooLarge, parse_json

SMALL_FILE_BYTES = 64 * 1024
"""The limit of what mlcd's own protocol puts in one file (exit.json, mlcd.json): those have under 1 KiB."""
READ_BYTES = 4 * 1024 * 1024
"""How much of a growing file is read at once; what is beyond it is read next time."""
LINE_BYTES = 64 * 1024
"""Longer lines are cut here: a progress line has under 1 KiB."""


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The file, open for reading. Raises Malformed unless it is a regular file; FileNotFoundError, OSError.

    A FIFO would block, a device never end, a link lead elsewhere: none of them is opened.
    """
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        before = path.lstat()
        if not stat.S_ISREG(before.st_mode):  # before it is opened: opening a device may already do something
            raise Malformed(str(path), f"should be a regular file, is {_kind(before.st_mode)}")
        descriptor = os.open(path, flags)
    except NotADirectoryError as error:
        raise Malformed(str(path), "is in something that should be a folder and is not") from error
    with open(descriptor, "rb") as file:  # noqa: PTH123 - of a descriptor
        mode = os.fstat(file.fileno()).st_mode
        if not stat.S_ISREG(mode):  # replaced meanwhile
            raise Malformed(str(path), f"should be a regular file, is {_kind(mode)}")
        yield file


def read_bytes(path: Path, *, most_bytes: int = SMALL_FILE_BYTES) -> bytes:
    """The whole file. Raises Malformed where it is larger or not a regular file; FileNotFoundError, OSError."""
    with opened(path) as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise TooLarge(str(path), f"is larger than {most_bytes:,} bytes")
    return data


def read_json(path: Path, *, most_bytes: int = SMALL_FILE_BYTES) -> Any:
    """The JSON value in a file. Raises Malformed; FileNotFoundError, OSError."""
    return parse_json(read_bytes(path, most_bytes=most_bytes), str(path))


def last_lines(path: Path, *, most_bytes: int = 20_000) -> list[str]:
    """The lines in the last `most_bytes` of a log; [] where it is missing, unreadable or not a regular file."""
    try:
        with opened(path) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - most_bytes, 0))
            data = file.read(most_bytes)
    except (OSError, Malformed):
        return []
    return data.decode(errors="replace").splitlines()


class Tail:
    """Reads the complete lines added to a file since the last read; none while the file does not exist.

    At most READ_BYTES are read at once (`behind` says that there is more), and lines are cut at LINE_BYTES.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.offset = path, 0
        self.behind = False
        """Whether the last call left something unread."""
        self._in_long_line = False

    def lines(self) -> list[str]:
        """New complete lines, without their line ends. Raises Malformed where the path is no regular file or shrank."""
        try:
            with opened(self.path) as file:
                size = os.fstat(file.fileno()).st_size
                if size < self.offset:
                    raise Malformed(str(self.path), f"became shorter: {size:,} bytes after {self.offset:,} were read")
                file.seek(self.offset)
                data = file.read(READ_BYTES)
        except FileNotFoundError:
            return []
        self.behind = self.offset + len(data) < size
        # A progress bar ends its lines with a carriage return, possibly for an hour.
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if not end and len(data) >= LINE_BYTES:  # one endless line: its beginning counts, the rest is skipped
            lines = [] if self._in_long_line else [_text(data)]
            self.offset += len(data)
            self._in_long_line = True
            return lines
        self.offset += end
        found = data[:end].splitlines()
        if found and self._in_long_line:
            found, self._in_long_line = found[1:], False
        return [_text(line) for line in found]


def _text(line: bytes) -> str:
    return line[:LINE_BYTES].decode(errors="replace")


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFDIR: "a folder",
        stat.S_IFLNK: "a link",
        stat.S_IFIFO: "a FIFO",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    return kinds.get(stat.S_IFMT(mode), "something else")
