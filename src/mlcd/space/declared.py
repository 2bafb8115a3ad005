"""Knobs as callers and job files declare them, read into a finite space."""

import math
from collections.abc import Callable, Iterable, Mapping
from itertools import product
from numbers import Integral, Real

import numpy as np

from mlcd.errors import BadInput, SpecError
from mlcd.space.config import Config, Value
from mlcd.space.space import Knob, Space

MAX_COMBINATIONS = 200_000
"""Most combinations that are enumerated, before `where` excludes any."""

LOG_SCALE_FROM_FACTOR = 8.0
"""Positive numbers that span at least this factor are on a logarithmic scale."""

MAX_OPTION_FEATURES = 16
"""A knob with more options than this has no feature per option."""

Knobs = Mapping[str, Iterable[Value]]
"""Names and the values of each: `{"workers": range(1, 9), "precision": ["fp32", "bf16"]}`."""

Where = Callable[[Config], bool]
"""Whether a combination may be chosen."""


def space_of(knobs: Knobs, where: Where | None = None) -> Space:
    """Every combination of the values that `where` allows, in order. Raises BadInput."""
    if not isinstance(knobs, Mapping):
        allowed = 'a mapping such as {"workers": range(1, 9), "precision": ["fp32", "bf16"]}'
        raise SpecError("must be a mapping of names to values", field="knobs", value=knobs, allowed=allowed)
    if not knobs:
        raise BadInput("knobs: nothing to choose from: give at least one name with its values")
    if where is not None and not callable(where):
        raise SpecError("must be a function of a configuration", field="where", value=where)
    made = tuple(_knob(name, values, with_nodes="nodes" in knobs) for name, values in knobs.items())
    size = math.prod(len(knob.values) for knob in made)
    if size > MAX_COMBINATIONS:
        raise BadInput(
            f"knobs: {size:,} combinations are too many to enumerate; allowed: at most {MAX_COMBINATIONS:,},"
            " before `where`: give fewer values"
        )
    names = [knob.name for knob in made]
    every = (Config(tuple(zip(names, row, strict=True))) for row in product(*(knob.values for knob in made)))
    configs = tuple(config for config in every if where is None or where(config))
    if not configs:
        raise BadInput(f"where: excludes all {size:,} combinations")
    return Space(made, configs)


def _knob(name: object, values: object, *, with_nodes: bool) -> Knob:
    """Text values are unordered options, numbers are ordered.

    With a `nodes` knob no other knob is a count: strategies compare node counts with all other knobs equal.
    """
    if not isinstance(name, str) or not name.strip():
        raise SpecError("a name must be text that is not blank", field="knobs", value=name)
    field = f"knobs: {name}"
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        allowed = "a list, a tuple or a range of them"
        raise SpecError("must have several values", field=field, value=values, allowed=allowed)
    read = tuple(_value(field, value) for value in values)
    if not read:
        raise BadInput(f"{field}: has no values")
    if len(set(read)) != len(read):
        repeated = next(value for at, value in enumerate(read) if value in read[:at])
        raise SpecError("repeats a value", field=field, value=repeated)
    if name == "nodes" and any(isinstance(value, str | bool) or value < 1 or value % 1 for value in read):
        raise SpecError("must be whole numbers, at least 1", field=field, value=list(read))
    numbers = [float(value) for value in read if not isinstance(value, str | bool)]
    if len(numbers) < len(read):
        return Knob(name=name, values=read, features=_option_features(read))
    is_log = min(numbers) > 0 and max(numbers) >= LOG_SCALE_FROM_FACTOR * min(numbers)
    if name == "nodes" or (is_log and not with_nodes):
        return Knob(name=name, values=read)
    places = [math.log2(number) for number in numbers] if is_log else numbers
    return Knob(name=name, values=read, features=dict(zip(read, ((place,) for place in places), strict=True)))


def _option_features(options: tuple[Value, ...]) -> dict[Value, tuple[float, ...]]:
    """One feature per option, so that a model can learn the effect of each; none if there are too many options."""
    if len(options) > MAX_OPTION_FEATURES:
        return dict.fromkeys(options, ())
    return {option: tuple(float(option == other) for other in options) for option in options}


def _value(field: str, value: object) -> Value:
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Integral) and abs(int(value)) < 2**63:
        return int(value)
    if isinstance(value, Real) and not isinstance(value, Integral) and math.isfinite(float(value)):
        return float(value)
    raise SpecError("is not a value to choose", field=field, value=value, allowed="text, finite numbers, True, False")
