"""Whole numbers to choose from: a range such as `1..50`, a list such as `[1, 2, 4, 8]`, or a single number."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from mlcd.spec.node import Bounds, YamlNode
from mlcd.spec.record import Reader

_RANGE = re.compile(r"\s*([0-9]{1,9})\s*\.\.\s*([0-9]{1,9})\s*")
_MEANT_RANGE = re.compile(r"\s*([0-9]{1,9})\s*(?:-|:|\.\.\.|…|to)\s*([0-9]{1,9})\s*")
NO_CHOICES = "gives no values to choose from"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """A reader of whole numbers. It returns them sorted, without duplicates, and never empty.

    form      the allowed forms, for error messages
    most      the largest allowed number; the smallest is 1
    unit      what is counted, for error messages; "" for none
    ranges    whether `1..50` is allowed
    each      the reader of one number; None reads a whole number from 1 to `most`
    not_one   the error for text that is not a range
    empty     the error for an empty list
    nested    the error for a mapping
    """

    form: str
    most: int
    unit: str = ""
    ranges: bool = True
    each: Reader[int] | None = None
    not_one: str = NO_CHOICES
    empty: str = NO_CHOICES
    nested: str = NO_CHOICES

    def __call__(self, node: YamlNode) -> tuple[int, ...]:
        """The numbers. Raises SpecError."""
        value = node.filled().value
        if isinstance(value, Mapping):
            raise node.error(self.nested, allowed=self.form)
        if value == ():
            raise node.error(self.empty, allowed=self.form)
        if isinstance(value, str) and self.ranges:
            return self._range(node, value)
        read = self.each or self._whole
        found: set[int] = set()
        for item in node.items():
            number = read(item)
            if number in found:
                raise item.error("is given twice")
            found.add(number)
        return tuple(sorted(found))

    def _whole(self, node: YamlNode) -> int:
        return node.whole(Bounds(least=1, most=self.most))

    def _range(self, node: YamlNode, text: str) -> tuple[int, ...]:
        match = _RANGE.fullmatch(text)
        if match is None:
            meant = _MEANT_RANGE.fullmatch(text)
            raise node.error(self.not_one, allowed=self.form, nearest=f"{meant[1]}..{meant[2]}" if meant else "")
        first, last = int(match[1]), int(match[2])
        if first > last:
            raise node.error("is an empty range", allowed=self.form, nearest=f"{last}..{first}")
        if not 1 <= first <= last <= self.most:
            bounds = Bounds(least=1, most=self.most)
            allowed = f"from 1 to {self.most:,} {self.unit}" if self.unit else f"whole numbers {bounds}"
            raise node.error("is out of range", allowed=allowed)
        return tuple(range(first, last + 1))
