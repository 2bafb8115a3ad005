"""Prices as callers declare them, read into a price for every configuration."""

from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

from mlcd.errors import BadInput, SpecError
from mlcd.space import Config, Space
from mlcd.units import Usd, parse_usd

Price = float | str | Usd
"""Price per hour: 0.5, "0.50 USD", or a Usd."""

Prices = Price | Mapping[Any, Price | None] | Callable[[Config], Price | None] | None
"""One price for all, a mapping from the values of a knob (both per node if `nodes` is a knob), or a function that
returns the price of a whole configuration. None or 0: money is not counted."""

UNCOUNTED_PRICE = Usd(1)
"""Placeholder price of every configuration if money is not counted."""


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
