"""The files beside an ONNX model that hold its weights, where none of them leads out of the model's folder.

A model names these files itself. A hostile one names others: what it reads as weights, or what is copied with it to
nodes, would be any file of this account. The names are found without any library, in every part of the file that can
hold a tensor, because what checks a model must not depend on what a node has installed.
"""

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from mlcd.untrusted.paths import expanded
from mlcd.untrusted.values import Malformed

PARTS: Mapping[str, Mapping[int, str]] = {
    "ModelProto": {7: "GraphProto", 20: "TrainingInfoProto", 25: "FunctionProto"},
    "TrainingInfoProto": {1: "GraphProto", 2: "GraphProto"},
    "FunctionProto": {7: "NodeProto", 11: "AttributeProto"},
    "GraphProto": {1: "NodeProto", 5: "TensorProto", 15: "SparseTensorProto"},
    "NodeProto": {5: "AttributeProto"},
    "AttributeProto": {
        5: "TensorProto",
        6: "GraphProto",
        10: "TensorProto",
        11: "GraphProto",
        22: "SparseTensorProto",
        23: "SparseTensorProto",
    },
    "SparseTensorProto": {1: "TensorProto", 2: "TensorProto"},
}
"""Messages of onnx.proto that can hold a tensor -> by number of a field, the message in it that can."""
EXTERNAL_DATA, DATA_LOCATION = 13, 14
"""Fields of a TensorProto: where its numbers are, as keys and values, and whether they are there."""
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_MOST_NESTED = 200
"""Messages in messages; Protocol Buffers give up at 100."""
_MOST_ENTRY_BYTES = 8_192
_DAMAGED = "not an ONNX model, or a damaged one; export the model again"
_AGAIN = "save the model again with its weights in a file beside it"


def weights_beside(path: Path) -> list[PurePosixPath]:
    """The files with a model's weights besides the model's own, relative to its folder.

    Each is a regular file below that folder, has no other name elsewhere (hard links), and is not hidden. It may be a
    link within the folder, or within the one where a link to the model leads: caches of downloads are made of both.
    Raises Malformed for any other file, for one that is missing and for what is no ONNX file; OSError.
    """
    names = sorted(set(_locations(path)))
    for name in names:
        _check(path, name)
    return [PurePosixPath(name) for name in names]


def _check(path: Path, name: str) -> None:
    """Raises Malformed where the file that holds a model's weights may be one that has nothing to do with it."""
    told = f"its weights are said to be in {name[:200]!r}"
    try:
        given = expanded(name)
    except Malformed as error:
        raise Malformed(str(path), f"{told}, which {error.problem}; {_AGAIN}") from error
    if not name or not name.isprintable() or given.is_absolute() or name.startswith("~") or ".." in given.parts:
        raise Malformed(str(path), f"{told}, which is not a file in the model's folder: not read; {_AGAIN}")
    real = Path(os.path.realpath(path.parent / name))
    folders = [Path(os.path.realpath(path.parent)), Path(os.path.realpath(path)).parent]
    folder = next((each for each in folders if real.is_relative_to(each)), None)
    if folder is None:
        raise Malformed(str(path), f"{told}, a link out of the model's folder: not read; {_AGAIN}")
    if any(part.startswith(".") for part in real.relative_to(folder).parts):
        raise Malformed(str(path), f"{told}, a hidden file: not read; {_AGAIN}")
    try:
        found = real.stat()
    except FileNotFoundError as error:
        raise Malformed(str(path), f"{told}, which is missing; copy that file too") from error
    if not stat.S_ISREG(found.st_mode):
        raise Malformed(str(path), f"{told}, which is no regular file: not read; {_AGAIN}")
    if found.st_nlink != 1:
        problem = "which has another name elsewhere (a hard link): not read; replace it by a copy of it"
        raise Malformed(str(path), f"{told}, {problem}")


def _locations(path: Path) -> Iterator[str]:
    """What each tensor of a model says of where its numbers are, if they are not in the model's own file."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        todo = [("ModelProto", size)]
        while todo:
            message, end = todo[-1]
            if file.tell() == end:
                todo.pop()
                continue
            number, kind = _tag(file, path)
            if kind != _LENGTH:
                _skip(file, path, kind, end)
                continue
            within = _end(file, path, end)
            inner = PARTS[message].get(number)
            if inner == "TensorProto":
                yield from _locations_of_tensor(file, path, within)
            elif inner is None:
                file.seek(within)
            else:
                todo.append((inner, within))
                if len(todo) > _MOST_NESTED:
                    raise Malformed(str(path), _DAMAGED)


def _locations_of_tensor(file: BinaryIO, path: Path, end: int) -> list[str]:
    found, elsewhere = [], False
    while file.tell() != end:
        number, kind = _tag(file, path)
        if kind == _LENGTH:
            within = _end(file, path, end)
            if number == EXTERNAL_DATA:
                key, value = _entry(file, path, within)
                found += [value] if key == b"location" else []
            file.seek(within)
        elif number == DATA_LOCATION and kind == _VARINT:
            elsewhere = bool(_varint(file, path)) or elsewhere
        else:
            _skip(file, path, kind, end)
    if not elsewhere:
        return []
    if not found:
        raise Malformed(str(path), f"does not say where its weights are; {_AGAIN}")
    try:
        return [value.decode() for value in found]
    except UnicodeDecodeError as error:
        raise Malformed(str(path), f"says where its weights are in no UTF-8; {_AGAIN}") from error


def _entry(file: BinaryIO, path: Path, end: int) -> tuple[bytes, bytes]:
    """(key, value) of a StringStringEntryProto: fields 1 and 2. A field that is given twice counts as it was last."""
    if end - file.tell() > _MOST_ENTRY_BYTES:
        raise Malformed(str(path), f"says at too great length where its weights are; {_AGAIN}")
    found = {1: b"", 2: b""}
    while file.tell() != end:
        number, kind = _tag(file, path)
        if kind == _LENGTH:
            within = _end(file, path, end)
            found[number] = file.read(within - file.tell())
        else:
            _skip(file, path, kind, end)
    return found[1], found[2]


def _tag(file: BinaryIO, path: Path) -> tuple[int, int]:
    """(number, type) of the next field."""
    tag = _varint(file, path) & 0xFFFFFFFF
    return tag >> 3, tag & 7


def _end(file: BinaryIO, path: Path, end: int) -> int:
    """Where the field that begins here with its length ends. Raises Malformed where that is not within its message."""
    length = _varint(file, path)
    if file.tell() + length > end:
        raise Malformed(str(path), _DAMAGED)
    return file.tell() + length


def _skip(file: BinaryIO, path: Path, kind: int, end: int) -> None:
    """Pass over a number. Raises Malformed for what ONNX does not have, and for one that its message cuts off."""
    if kind == _VARINT:
        _varint(file, path)
    elif kind in (_FIXED64, _FIXED32):
        file.seek(8 if kind == _FIXED64 else 4, os.SEEK_CUR)
    else:
        raise Malformed(str(path), _DAMAGED)
    if file.tell() > end:
        raise Malformed(str(path), _DAMAGED)


def _varint(file: BinaryIO, path: Path) -> int:
    found = 0
    for shift in range(0, 70, 7):
        byte = file.read(1)
        if not byte:
            break
        found |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return found
    raise Malformed(str(path), _DAMAGED)
