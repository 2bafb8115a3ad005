"""Which measured configuration corresponds to one that may be chosen."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mlcd.errors import BadInput
from mlcd.space import Config, Value

OPTION_DISTANCE = 64.0
"""The distance between two different options of a choice: larger than between any two sizes."""


def matching_rows(measured: tuple[Config, ...], wanted: tuple[Config, ...]) -> NDArray[np.intp]:
    """(N,) for each wanted configuration, the row of the same one in `measured`, otherwise of the nearest.

    Knobs that only one side has are ignored. The distance is the sum of |log2| of the ratios of sizes, plus
    OPTION_DISTANCE for each different option; the first of several nearest rows counts. Raises BadInput if the two
    sides have no knob in common.
    """
    shared = [name for name, _ in measured[0].values if name in {name for name, _ in wanted[0].values}]
    if not shared:
        theirs, ours = (", ".join(name for name, _ in side[0].values) for side in (measured, wanted))
        raise BadInput(f"the measured tables have the knobs {theirs}; none of these can be chosen here ({ours})")
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
        return 0.0 if one == other else OPTION_DISTANCE
    return abs(float(np.log2(one / other))) if min(one, other) > 0 else float(one != other)
