"""Checks of arguments; each raises BadInput naming the argument."""

import math
from numbers import Integral, Real

from mlcd.errors import BadInput, SpecError


def number(what: str, name: str, value: object) -> float:
    """`value` as a float, from any kind of number. Raises BadInput for anything else."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise BadInput(f"{what}: {name}: must be a number (got {value!r})")
    return float(value)


def positive(name: str, value: object) -> float:
    """A finite number more than 0."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < math.inf:
        raise SpecError("must be a number more than 0", field=name, value=value)
    return float(value)


def share(name: str, value: object) -> float:
    """A number of at least 0 and less than 1."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) < 1:
        raise SpecError("must be a number from 0, below 1", field=name, value=value)
    return float(value)


def whole(name: str, value: object) -> int:
    """A whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise SpecError("must be a whole number, at least 1", field=name, value=value)
    return int(value)
