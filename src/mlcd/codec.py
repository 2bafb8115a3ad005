"""Values as JSON and back, derived from their types: a new field of a stored class needs nothing here.

Every dataclass is an object with its fields by name. These types have special forms:

Usd                 an integer: micro-dollars
Decimal             text, exact
date                text, ISO 8601
infinite, NaN       the texts "inf", "-inf" and "nan": JSON has no such numbers
Config              an object: knob to value
Space               {"knobs": [...], "configs": [[value of each knob, in the knobs' order], ...]}
Knob                features, log2_sizes, kinds and workers are lists in the order of its values
a union of classes  an object with one key, the class's name in kebab case: {"failed-epoch": {...}}
FunctionProblem     `functions` is a list of [first, last] of consecutive numbers

Reading ignores keys it does not know (a later patch release may have added them). A field without a default that is
missing, or one that cannot be read, raises DecodeError. Renaming a stored class or field changes the stored form: such
a change needs a new schema number and a step in `mlcd.store.migration`.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import date
from decimal import Decimal
from functools import cache
from types import NoneType, UnionType
from typing import Any, NoReturn, TypeVar, Union, get_args, get_origin, overload

from cattrs import Converter, transform_error
from cattrs.errors import BaseValidationError, StructureHandlerNotFoundError
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from mlcd.functions import FunctionProblem
from mlcd.space import Config, Knob, Space, Value, Workers
from mlcd.units import Usd

T = TypeVar("T")
Json = Any
"""What `json` reads and writes: None, bool, int, float, str, and lists and dicts of them."""

_OF_VALUES: Mapping[str, Any] = {"features": tuple[float, ...], "log2_sizes": float, "kinds": str, "workers": Workers}
"""A knob's mappings from its values, with the type of what they map to."""

_UNREADABLE = (
    ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError, StructureHandlerNotFoundError,
)  # fmt: skip
"""What structuring raises for data that is not of the type."""
_MOST_NUMBERS = 1_000_000
"""Of functions: a range is short however much it stands for."""


class DecodeError(ValueError):
    """Stored data that cannot be read; the text names the field and says why."""


def encode(value: object, as_type: Any = None) -> str:
    """Compact JSON text. `as_type` is needed for a value of a union type: it names the union.

    Raises ValueError for a knob value that is not finite; no other value is refused.
    """
    return dump(to_json(value, as_type))


@overload
def decode(text: str, as_type: type[T]) -> T: ...
@overload
def decode(text: str, as_type: Any) -> Any: ...
def decode(text: str, as_type: Any) -> Any:
    """The inverse of `encode`, with the same type. Raises DecodeError."""
    try:
        data = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"is not JSON: {error}") from error
    return from_json(data, as_type)


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} in place of a number")


def to_json(value: object, as_type: Any = None) -> Json:
    """The value as `json` writes it."""
    return _converter().unstructure(value, unstructure_as=as_type)


@overload
def from_json(data: Json, as_type: type[T]) -> T: ...
@overload
def from_json(data: Json, as_type: Any) -> Any: ...
def from_json(data: Json, as_type: Any) -> Any:
    """The inverse of `to_json`, with the same type. Raises DecodeError."""
    try:
        return _converter().structure(data, as_type)
    except _UNREADABLE as error:
        raise DecodeError(_reason(data, as_type, error)) from error


def dump(data: Json) -> str:
    """Compact JSON text of data that is already in JSON form."""
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


# ---- the converter


@cache
def _converter(*, detailed: bool = False) -> Converter:
    """A fast converter; a detailed one, which knows the path of a mistake, re-reads what the fast one refused."""
    converter = Converter(detailed_validation=detailed)
    converter.register_unstructure_hook(float, _float_to_json)
    converter.register_unstructure_hook(Usd, lambda usd: usd.micros)
    converter.register_structure_hook(Usd, lambda micros, _: Usd(int(micros)))
    converter.register_unstructure_hook(Decimal, str)
    converter.register_structure_hook(Decimal, lambda text, _: Decimal(text))
    converter.register_unstructure_hook(date, date.isoformat)
    converter.register_structure_hook(date, lambda text, _: date.fromisoformat(text))
    converter.register_unstructure_hook(Config, lambda config: dict(config.values))
    converter.register_structure_hook(Config, lambda data, _: Config(tuple(data.items())))
    _add_unions(converter)
    _add_space(converter)
    converter.register_unstructure_hook(
        FunctionProblem,
        make_dict_unstructure_fn(FunctionProblem, converter, functions=override(unstruct_hook=_ranges)),
    )
    converter.register_structure_hook(
        FunctionProblem,
        make_dict_structure_fn(
            FunctionProblem,
            converter,
            _cattrs_detailed_validation=detailed,
            functions=override(struct_hook=lambda ranges, _: _numbers(ranges)),
        ),
    )
    return converter


