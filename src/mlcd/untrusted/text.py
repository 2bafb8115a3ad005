"""Texts that somebody else wrote, as they may be shown on a terminal."""

import unicodedata
from collections.abc import Mapping

_MOST_DIGITS = 18
MOST_CHARACTERS = 2_000
"""A message of a job or a cloud is cut here."""
LEAST_HIDDEN_CHARACTERS = 8
"""A shorter value (`1`, `true`, `info`) is no key, and may be a part of any text."""


def printable(text: str, *, most_characters: int = MOST_CHARACTERS) -> str:
    """The text without what a terminal would obey: escapes, control characters, direction marks. Line ends stay."""
    if len(text) > most_characters:
        text = f"{text[:most_characters]}…"
    if text.translate(_SPACES).isprintable():
        return text
    return "".join(character if character in "\n\t" or _is_shown(character) else "�" for character in text)


def on_one_line(text: str, *, most_characters: int = MOST_CHARACTERS) -> str:
    """`printable` with line ends and tabs as spaces."""
    return printable(text, most_characters=most_characters).translate(_SPACES)


def hidden(text: str, values: Mapping[str, str]) -> str:
    """The text with `$NAME` for each value of a variable, of LEAST_HIDDEN_CHARACTERS or more, or a line of one."""
    lines = {line.strip(): name for name, value in values.items() for line in (value, *value.splitlines())}
    for line in sorted(lines, key=len, reverse=True):  # one may be a part of another
        if len(line) >= LEAST_HIDDEN_CHARACTERS:
            text = text.replace(line, f"${lines[line]}")
    return text


_SPACES = str.maketrans("\n\t", "  ")


def is_utf8(text: str) -> bool:
    """Whether it can be stored and written: an argument, or a file's name, may hold bytes that are no text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def whole_number(text: str) -> int | None:
    """The number that up to 18 decimal digits name; None for any other text (`isdigit` also accepts "²")."""
    return int(text) if len(text) <= _MOST_DIGITS and text.isascii() and text.isdigit() else None


def _is_shown(character: str) -> bool:
    return unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
