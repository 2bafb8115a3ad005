"""A value of a job file together with its position, so that an error can name the file, line and field."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from mlcd.errors import SpecError, nearest

_SHOWN_CHARACTERS = 80
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
FLAG_WORDS = {"yes": "true", "y": "true", "on": "true", "no": "false", "n": "false", "off": "false"}


class Excerpt(str):
    """The part of a long value that a message shows. Its repr is the text itself, without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def shortened(value: object) -> object:
    """The value for a message; a long value is cut off."""
    text = repr(value)
    return value if len(text) <= _SHOWN_CHARACTERS else Excerpt(f"{text[:_SHOWN_CHARACTERS]}...")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The allowed range of a number: `above` and `below` are exclusive, `least` and `most` are inclusive."""

    above: float = -math.inf
    least: float = -math.inf
    most: float = math.inf
    below: float = math.inf

    def __contains__(self, number: float) -> bool:
        return number > self.above and self.least <= number <= self.most and number < self.below

    def __str__(self) -> str:
        words = (
            ("more than", self.above),
            ("at least", self.least),
            ("at most", self.most),
            ("less than", self.below),
        )
        return " and ".join(f"{word} {end:,.15g}" for word, end in words if math.isfinite(end))


@dataclass(frozen=True, slots=True, kw_only=True)
class YamlNode:
    """One value: a scalar, a list or a mapping of nodes.

    file, line  its position; `line` is the line of its field's name, None if there is no file
    path        its dotted name, such as `search.trial.minutes` or `resources.instance_type[2]`
    written     a scalar as the file spells it (`1.10` is the number 1.1)

    Every method either returns a value or raises the SpecError that names this position.
    """

    value: "bool | int | float | str | tuple[YamlNode, ...] | Mapping[str, YamlNode] | None"
    file: str = ""
    line: int | None = None
    path: str = ""
    written: str = ""

    def error(self, problem: str, *, allowed: str = "", nearest: str = "") -> SpecError:
        """The error that names this position and shows this value. The caller raises it."""
        return SpecError(
            problem,
            file=self.file,
            line=self.line,
            field=self.path,
            value=self.shown(),
            allowed=allowed,
            nearest=nearest,
        )

    def unshown(self, problem: str, *, allowed: str = "") -> SpecError:
        """The error that names this position without the value, which may be a key. The caller raises it."""
        return SpecError(problem, file=self.file, line=self.line, field=self.path, allowed=allowed)

    def plain(self) -> object:
        """The value without positions, as lists, dicts and scalars."""
        if isinstance(self.value, tuple):
            return [item.plain() for item in self.value]
        if isinstance(self.value, Mapping):
            return {key: child.plain() for key, child in self.value.items()}
        return self.value

    def shown(self) -> object:
        """The value for a message; a long value is cut off."""
        return shortened(self.plain())

    def child_path(self, key: str) -> str:
        """The dotted name of the field `key` below this node; a long key is cut off."""
        key = key if len(key) <= _SHOWN_CHARACTERS else f"{key[:_SHOWN_CHARACTERS]}..."
        if not _PLAIN_KEY.fullmatch(key):
            return f"{self.path}[{key!r}]"
        return f"{self.path}.{key}" if self.path else key

    def filled(self) -> "YamlNode":
        """This node. Raises SpecError if the field has no value."""
        if self.value is None:
            raise self.error("has no value; fill it in or remove the field")
        return self

    def mapping(self, *, allowed: str = "") -> Mapping[str, "YamlNode"]:
        """The fields, in the order written. `allowed` is used only in the message."""
        value = self.filled().value
        if isinstance(value, Mapping):
            return value
        raise self.error("must be a mapping of fields to values", allowed=allowed)

    def items(self) -> tuple["YamlNode", ...]:
        """The elements of a list; any other value counts as a list with one element."""
        return self.value if isinstance(self.value, tuple) else (self,)

    def text(self, *, allowed: str = "") -> str:
        """A string. A number or a boolean is refused: quotes make it a string."""
        value = self.filled().value
        if isinstance(value, str):
            return value
        if isinstance(value, bool | int | float):
            raise self.error(f"must be text; write it as {self.written!r} with the quotes", allowed=allowed)
        raise self.error("must be text", allowed=allowed)

    def line_of_text(self, *, allowed: str = "") -> str:
        """A string of one line that is not blank."""
        text = self.text(allowed=allowed)
        if not text.strip() or "\n" in text:
            raise self.error("must be a line of text that is not blank", allowed=allowed)
        return text.strip()

    def number(self, bounds: Bounds, *, unit: str = "") -> float:
        """A finite number within `bounds`; `unit` is used only in messages."""
        allowed = f"a number {bounds} {unit}".strip()
        value = self.filled().value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error("must be a number", allowed=allowed, nearest=_number_meant(value, unit))
        if not math.isfinite(value) or value not in bounds:
            raise self.error("is out of range", allowed=allowed)
        return float(value)

    def whole(self, bounds: Bounds) -> int:
        """A whole number within `bounds`; `1e3` is allowed, `2.5` is not."""
        allowed = f"a whole number {bounds}"
        value = self.filled().value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error("must be a whole number", allowed=allowed, nearest=_number_meant(value))
        if not math.isfinite(value) or value != int(value):
            raise self.error("must be a whole number", allowed=allowed)
        if value not in bounds:
            raise self.error("is out of range", allowed=allowed)
        return int(value)

    def flag(self) -> bool:
        """true or false. YAML 1.2 reads `yes` and `on` as text: these raise an error that suggests the right word."""
        value = self.filled().value
        if isinstance(value, bool):
            return value
        meant = FLAG_WORDS.get(value.lower(), "") if isinstance(value, str) else ""
        raise self.error("must be true or false", nearest=meant)

    def choice(self, words: tuple[str, ...], *, meant: Mapping[str, str] | None = None) -> str:
        """One of `words`. `meant` maps common other words to the right one, for the error's suggestion."""
        allowed = ", ".join(words)
        text = self.filled().value
        if not isinstance(text, str):
            raise self.error("is not one of the choices", allowed=allowed)
        if text in words:
            return text
        lowered = text.lower()
        right = (meant or {}).get(lowered) or nearest(lowered, words)
        raise self.error("is not one of the choices", allowed=allowed, nearest=right)


_SCALES = {"k": 1e3, "K": 1e3, "M": 1e6, "%": 0.01}


def _number_meant(value: object, unit: str = "") -> str:
    """The number that a text such as `50,000`, `1_000`, `50k`, `5%` or, in minutes, `5min` probably means, or ""."""
    text = re.sub(r"[,_\s]", "", value) if isinstance(value, str) else ""
    parts = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,15})?)([A-Za-z%]{1,10})", text)
    if parts and parts[2] in _SCALES:
        return f"{float(parts[1]) * _SCALES[parts[2]]:.15g}"
    if parts and parts[2] and unit.startswith(parts[2].removesuffix("s") or parts[2]):
        return parts[1]
    return text if re.fullmatch(r"[-+]?[0-9]{1,20}(\.[0-9]{1,20})?([eE][-+]?[0-9]{1,3})?", text) else ""
