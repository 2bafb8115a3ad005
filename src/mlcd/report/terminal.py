"""What a stream supports: width, colour, live lines, more than ASCII. Decided only here."""

import os
from typing import TextIO

from mlcd.untrusted import whole_number

LEAST_COLUMNS = 20
"""A narrower terminal is treated as if it had this many columns."""
MOST_COLUMNS = 10_000
"""And a wider one as if it had this many."""


def wants_colour(stream: TextIO) -> bool:
    """Never where NO_COLOR is set; always where FORCE_COLOR is, unless to 0; else on a terminal that is not dumb."""
    if os.environ.get("NO_COLOR"):
        return False
    forced = os.environ.get("FORCE_COLOR")
    if forced:
        return forced != "0"
    return is_live(stream)


def is_live(stream: TextIO) -> bool:
    """Whether written lines can be redrawn: on a terminal that is not dumb."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def columns(stream: TextIO) -> int | None:
    """COLUMNS if set, else the terminal's width; None if neither limits a line."""
    if given := whole_number(os.environ.get("COLUMNS", "")):
        return min(max(LEAST_COLUMNS, given), MOST_COLUMNS)
    if not stream.isatty():
        return None
    try:
        found = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        return None
    return max(LEAST_COLUMNS, found) if found else None


def is_plain(stream: TextIO) -> bool:
    """Whether the stream's encoding is limited to ASCII."""
    try:
        "±▲█░…".encode(getattr(stream, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return True
    return False