def _float_to_json(number: float) -> float | str:
    return number if math.isfinite(number) else str(float(number))


def _add_unions(converter: Converter) -> None:
    def members(union: Any) -> tuple[type, ...]:
        """The classes of a union of two or more classes with fields; empty for any other type."""
        if get_origin(union) not in (Union, UnionType):
            return ()
        classes = tuple(member for member in get_args(union) if member is not NoneType)
        return classes if len(classes) > 1 and all(map(is_dataclass, classes)) else ()

    def to_tagged(union: Any) -> Callable[[Any], Json]:
        known = {cls: (_tag(cls), converter.get_unstructure_hook(cls)) for cls in members(union)}

        def write(value: Any) -> Json:
            if value is None:
                return None
            tag, hook = known[type(value)]
            return {tag: hook(value)}

        return write

    def from_tagged(union: Any) -> Callable[[Json, Any], Any]:
        known = {_tag(cls): (cls, converter.get_structure_hook(cls)) for cls in members(union)}
        may_be_none = NoneType in get_args(union)

        def read(data: Json, _: Any) -> Any:
            if data is None and may_be_none:
                return None
            if not isinstance(data, dict) or len(data) != 1 or next(iter(data)) not in known:
                raise ValueError(f"must be an object with one key; allowed: {', '.join(known)}")
            ((tag, inner),) = data.items()
            cls, hook = known[tag]
            return hook(inner, cls)

        return read

    converter.register_unstructure_hook_factory(lambda union: bool(members(union)), to_tagged)
    converter.register_structure_hook_factory(lambda union: bool(members(union)), from_tagged)
    converter.register_unstructure_hook(Value, lambda value: value)
    converter.register_structure_hook(Value, lambda value, _: value)


def _add_space(converter: Converter) -> None:
    as_given = override(struct_hook=lambda value, _: value)
    read_knob = make_dict_structure_fn(
        Knob,
        converter,
        _cattrs_detailed_validation=converter.detailed_validation,
        features=as_given,
        log2_sizes=as_given,
        kinds=as_given,
        workers=as_given,
    )

    def knob_to_json(knob: Knob) -> Json:
        data: dict[str, Json] = {field.name: getattr(knob, field.name) for field in fields(Knob)}
        for name in _OF_VALUES:
            mapping: Mapping[Any, Any] | None = data[name]
            if mapping is not None:
                data[name] = [converter.unstructure(mapping[value]) for value in knob.values]
        return data

    def knob_from_json(data: Json, _: type[Knob]) -> Knob:
        keyed = dict(data)
        for name, item in _OF_VALUES.items():
            if keyed.get(name) is not None:
                items = (converter.structure(value, item) for value in keyed[name])
                keyed[name] = dict(zip(keyed["values"], items, strict=True))
        return read_knob(keyed, Knob)

    def space_to_json(space: Space) -> Json:
        return {
            "knobs": [knob_to_json(knob) for knob in space.knobs],
            "configs": [[value for _, value in config.values] for config in space.configs],
        }

    def space_from_json(data: Json, _: type[Space]) -> Space:
        knobs = converter.structure(data["knobs"], tuple[Knob, ...])
        names = [knob.name for knob in knobs]
        return Space(knobs, tuple(Config(tuple(zip(names, row, strict=True))) for row in data["configs"]))

    converter.register_unstructure_hook(Knob, knob_to_json)
    converter.register_structure_hook(Knob, knob_from_json)
    converter.register_unstructure_hook(Space, space_to_json)
    converter.register_structure_hook(Space, space_from_json)


def _tag(cls: type) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", cls.__name__).lower()


def _ranges(numbers: tuple[int, ...]) -> list[list[int]]:
    """Ascending numbers as [first, last] of each series of consecutive ones."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return found


def _numbers(ranges: list[list[int]]) -> tuple[int, ...]:
    if sum(last - first + 1 for first, last in ranges) > _MOST_NUMBERS:
        raise ValueError(f"has more than {_MOST_NUMBERS:,} numbers")
    return tuple(number for first, last in ranges for number in range(first, last + 1))


# ---- mistakes


def _reason(data: Json, as_type: Any, error: Exception) -> str:
    """Which field is wrong, and why."""
    try:
        _converter(detailed=True).structure(data, as_type)
    except BaseValidationError as group:
        message, _, path = transform_error(group, path="", format_exception=_in_words)[0].rpartition(" @ ")
        return f"{path.lstrip('.')}: {message}" if path else message
    except _UNREADABLE as plain:
        return _in_words(plain, None)
    return str(error)


def _in_words(error: BaseException, _: type | None) -> str:
    return "is missing" if isinstance(error, KeyError) else str(error)
