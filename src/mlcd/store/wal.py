"""Tells a damaged write-ahead log from one whose last transaction was cut off: by a kill, or a power failure.

SQLite takes the first frame with a wrong checksum for the end of the log, and overwrites what follows: right after a
power failure, but after damage it silently forgets transactions that were recorded. https://www.sqlite.org/walformat.html
"""

import struct
from pathlib import Path

_HEADER_BYTES, _FRAME_HEADER_BYTES = 32, 24
_MAGIC = (0x377F0682, 0x377F0683)
"""Checksums of little-endian and of big-endian words."""


def damage(path: Path) -> str:
    """What is wrong with the log at `path`; "" where it is intact, empty, missing, or only its end was cut off.

    Raises OSError.
    """
    try:
        with path.open("rb") as file:
            data = file.read()
    except FileNotFoundError:
        return ""
    if not data:
        return ""
    if len(data) < _HEADER_BYTES:
        return "its header is cut off"
    magic, _, page_bytes, _, salt1, salt2, sum1, sum2 = struct.unpack(">8I", data[:_HEADER_BYTES])
    if magic not in _MAGIC or not 512 <= page_bytes <= 65536 or page_bytes & (page_bytes - 1):
        return "its header is not one"
    order = "<" if magic == _MAGIC[0] else ">"
    sums = _checksum(data[:24], order, (0, 0))
    if sums != (sum1, sum2):
        return "its header has a wrong checksum"
    frame_bytes = _FRAME_HEADER_BYTES + page_bytes
    broken_at: int | None = None
    lost = 0
    for number, start in enumerate(range(_HEADER_BYTES, len(data) - frame_bytes + 1, frame_bytes), start=1):
        head = data[start : start + _FRAME_HEADER_BYTES]
        _, commit_pages, frame_salt1, frame_salt2, frame_sum1, frame_sum2 = struct.unpack(">6I", head)
        if broken_at is None:
            if (frame_salt1, frame_salt2) == (salt1, salt2):
                page = data[start + _FRAME_HEADER_BYTES : start + frame_bytes]
                sums = _checksum(page, order, _checksum(head[:8], order, sums))
                if sums == (frame_sum1, frame_sum2):
                    continue
            broken_at = number
        lost += (frame_salt1, frame_salt2) == (salt1, salt2) and commit_pages > 0
    return f"frame {broken_at} is not as SQLite wrote it, and {lost} recorded changes follow" if lost else ""


def _checksum(data: bytes, order: str, sums: tuple[int, int]) -> tuple[int, int]:
    first, second = sums
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for place in range(0, len(words), 2):
        first = (first + words[place] + second) & 0xFFFFFFFF
        second = (second + words[place + 1] + first) & 0xFFFFFFFF
    return first, second
