"""Tensors as numbers in JSON: found in the body without parsing it whole, read and written slice by slice.

One call of the JSON parser holds the interpreter until it returns, seconds for a large body, whichever thread calls it;
and a list of Python's numbers takes ten times the memory of their array. A slice takes less than a millisecond, so that
a thread that reads slices leaves the others their turns, and memory stays near that of text and array.
"""

import json
import math
import re
import secrets
from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from mlcd.server.tensors import DATATYPES
from mlcd.untrusted import Malformed

Array = NDArray[Any]

SLICE_BYTES = 16 * 1024
"""Text that is converted in one call: about 0.3 ms."""
SLICE_NUMBERS = 2048
"""Numbers that are written in one call: about 1 ms."""
MOST_OTHER_BYTES = 256 * 1024
"""Of a request's JSON without the numbers of its tensors: names, shapes and parameters have under 1 KiB an input."""
MOST_TENSORS = 1024
_KEY = re.compile(rb'(?<!\\)"data"[ \t\r\n]*:[ \t\r\n]*(?=\[)')
_SPACE = b" \t\r\n"
_PLACE = f"mlcd {secrets.token_hex(8)} "
"""Stands for the numbers in the document; a client cannot know it."""
_ALL_BUT_STRUCTURE = bytes(set(range(256)) - set(b"[],"))
# Brackets are taken out before a slice is parsed, so they must be where JSON has them: "[" at the start of an item, "]"
# at its end, and no row without numbers.
_MISPLACED = re.compile(rb"\][ \t\r\n]*[^ \t\r\n,\]]|[^ \t\r\n,\[][ \t\r\n]*\[|,[ \t\r\n]*\]|\[[ \t\r\n]*,")


def split(text: "bytes | bytearray", length: int) -> tuple[bytes, list[tuple[int, int]]]:
    """The first `length` bytes as JSON with places in the stead of numbers, and where those numbers are.

    Raises Malformed where what remains is longer than MOST_OTHER_BYTES. Nothing is checked otherwise: `numbers` and
    the JSON parser do that.
    """
    kept: list[bytes] = []
    spans: list[tuple[int, int]] = []
    at = kept_bytes = 0
    while True:
        allowed = at + MOST_OTHER_BYTES - kept_bytes
        key = _KEY.search(text, at, min(length, allowed))
        if key is None:
            break
        start = key.end()
        if end := _end_of_numbers(text, start, length):
            piece = bytes(text[at:start]) + f'"{_PLACE}{len(spans)}"'.encode()
            spans.append((start, end))
        else:
            piece = bytes(text[at : start + 1])
        kept.append(piece)
        kept_bytes += len(piece)
        at = end or start + 1
        if len(spans) > MOST_TENSORS:
            raise Malformed("", f"has more than {MOST_TENSORS:,} tensors")
    if length > allowed:
        raise Malformed("", f"has more than {MOST_OTHER_BYTES:,} bytes besides the numbers of its tensors")
    return b"".join([*kept, bytes(text[at:length])]), spans


def _end_of_numbers(text: "bytes | bytearray", start: int, length: int) -> int:
    """Where the list that begins at `start` ends; 0 unless a key or the end of the object follows it, as it must."""
    quote = text.find(b'"', start, length)
    stop = quote if quote >= 0 else length
    brace = text.find(b"}", start, stop)
    stop = brace if brace >= 0 else stop
    end = text.rfind(b"]", start, stop) + 1
    if not end or stop - end > SLICE_BYTES or text.find(b"{", start, stop) >= 0:
        return 0
    between = bytes(text[end:stop]).strip(_SPACE)
    return end if between == (b"" if brace >= 0 else b",") else 0


def span_of(value: object, spans: list[tuple[int, int]]) -> tuple[int, int] | None:
    """Where the numbers of a value of the document are; None where it is no place."""
    if not isinstance(value, str) or not value.startswith(_PLACE):
        return None
    number = value.removeprefix(_PLACE)
    return spans[int(number)] if number.isdecimal() and len(number) < 6 and int(number) < len(spans) else None


