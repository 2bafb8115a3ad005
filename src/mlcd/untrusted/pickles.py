"""Files in which PyTorch keeps Python objects: read as tensors and plain values, whatever else they hold."""

import os
import struct
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import BinaryIO

from mlcd.untrusted.values import Malformed

_FORCE, _FORCE_NOT = "TORCH_FORCE_WEIGHTS_ONLY_LOAD", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"
"""PyTorch's own variables, which it reads whenever it loads: the first overrules what its callers ask for."""

_NO_ARCHIVE = (
    zipfile.BadZipFile,
    ValueError,
    LookupError,
    ArithmeticError,
    EOFError,
    NotImplementedError,
    struct.error,
)
"""What Python raises about an archive that it cannot read."""

MOST_ENTRIES = 100_000
_MOST_INDEX_BYTES = 16 * 1024 * 1024
"""Of an archive's index: Python reads all of it, and makes 800 bytes of an entry of 50."""
_MOST_EXPANSION = 4
"""PyTorch writes archives without compression: one that unpacks to so many times its size is made to fill memory."""
_SMALL_BYTES = 16 * 1024 * 1024
"""An archive that unpacks to less is harmless, however it is compressed."""


@contextmanager
def only_weights(path: Path, how: str, *, passed: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """While this lasts, nothing that PyTorch unpickles runs code: an object that would is an error.

    `torch.export.load` unpickles everything where reading weights alone fails: a file could run any command. It also
    loads compiled libraries that come with the file. Raises Malformed for both, for an archive that would fill the
    memory, and for whatever PyTorch raises about a file that it cannot read by `how`.

    passed  the caller's own errors
    """
    own: tuple[type[Exception], ...] = (Malformed, *passed)
    before = {name: os.environ.get(name) for name in (_FORCE, _FORCE_NOT)}
    os.environ[_FORCE] = "1"
    os.environ.pop(_FORCE_NOT, None)
    try:
        if zipfile.is_zipfile(path) and any(map(_is_native, entries(path))):
            raise UnpicklingError
        yield
    except UnpicklingError as error:
        problem = "holds Python objects besides tensors or compiled libraries, which may be any code: not read"
        raise Malformed(str(path), problem) from error
    except own:
        raise
    except Exception as error:  # PyTorch has errors of its own for files, which are nothing but Exceptions
        first = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise Malformed(str(path), f"not a file that {how} reads: {first}") from error
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def entries(path: Path) -> list[str]:
    """The names in an archive. Raises Malformed for what is none, or would fill the memory; OSError."""
    try:
        with path.open("rb") as file, zipfile.ZipFile(_Limited(file)) as archive:
            found = archive.infolist()
    except _TooMany as error:
        raise Malformed(str(path), f"is an archive of more files than {MOST_ENTRIES:,}") from error
    except _NO_ARCHIVE as error:
        raise Malformed(str(path), "not an archive") from error
    unpacked, most = sum(each.file_size for each in found), _MOST_EXPANSION * path.stat().st_size
    if len(found) > MOST_ENTRIES:
        raise Malformed(str(path), f"is an archive of {len(found):,} files, and may have {MOST_ENTRIES:,}")
    if unpacked > max(most, _SMALL_BYTES):
        raise Malformed(str(path), f"would unpack to {unpacked / 2**30:,.1f} GiB: it is compressed, and no model is")
    return [each.filename for each in found]


class _TooMany(Exception):
    """The index of an archive is too large to be read."""


class _Limited:
    """A file of which no more than an index may have is read at once: `zipfile` reads the whole index in one go."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.seekable, self.seek, self.tell, self.close = file.seekable, file.seek, file.tell, file.close

    def read(self, size: int = -1) -> bytes:
        """See io.RawIOBase. Raises _TooMany."""
        data = self._file.read(min(size, _MOST_INDEX_BYTES + 1) if size >= 0 else _MOST_INDEX_BYTES + 1)
        if len(data) > _MOST_INDEX_BYTES:
            raise _TooMany
        return data


def _is_native(name: str) -> bool:
    return "aotinductor/" in name or name.endswith((".so", ".dylib", ".dll", ".pyd", ".o"))
