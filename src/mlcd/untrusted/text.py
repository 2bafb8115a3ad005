"""Texts that somebody else wrote, as they may be shown on a terminal."""

import unicodedata

_MOST_DIGITS = 18
MOST_CHARACTERS = 2_000
"""A message of a job or a cloud is cut here."""


def printable(text: str, *, most_characters: int = MOST_CHARACTERS) -> str:
    """The text without what a terminal would obey: escapes, control characters, direction marks. Line ends stay."""
    if len(text) > most_characters:
        text = f"{text[:most_characters]}…"
    if text.isprintable():
        return text
    return "".join(character if character in "\n\t" or _is_shown(character) else "�" for character in text)


def on_one_line(text: str, *, most_characters: int = MOST_CHARACTERS) -> str:
    """`printable` with line ends and tabs as spaces."""
    return printable(text, most_characters=most_characters).translate(_SPACES)


_SPACES = str.maketrans("\n\t", "  ")


def whole_number(text: str) -> int | None:
    """The number that up to 18 decimal digits name; None for any other text (`isdigit` also accepts "²")."""
    return int(text) if len(text) <= _MOST_DIGITS and text.isascii() and text.isdigit() else None


def _is_shown(character: str) -> bool:
    return unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
