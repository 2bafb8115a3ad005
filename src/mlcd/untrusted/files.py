"""Files that somebody else wrote: only regular ones, never through a link, never more than a limit, never waiting."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from mlcd.untrusted.copying import check_way
from mlcd.untrusted.text import printable
from mlcd.untrusted.values import Malformed, TooLarge, parse_json

SMALL_FILE_BYTES = 64 * 1024
"""The limit of what mlcd's own protocol puts in one file (exit.json, mlcd.json): those have under 1 KiB."""
READ_BYTES = 4 * 1024 * 1024
"""How much of a growing file is read at once; what is beyond it is read next time."""
LINE_BYTES = 64 * 1024
"""Longer lines are cut here: a progress line has under 1 KiB."""
LAST_LINE_CHARACTERS = 300
"""The last line of a log is cut here where a message quotes it."""
MOST_BEHIND_BYTES = 64 * 1024 * 1024
"""A reader that is further behind skips to the end of the file: what is newest counts, and each read stays bounded."""


@contextmanager
def opened(path: Path, *, below: Path | None = None) -> Iterator[BinaryIO]:
    """The file, open for reading. Raises Malformed unless it is a regular file; FileNotFoundError, OSError.

    A FIFO would block, a device never end, a link lead elsewhere: none of them is opened. With `below`, a folder of
    ours, no folder on the way from there to the file may be a link either.
    """
    if below is not None:
        check_way(path, below=below)
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


def read_bytes(path: Path, *, most_bytes: int = SMALL_FILE_BYTES, below: Path | None = None) -> bytes:
    """The whole file. Raises Malformed where it is larger or not a regular file; FileNotFoundError, OSError."""
    with opened(path, below=below) as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise TooLarge(str(path), f"is larger than {most_bytes:,} bytes")
    return data


def read_json(path: Path, *, most_bytes: int = SMALL_FILE_BYTES, below: Path | None = None) -> Any:
    """The JSON value in a file. Raises Malformed; FileNotFoundError, OSError."""
    return parse_json(read_bytes(path, most_bytes=most_bytes, below=below), str(path))


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


def last_line(path: Path, *, most_characters: int = LAST_LINE_CHARACTERS) -> str:
    """The last line of a log that is not empty, without what a terminal would obey; "" where there is none."""
    lines = (line.strip() for line in reversed(last_lines(path)))
    return printable(next((line for line in lines if line), ""), most_characters=most_characters)


class Tail:
    """Reads the complete lines added to a file since the last read; none while the file does not exist.

    At most READ_BYTES are read at once (`behind` says that there is more), lines are cut at LINE_BYTES, and what is
    more than MOST_BEHIND_BYTES before the end is skipped.

    below            as in `opened`
    may_start_again  whether a file that became shorter is read from its beginning; otherwise it is malformed
    """

    def __init__(self, path: Path, *, below: Path | None = None, may_start_again: bool = False) -> None:
        self.path, self.offset = path, 0
        self.behind = False
        """Whether the last call left something unread."""
        self._below, self._may_start_again = below, may_start_again
        self._in_long_line = False

    def lines(self) -> list[str]:
        """New complete lines, without their line ends. Raises Malformed where the path is no regular file or shrank."""
        self.behind = False
        try:
            with opened(self.path, below=self._below) as file:
                size = os.fstat(file.fileno()).st_size
                if size < self.offset:
                    self._start_again(size)
                if size - self.offset > MOST_BEHIND_BYTES:
                    self.offset, self._in_long_line = size - READ_BYTES, True  # the rest of some line comes first
                file.seek(self.offset)
                data = file.read(READ_BYTES)
        except FileNotFoundError:
            return []
        # A progress bar ends its lines with a carriage return, possibly for an hour.
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if not end and len(data) >= LINE_BYTES:  # one endless line: its beginning counts, the rest is skipped
            end = len(data)
            lines = [] if self._in_long_line else [_text(data)]
            self._in_long_line = True
        else:
            found = data[:end].splitlines()
            if found and self._in_long_line:
                found, self._in_long_line = found[1:], False
            lines = [_text(line) for line in found]
        self.offset += end
        self.behind = len(data) == READ_BYTES and self.offset < size
        return lines

    def _start_again(self, size: int) -> None:
        if not self._may_start_again:
            raise Malformed(str(self.path), f"became shorter: {size:,} bytes after {self.offset:,} were read")
        self.offset, self._in_long_line = 0, False


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
