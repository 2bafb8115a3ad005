"""A mapping with known fields, as a table: each field's name, its reader, and where its value goes."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from mlcd.errors import SpecError, nearest
from mlcd.spec.node import YamlNode

_REST_OF_AMOUNT = re.compile(r"[0-9]{3}(\.[0-9]+)?\s*(usd|\$|dollars?)?", re.IGNORECASE)
T = TypeVar("T")
Reader = Callable[[YamlNode], T]


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field. `into` is the attribute's name if it differs from the field's (`minutes` goes into `seconds`)."""

    read: Reader[object]
    into: str = ""
    required: bool = False
    allowed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldTable(Generic[T]):
    """Reads a mapping into the value that `make` builds; fields that are not given keep `make`'s defaults.

    fields  the allowed fields
    later   known names that are not supported yet, each with what to write instead ("" if there is nothing)
    meant   names that people write elsewhere for a field -> the field
    """

    make: Callable[..., T]
    fields: Mapping[str, Field]
    later: Mapping[str, str] = field(default_factory=dict)
    meant: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, node: YamlNode, places: tuple[str, ...] = ()) -> T:
        """The value. `places` are the dotted names of the whole file, to suggest where a misplaced field belongs.

        Raises SpecError for a node that is not a mapping, an unknown or missing field, or a value that its reader
        refuses.
        """
        places = places or tuple(self.places())
        given = node.mapping(allowed=self._form if node.path else "a job file as `mlcd init` writes it")
        for name, child in given.items():
            if name not in self.fields:
                raise self._unknown(name, child, places)
        values = {}
        for name, child in given.items():
            known = self.fields[name]
            read = known.read
            values[known.into or name] = read(child, places) if isinstance(read, FieldTable) else read(child)
        for name, known in self.fields.items():
            if known.required and name not in given:
                path = node.child_path(name)
                raise SpecError("is missing", file=node.file, line=node.line, field=path, allowed=known.allowed)
        return self.make(**values)

    def places(self, prefix: str = "") -> Iterator[str]:
        """The dotted names of every field here and below."""
        for name, known in self.fields.items():
            yield prefix + name
            if isinstance(known.read, FieldTable):
                yield from known.read.places(f"{prefix}{name}.")

    @property
    def _form(self) -> str:
        """`{minimize: ..., deadline: ..., budget: ...}`: the fields, the first three of many."""
        names = [f"{name}: ..." for name in self.fields]
        return f"{{{', '.join(names[:3])}{', ...' if len(names) > 3 else ''}}}"

    def _unknown(self, name: str, child: YamlNode, places: tuple[str, ...]) -> SpecError:
        problem, right = "unknown field", ""
        if name in self.later:
            problem = "not supported yet" + (f"; {self.later[name]}" if self.later[name] else "")
        elif ":" in name and name.partition(":")[0] in self.fields:
            problem = f"unknown field; write a space after the colon of {name.partition(':')[0]!r}"
        elif _REST_OF_AMOUNT.fullmatch(name) and child.value is None:
            problem = 'unknown field; the comma before it split an amount: put it in quotes, such as "1,000 USD"'
        else:
            known = tuple(self.fields)
            elsewhere = [place for place in places if place.rpartition(".")[2] == name]
            right = (
                self.meant.get(name.lower(), "")
                or (elsewhere or [nearest(name, known) or nearest(name.lower().replace("-", "_"), known)])[0]
            )
            if right == name and child.path != name:
                problem, right = "unknown field here; write it at the top of the file", ""
        return SpecError(
            problem, file=child.file, line=child.line, field=child.path, allowed=", ".join(self.fields), nearest=right
        )
