"""Knobs and prices as callers declare them, read into a finite space with a price for every configuration."""

import math
from collections.abc import Callable, Iterable, Mapping
from itertools import product
from numbers import Integral, Real
from typing import Any

import numpy as np

from mlcd.errors import BadInput, SpecError
from mlcd.space import Config, Knob, Space, Value
from mlcd.units import Usd, parse_usd

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

Price = float | str | Usd
"""Price per hour: 0.5, "0.50 USD", or a Usd."""

Prices = Price | Mapping[Any, Price | None] | Callable[[Config], Price | None] | None
"""One price for all, a mapping from the values of a knob (both per node if `nodes` is a knob), or a function that
returns the price of a whole configuration. None or 0: money is not counted."""

UNCOUNTED_PRICE = Usd(1)
"""Placeholder price of every configuration if money is not counted."""


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


def prices_of(space: Space, usd_per_hour: Prices) -> tuple[tuple[Usd, ...], bool]:
    """(the price of an hour of each configuration, whether money is counted at all). Raises BadInput."""
    micros = [_price(usd_per_hour, config).micros for config in space]
    if not any(micros):
        return (UNCOUNTED_PRICE,) * len(space), False
    if not all(micros):
        free = space.configs[micros.index(0)]
        raise BadInput(
            f"usd_per_hour: is $0 for {free} and more for others; give a nearly free configuration a small price,"
            " such as 0.0001"
        )
    return tuple(Usd(each) for each in micros), True


def _price(given: object, config: Config) -> Usd:
    nodes = config.nodes
    if isinstance(given, Mapping):
        named = [value for _, value in config.values if value in given]
        if len(named) != 1:
            found = f"has {len(named)} of its values" if named else "has none of its values"
            raise BadInput(f"usd_per_hour: must have one price for each configuration, and {found}: {config}")
        given = given[named[0]]
    elif callable(given):
        given, nodes = given(config), 1
    if given is None:
        return Usd(0)
    try:
        if isinstance(given, Usd):
            usd = given
        elif isinstance(given, str):
            usd = parse_usd(given)
        elif isinstance(given, Real) and not isinstance(given, bool):
            usd = parse_usd(float(given))
        else:
            raise ValueError("not an amount of money")
    except ValueError as error:
        allowed = "an amount such as 0.5 or '0.50 USD', a mapping from a knob's values, or a function"
        raise SpecError(str(error).partition(";")[0], field="usd_per_hour", value=given, allowed=allowed) from error
    if usd.micros < 0:
        raise SpecError("must not be negative", field="usd_per_hour", value=given)
    return usd * nodes
