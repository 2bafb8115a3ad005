"""Texts that somebody else wrote, as they may be shown on a terminal."""

import unicodedata

MOST_CHARACTERS = 2_000
"""A message of a job or a cloud is cut here."""


def printable(text: str, *, most_characters: int = MOST_CHARACTERS) -> str:
    """The text without what a terminal would obey: escapes, control characters, direction marks. Line ends stay."""
    shown = "".join(character if character in "\n\t" or _is_shown(character) else "�" for character in text)
    return shown if len(shown) <= most_characters else f"{shown[:most_characters]}…"


def _is_shown(character: str) -> bool:
    return unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