def numbers(
    data: "bytes | bytearray", span: tuple[int, int], *, name: str, datatype: str, shape: tuple[int, ...]
) -> Array:
    """The tensor in the JSON list at `span`, flat or nested like `shape`. Raises Malformed naming the tensor.

    Text, booleans and null are not numbers, numbers are not truncated to their type, NaN and infinities are refused.
    """
    source = f"inputs: {name}"
    count = math.prod(shape)  # of Python's integers: sizes that are absurdly large do not overflow
    if count == 0:
        return _no_numbers(bytes(data[span[0] : min(span[1], span[0] + SLICE_BYTES)]), source, datatype, shape)
    if count > span[1] - span[0]:  # before anything is allocated
        raise Malformed(source, f"shape is {list(shape)}, data has fewer numbers")
    found = np.empty(count, dtype=DATATYPES[datatype])
    filled, structure = 0, bytearray()
    nested = data.find(b"[", span[0] + 1, span[1]) >= 0
    for piece, is_last in _slices(data, *span, source):
        text = piece
        if nested:
            if _MISPLACED.search(b"," + piece + (b"" if is_last else b",")):
                raise Malformed(source, "data must be a list of numbers, flat or nested by rows")
            structure += piece.translate(None, _ALL_BUT_STRUCTURE) + (b"" if is_last else b",")
            text = piece.translate(None, b"[]")
        elif not filled:
            text = text[1:]
        if is_last and not nested:
            text = text[:-1]
        values = _checked(text, source, datatype)
        if filled + len(values) > count:
            raise Malformed(source, f"shape is {list(shape)}, data has more than {count} numbers")
        found[filled : filled + len(values)] = values
        filled += len(values)
    if filled != count:
        raise Malformed(source, f"shape is {list(shape)}, data has {filled} numbers")
    if nested and not _is_structure(structure, shape):
        raise Malformed(source, f"data must be a list of numbers, flat or nested like shape {list(shape)}")
    return found.reshape(shape)


def _slices(data: "bytes | bytearray", at: int, end: int, source: str) -> Iterator[tuple[bytes, bool]]:
    """(text between two commas, whether it is the last)."""
    while end - at > SLICE_BYTES:
        cut = data.rfind(b",", at, at + SLICE_BYTES)
        if cut < 0:
            raise Malformed(source, f"data has {SLICE_BYTES:,} characters without a comma")
        yield bytes(data[at:cut]), False
        at = cut + 1
    yield bytes(data[at:end]), True


def _checked(text: bytes, source: str, datatype: str) -> Array:
    """The numbers of a slice, in their type."""
    dtype = np.dtype(DATATYPES[datatype])
    try:
        values = _DECODER.decode(f"[{text.decode('ascii')}]")
    except (ValueError, RecursionError) as error:
        raise Malformed(source, "data must be a list of numbers, flat or nested by rows") from error
    except _NotFinite as error:
        raise Malformed(source, f"data has {error} in place of a number") from error
    if not values:
        raise Malformed(source, "data must be a list of numbers, flat or nested by rows")
    allowed: dict[str, set[type]] = {"b": {bool}, "f": {int, float}}
    if not set(map(type, values)) <= allowed.get(dtype.kind, {int}):
        raise Malformed(source, f"data must be numbers of {datatype}")
    if dtype.kind == "b":
        return np.array(values, dtype=dtype)
    unfit = Malformed(source, f"a number does not fit {datatype}")
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if min(values) < limits.min or max(values) > limits.max:
            raise unfit
        return np.array(values, dtype=dtype)
    try:
        doubles = np.array(values, dtype=np.float64)
    except OverflowError:
        raise unfit from None
    with np.errstate(over="ignore"):
        found = doubles.astype(dtype)
    if not np.isfinite(found).all():
        raise unfit
    return found


class _NotFinite(Exception):
    """The word that stands for a number."""


def _refuse(word: str) -> NoReturn:
    raise _NotFinite(word)


_DECODER = json.JSONDecoder(parse_constant=_refuse)


def _no_numbers(data: bytes, source: str, datatype: str, shape: tuple[int, ...]) -> Array:
    given = data.translate(None, _SPACE)
    if given != b"[]" and not _is_structure(given, shape):
        raise Malformed(source, f"shape is {list(shape)}, data has something else than no numbers")
    return np.empty(shape, dtype=DATATYPES[datatype])


def _is_structure(found: "bytes | bytearray", shape: tuple[int, ...]) -> bool:
    """Whether these brackets and commas are those of a list nested like `shape`."""
    length = 0
    for size in reversed(shape):
        length = size * length + max(size - 1, 0) + 2
    if length != len(found):  # before it is built
        return False
    text = b""
    for size in reversed(shape):
        text = b"[" + ((text + b",") * size)[:-1] + b"]"
    return text == found


def text_of(array: Array, name: str) -> list[bytes]:
    """A flat JSON list of an output's numbers, in parts. Raises Malformed naming it where JSON has no word for one."""
    flat = array.ravel()
    if flat.dtype.kind == "f" and not np.isfinite(flat).all():
        raise Malformed(f"outputs: {name}", "has NaN or infinite numbers, which JSON lacks; ask for binary_data")
    parts = []
    for at in range(0, flat.size, SLICE_NUMBERS):
        text = json.dumps(flat[at : at + SLICE_NUMBERS].tolist())[1:-1]
        parts.append((f", {text}" if at else text).encode())
    return [b"[", *parts, b"]"]
