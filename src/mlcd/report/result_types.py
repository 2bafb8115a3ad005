"""JSON results from types: a result's class gives its keys, its JSON form and its JSON Schema.

Every field of a result class is a key, with the unit of a number in its name; a field that is LEFT_OUT has none. How
each type appears in the JSON and the schema:

Usd               a number: US dollars, with all six decimals
Config            an object: knob to value
an enumeration    its value
a tuple           an array; tuple[X, X] has exactly two items
another class     an object, under $defs in the schema; its docstring is the description
X | None          null if there is none
X | LeftOut       an optional key; its default is LEFT_OUT
Annotated         its text describes the key; Within and Among limit the values
"""

import types
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from mlcd.space import Config
from mlcd.units import Usd

T = TypeVar("T")
Json = dict[str, Any]

_PLAIN = {str: "string", bool: "boolean", int: "integer", float: "number", Usd: "number"}
_CONFIG: Json = {"type": "object", "additionalProperties": {"type": ["string", "number"]}, "minProperties": 1}


class LeftOut(Enum):
    """The type of LEFT_OUT."""

    LEFT_OUT = "left-out"


LEFT_OUT = LeftOut.LEFT_OUT
"""The value of a field whose key is omitted from the result."""


@dataclass(frozen=True, slots=True)
class Within:
    """The range of a number: `Annotated[float, Within(0, 1)]`, both ends included."""

    least: float
    most: float | None = None


@dataclass(frozen=True, slots=True)
class Among:
    """The texts or members of an enumeration that are allowed: `Annotated[Reason, Among(Reason.A, Reason.B)]`."""

    members: tuple[str, ...]

    def __init__(self, *members: str) -> None:
        object.__setattr__(self, "members", members)


Objectives = Annotated[str, Among("time", "cost", "knee")]
Seconds = Annotated[float, Within(0)]
Money = Annotated[Usd, Within(0)]
Amount = Annotated[float, Within(0)]
Share = Annotated[float, Within(0, 1)]
Percent = Annotated[float, Within(0, 100)]
Count = Annotated[int, Within(0)]
Number = Annotated[int, Within(1)]
"""Counts from 1."""
Interval = Annotated[tuple[Amount, Amount], "95%: low, high"]
MoneyInterval = Annotated[tuple[Money, Money], "95%: low, high"]


def copied(cls: type[T], source: object, **more: object) -> T:
    """A result with the values of the same names in `source`, and with `more`."""
    names = [each.name for each in fields(cls) if each.name not in more]  # type: ignore[arg-type]
    return cls(**{name: getattr(source, name) for name in names}, **more)


# ---- the JSON form


def result_json(value: Any) -> Any:
    """A result, or a value in one, ready for json.dumps. Raises TypeError for a type that results do not have."""
    if is_dataclass(value) and not isinstance(value, type | Usd | Config):
        given = ((each.name, getattr(value, each.name)) for each in fields(value))
        return {name: result_json(item) for name, item in given if item is not LEFT_OUT}
    if isinstance(value, Usd):
        return value.dollars
    if isinstance(value, Config):
        return value.as_dict()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return [result_json(item) for item in value]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise TypeError(f"a {type(value).__name__} cannot be part of a JSON result")


# ---- the schema


def result_schema(cls: type, title: str) -> Json:
    """The JSON Schema (draft 2020-12) of `result_json` of an instance."""
    defs: dict[str, Json] = {}
    whole = _object(cls, defs)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **whole,
        "$defs": dict(sorted(defs.items())),
    }


def _object(cls: type, defs: dict[str, Json]) -> Json:
    hints = get_type_hints(cls, include_extras=True)
    properties = {each.name: _schema(hints[each.name], defs) for each in fields(cls)}
    required = [each.name for each in fields(cls) if each.default is MISSING]
    return {
        "type": "object",
        "description": " ".join((cls.__doc__ or "").split()),
        "additionalProperties": False,
        "required": required,
        "properties": properties,
    }


def _schema(hint: Any, defs: dict[str, Json]) -> Json:
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _annotated(_schema(args[0], defs), args[1:])
    if origin in (Union, types.UnionType):
        (inner,) = (arg for arg in args if arg not in (types.NoneType, LeftOut))
        made = _schema(inner, defs)
        return _nullable(made) if types.NoneType in args else made
    if origin is Literal:
        return {"const": args[0]} if len(args) == 1 else {"enum": list(args)}
    if origin is tuple:
        items = {"type": "array", "items": _schema(args[0], defs)}
        return items if args[-1] is Ellipsis else {**items, "minItems": len(args), "maxItems": len(args)}
    if hint is Config:
        return dict(_CONFIG)
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    if issubclass(hint, Enum):
        return {"enum": [member.value for member in hint]}
    if isinstance(hint, type) and is_dataclass(hint):
        name = hint.__name__.removesuffix("Json")
        if name not in defs:
            defs[name] = {}  # the class may contain itself
            defs[name] = _object(hint, defs)
        return {"$ref": f"#/$defs/{name}"}
    raise TypeError(f"{hint} has no JSON Schema")


def _annotated(made: Json, notes: tuple[Any, ...]) -> Json:
    for note in notes:
        if isinstance(note, Within):
            made = {**made, "minimum": note.least, **({} if note.most is None else {"maximum": note.most})}
        elif isinstance(note, Among):
            made = {**made, "enum": [str(member) for member in note.members]}
        else:
            made = {**made, "description": note}
    return made


def _nullable(made: Json) -> Json:
    if "$ref" in made:
        return {"anyOf": [made, {"type": "null"}]}
    if "enum" in made:
        kind = {"type": [made["type"], "null"]} if "type" in made else {}
        return {**made, **kind, "enum": [*made["enum"], None]}
    return {**made, "type": [made["type"], "null"]}
