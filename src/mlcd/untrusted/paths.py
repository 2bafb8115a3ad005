"""Paths that somebody wrote in a file or on a command line."""

import os
from pathlib import Path

from mlcd.untrusted.files import read_bytes
from mlcd.untrusted.values import Malformed

MOST_PATH_BYTES = 4_000
"""Linux takes 4,096 for a path, with the folders before it."""
MOST_NAME_BYTES = 255


def expanded(text: str) -> Path:
    """The path that `text` names, with `~` and `~user` replaced. Whether it exists is not looked at.

    Raises Malformed for a user that does not exist and for what no system accepts as a path; its `source` is "".
    """
    try:
        encoded = os.fsencode(text)
    except UnicodeEncodeError as error:
        raise Malformed("", "is not a path: has half of a surrogate pair") from error
    if b"\0" in encoded:
        raise Malformed("", "is not a path: has a NUL character")
    if len(encoded) > MOST_PATH_BYTES or any(len(name) > MOST_NAME_BYTES for name in encoded.split(b"/")):
        raise Malformed("", "is too long for a path")
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise Malformed("", f"there is no user {text.partition('/')[0].removeprefix('~')!r}") from error


def read_named(path: Path, *, most_bytes: int) -> bytes:
    """The content of a file that the user named; links are followed, which `read_bytes` does not.

    Raises Malformed where it is larger or not a regular file; FileNotFoundError, OSError.
    """
    expanded(str(path))
    try:
        found = path.resolve(strict=True)
    except RuntimeError as error:
        raise Malformed(str(path), "is a link to itself") from error
    try:
        return read_bytes(found, most_bytes=most_bytes)
    except Malformed as error:
        raise type(error)(str(path), error.problem) from error
