"""Classes with options as the user writes them: `heterbo:prune=off,start=2`, `heterbo:paper`, `static:functions=64`.

A class's options are its fields and those of its `settings`. Its class variable `presets` names settings, and `given`
lists the fields that mlcd passes.
"""

import dataclasses
from collections.abc import Mapping
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from mlcd.errors import BadInput, nearest

MOST_OPTION = 10**18
"""Numbers of options, and their inverses, are at most this large, so that arithmetic with them stays finite."""
_SWITCH = {"on": True, "true": True, "yes": True, "off": False, "false": False, "no": False}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """What a user may write as `name=value`.

    in_settings  a field of the class's settings, not of the class itself
    """

    name: str
    field: str
    kind: Any
    default: object
    in_settings: bool


def options_of(cls: Any) -> tuple[Option, ...]:
    """The options of a class: its own fields, except those that mlcd passes, then those of its settings."""
    not_options = ("seed", "settings", *getattr(cls, "given", ()))
    own = [f for f in dataclasses.fields(cls) if f.init and f.name not in not_options]
    found = [(f.name, get_type_hints(cls)[f.name], f.default, False) for f in own]
    settings = _default_settings(cls)
    if settings is not None:
        hints = get_type_hints(type(settings))
        found += [(f.name, hints[f.name], getattr(settings, f.name), True) for f in dataclasses.fields(settings)]
    return tuple(
        Option(name=field.replace("_", "-"), field=field, kind=kind, default=default, in_settings=inside)
        for field, kind, default, inside in found
    )


def with_options(cls: Any, text: str, *, seed: int, given: Mapping[str, object]) -> Any:
    """The object of `cls` that `name[:[preset,]option=value,...]` describes. Raises BadInput naming what is allowed.

    A preset is a name for settings; options after it change single ones.
    """
    name, _, tail = (piece.strip() for piece in text.partition(":"))
    options = {option.name: option for option in options_of(cls)}
    presets = getattr(cls, "presets", {})
    settings = _default_settings(cls)
    own: dict[str, Any] = {}
    changed: dict[str, Any] = {}
    for at, part in enumerate(filter(None, (piece.strip() for piece in tail.split(",")))):
        if at == 0 and part in presets:
            settings = presets[part]
            continue
        written, equals, value = (piece.strip() for piece in part.partition("="))
        if written not in options or not equals:
            near = nearest(written, [*presets, *options])
            hint = f"; did you mean {near!r}?" if near else ""
            allowed = ", ".join((*presets, *(f"{known}=" for known in options))) or "none"
            raise BadInput(f"search.strategy: {name} has no option {part!r}; allowed: {allowed}{hint}")
        option = options[written]
        values = changed if option.in_settings else own
        values[option.field] = _convert(f"search.strategy: {name}:{written}", value, option.kind)
    try:
        if settings is not None:
            own["settings"] = dataclasses.replace(settings, **changed)
        return cls(seed=seed, **own, **given)
    except ValueError as error:
        raise BadInput(f"search.strategy: {text}: {error}") from error


def _default_settings(cls: Any) -> Any:
    """The default settings of a class; None if it has no such field."""
    return next((f.default for f in dataclasses.fields(cls) if f.name == "settings"), None)


def _convert(where: str, value: str, kind: Any) -> Any:
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise BadInput(f"{where}: unknown value (got {value!r}); allowed: {', '.join(get_args(kind))}")
        return value
    kinds = {kind, *get_args(kind)} - {NoneType}
    if bool in kinds:
        if value.lower() not in _SWITCH:
            raise BadInput(f"{where}: not a switch (got {value!r}); allowed: on, off")
        return _SWITCH[value.lower()]
    number = float if float in kinds else int if int in kinds else None
    if number is None:
        return value
    what = "a whole number" if number is int else "a number"
    try:
        found = number(value)
    except ValueError as error:
        raise BadInput(f"{where}: not {what} (got {value[:80]!r})") from error
    if found != 0 and not 1 / MOST_OPTION <= abs(found) <= MOST_OPTION:
        raise BadInput(f"{where}: out of range (got {value[:80]!r}); allowed: {what} up to {MOST_OPTION:.0e}")
    return found
