"""A job given as Python values instead of text: the same nodes, without lines."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from numbers import Integral, Real

from mlcd.errors import SpecError
from mlcd.goal import Goal, goal_fields
from mlcd.spec.node import YamlNode
from mlcd.units import Usd, duration_text

MOST_DEPTH = 20
_LARGEST = 10**100
_NOT_PLAIN = re.compile("[\x7f-\xa0\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


def tree(value: object, *, path: str = "") -> YamlNode:
    """`value` as nodes named below `path`.

    Mappings, lists, tuples, ranges and scalars are taken as they are. Money and times, as Python or mlcd types, become
    their written forms. A field that is None counts as not given. Raises SpecError for any other type.
    """
    return _tree(value, YamlNode(value=None, path=path), depth=0)


def as_text(node: YamlNode) -> str:
    """JSON text, which is also YAML, that reads back as the same values."""
    text = json.dumps(node.plain(), indent=2, ensure_ascii=False)
    return _NOT_PLAIN.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + "\n"


def _tree(value: object, place: YamlNode, depth: int) -> YamlNode:
    if depth > MOST_DEPTH:
        raise SpecError(f"nested deeper than {MOST_DEPTH} levels", field=place.path[:80])
    value = _spelled(value)
    if isinstance(value, Mapping):
        fields = {}
        for key, child in value.items():
            if not isinstance(key, str):
                raise SpecError("a field's name must be text", field=place.path, value=key)
            if child is not None or place.path == "envs":  # there, None is a value that must be given
                below = YamlNode(value=None, path=place.child_path(key))
                fields[str(key)] = _tree(child, below, depth + 1)
        return replace(place, value=fields)
    if isinstance(value, list | tuple | range):
        items = (
            _tree(item, YamlNode(value=None, path=f"{place.path}[{i}]"), depth + 1) for i, item in enumerate(value)
        )
        return replace(place, value=tuple(items))
    if isinstance(value, int) and abs(value) >= _LARGEST:
        raise SpecError("is too large a number", field=place.path)
    if value is None or isinstance(value, bool | int | float | str):
        return replace(place, value=value, written=str(value))
    kind = type(value).__name__
    raise SpecError(f"values of Python type {kind} are not supported", field=place.path)


def _spelled(value: object) -> object:
    """`value` in the form that a job file uses for it."""
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            return str(value)
        case Usd():
            return f"{value.exact:f} USD"
        case Goal():
            return goal_fields(value)
        case timedelta():
            return duration_text(value.total_seconds())
        case datetime():
            return value.isoformat()
        case Decimal():
            return float(value)
        case Integral():
            return int(value)
        case Real():
            return float(value)
        case os.PathLike():
            return os.fspath(value)
    return value
