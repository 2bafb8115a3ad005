"""JSON that somebody else wrote, within limits, and its fields as checked values."""

import json
import math
import re
from collections.abc import Mapping
from typing import Any, NoReturn

MOST_DEPTH = 32
"""Levels of nesting. What mlcd reads has at most 6; Python's own parser gives up at about 1,000 with a crash of the
thread's stack on some builds."""
MOST_DIGITS = 40
"""Digits of an integer. Beyond 2**63 (19 digits) nothing that mlcd counts is meant; Python refuses 4,300."""
_STRUCTURE = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{}]', re.DOTALL)
"""A bracket, or a string; one without an end too: searching for it at each quote would take quadratic time."""


class Malformed(Exception):
    """What was read is not what it should be. `source` names it (a file, a field), `problem` says what is wrong."""

    def __init__(self, source: str, problem: str) -> None:
        super().__init__(f"{source}: {problem}" if source else problem)
        self.source, self.problem = source, problem


class TooLarge(Malformed):
    """It is larger than what is read."""


class NotJson(Malformed):
    """A text that is no JSON at all: garbage, or the half of a value whose writer was stopped."""


def parse_json(
    text: bytes | str, source: str = "", *, most_depth: int = MOST_DEPTH, non_finite_as_null: bool = False
) -> Any:
    """The value of a JSON text. Raises Malformed, also for NaN, infinities, repeated keys and endless digits.

    Raises its subclass NotJson where the text is no JSON. With `non_finite_as_null`, NaN and infinities are None.
    """
    data = _utf8(text, source)
    if _is_deeper(data, most_depth):
        raise Malformed(source, f"is nested deeper than {most_depth} levels")

    def non_finite(problem: str) -> None:
        if not non_finite_as_null:
            raise Malformed(source, problem)

    def whole(digits: str) -> int:
        if len(digits) > MOST_DIGITS:
            raise Malformed(source, f"has an integer of {len(digits):,} digits; at most {MOST_DIGITS} are read")
        return int(digits)

    def real(digits: str) -> float | None:
        number = float(digits)
        if math.isinf(number):
            non_finite(f"has a number that is too large: {digits[:40]}")
        return number if math.isfinite(number) else None

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise Malformed(source, "has a key twice")
        return found

    try:
        value = json.loads(
            data,
            parse_constant=lambda word: non_finite(f"has {word} in place of a number"),
            parse_int=whole,
            parse_float=real,
            object_pairs_hook=once,
        )
    except json.JSONDecodeError as error:
        raise NotJson(source, f"is not JSON: {error.msg} (line {error.lineno}, column {error.colno})") from error
    if "\\ud" in data.lower():
        _utf8(json.dumps(value, ensure_ascii=False), source)  # half of a surrogate pair cannot be written anywhere
    return value


def _utf8(text: bytes | str, source: str) -> str:
    """The text, if it is one that can be written as UTF-8."""
    try:
        if isinstance(text, bytes):
            return text.decode()
        text.encode()
    except UnicodeError as error:
        raise NotJson(source, "is not UTF-8 text") from error
    return text


def _is_deeper(data: str, most_depth: int) -> bool:
    """Whether it is nested deeper than that, without parsing: a parser may run out of stack first."""
    if data.count("[") + data.count("{") <= most_depth:  # most documents: a hundred times faster than the loop
        return False
    depth = 0
    for found in _STRUCTURE.finditer(data):
        if found[0] in ("[", "{"):
            depth += 1
            if depth > most_depth:
                return True
        elif found[0] in ("]", "}"):
            depth -= 1
    return False


class Fields:
    """A JSON mapping whose fields are read one by one; each method raises Malformed naming the field."""

    def __init__(self, data: object, source: str = "") -> None:
        if not isinstance(data, Mapping):
            raise Malformed(source, f"should be a mapping, is {_kind(data)}")
        self.data, self.source = data, source

    def __contains__(self, name: str) -> bool:
        return self.data.get(name) is not None

    def number(self, name: str, *, least: float = -math.inf, most: float = math.inf) -> float:
        """A finite number within [least, most]."""
        value = self._present(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._refuse(name, f"should be a number, is {_kind(value)}")
        try:
            found = float(value)
        except OverflowError:
            self._refuse(name, "is too large a number")
        if not math.isfinite(found):
            self._refuse(name, f"should be a finite number, is {found}")
        if not least <= found <= most:
            self._refuse(name, f"should be {_range(least, most)}, is {found:g}")
        return found

    def whole(self, name: str, *, least: int = -(2**63), most: int = 2**63 - 1) -> int:
        """An integer within [least, most]."""
        value = self._present(name)
        if isinstance(value, bool) or not isinstance(value, int):
            self._refuse(name, f"should be an integer, is {_kind(value)}")
        if not least <= value <= most:
            self._refuse(name, f"should be {_range(least, most)}")
        return value

    def text(self, name: str, *, most_characters: int = 4096) -> str:
        """A string of at most `most_characters`."""
        value = self._present(name)
        if not isinstance(value, str):
            self._refuse(name, f"should be a string, is {_kind(value)}")
        if len(value) > most_characters:
            self._refuse(name, f"has {len(value):,} characters; at most {most_characters:,} are read")
        return value

    def fields(self, name: str) -> "Fields":
        """A mapping within this one."""
        return Fields(self._present(name), f"{self.source}: {name}" if self.source else name)

    def items(self, name: str, *, most: int = 10_000) -> list[Any]:
        """A list of at most `most` items; each is yet to be checked."""
        value = self._present(name)
        if not isinstance(value, list):
            self._refuse(name, f"should be a list, is {_kind(value)}")
        if len(value) > most:
            self._refuse(name, f"has {len(value):,} items; at most {most:,} are read")
        return value

    def _present(self, name: str) -> Any:
        if name not in self.data:
            self._refuse(name, "is missing")
        return self.data[name]

    def _refuse(self, name: str, problem: str) -> NoReturn:
        raise Malformed(self.source, f"{name} {problem}")


def _kind(value: object) -> str:
    names = {type(None): "null", bool: "true or false", int: "a number", float: "a number", str: "a string"}
    return names.get(type(value), "a list" if isinstance(value, list) else "a mapping")


def _range(least: float, most: float) -> str:
    if most == math.inf:
        return f"at least {least:g}"
    return f"at most {most:g}" if least == -math.inf else f"between {least:g} and {most:g}"
