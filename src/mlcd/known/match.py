"""Which measured configuration tells of one that may be chosen."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mlcd.errors import BadInput
from mlcd.space import Config, Value

OTHER = 64.0
"""The distance of two different options of a choice: farther than any two sizes."""


def matching_rows(measured: tuple[Config, ...], wanted: tuple[Config, ...]) -> NDArray[np.intp]:
    """(N,) for each wanted configuration the row of the same one in `measured`, or else of the nearest.

    Knobs that only one side has are left aside. Near means: the same options, and sizes a small factor apart (the sum
    of |log2| over them); the first of several. Raises BadInput where no knob is common.
    """
    shared = [name for name, _ in measured[0].values if name in {name for name, _ in wanted[0].values}]
    if not shared:
        theirs, ours = (", ".join(name for name, _ in side[0].values) for side in (measured, wanted))
        raise BadInput(f"what is known is about {theirs}; none of these can be chosen here ({ours})")
    index: dict[tuple[Value, ...], int] = {}
    for row, config in enumerate(measured):
        index.setdefault(tuple(config[name] for name in shared), row)
    keys = [tuple(config[name] for name in shared) for config in wanted]
    found = [index[key] if key in index else _nearest(list(index), key, index) for key in keys]
    return np.array(found, dtype=np.intp)


def _nearest(keys: Sequence[tuple[Value, ...]], wanted: tuple[Value, ...], index: dict[tuple[Value, ...], int]) -> int:
    return index[min(keys, key=lambda key: sum(_apart(a, b) for a, b in zip(key, wanted, strict=True)))]


def _apart(one: Value, other: Value) -> float:
    if isinstance(one, str) or isinstance(other, str):
        return 0.0 if one == other else OTHER
    return abs(float(np.log2(one / other))) if min(one, other) > 0 else float(one != other)
