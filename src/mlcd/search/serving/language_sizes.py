"""What a language model's sizes tell of every configuration of a problem, for the strategies that use them."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from mlcd.known.tables import Known, TargetModel
from mlcd.models.knob_gp import Columns
from mlcd.models.serving.gaussian import matern
from mlcd.models.serving.language import LanguagePrior, language_prior
from mlcd.search.serving.table_informed import ById
from mlcd.space import Config, Space

Floats = NDArray[np.float64]

KNOB_LENGTH = 0.5
"""Share of a knob's range over which its effect changes, times the root of the number of knobs: as in knob_gp."""


@lru_cache(maxsize=8)
def sizes_prior(space: ById[Space], known: Known | None, target: TargetModel | None) -> LanguagePrior | None:
    """What is expected before the first trial; None where the requests' lengths or some type's GPUs are not known."""
    if known is None or known.lengths is None:
        return None
    configs = space.value.configs
    return language_prior(known, None if target is None else target.language, configs, _own_knobs(space.value))


def _own_knobs(space: Space) -> Floats | None:
    """(N, N) correlation along knobs other than the instance type and the concurrency; None if there are none."""
    knobs = tuple(knob for knob in space.knobs if knob.name not in ("instance", "batch") and len(knob.values) > 1)
    if not knobs:
        return None
    names = {knob.name for knob in knobs}
    rows = [tuple(pair for pair in config.values if pair[0] in names) for config in space.configs]
    distinct = {row: at for at, row in enumerate(dict.fromkeys(rows))}
    part = Space(knobs, tuple(Config(row) for row in distinct))
    at = np.array([distinct[row] for row in rows])
    return np.asarray(_correlation(Columns.of(part))[np.ix_(at, at)])


def _correlation(columns: Columns) -> Floats:
    every = np.arange(len(columns.numbers), dtype=np.intp)
    length = KNOB_LENGTH * np.sqrt(max(columns.width, 1))
    return matern(np.sqrt(columns.squares(every, every).sum(axis=0)) / length)
