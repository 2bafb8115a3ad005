"""Ranks configurations by their average worth to the known models, without any model or learning."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mlcd.problem import Problem
from mlcd.search.serving.ranked import RankedStrategy
from mlcd.search.serving.table_informed import Floats
from mlcd.search.serving.table_worth import known_worth
from mlcd.trial.trial import History


@dataclass(frozen=True, kw_only=True)
class SourceMean(RankedStrategy):
    """score(c) = mean over known models m of worth(m, c) / max worth(m, .), with 0 where m breaks the latency limit.

    The order is fixed before the first trial; trials only decide which tried configuration is best. A search that is no
    better than this has learnt nothing.
    """

    name: ClassVar[str] = "source-mean"

    def scores(self, problem: Problem, history: History) -> Floats:  # noqa: ARG002
        """The average, independent of the trials."""
        return column_means(known_worth(problem, self.tables, self.rows(problem)))

    def reason(self, problem: Problem, history: History) -> str:  # noqa: ARG002
        """Best on average."""
        return f"best on average for {len(self.tables.models)} known models, of those not tried yet"


def column_means(worth: Floats) -> Floats:
    """(N,) means over the models that were measured there; 0 where none was."""
    measured = ~np.isnan(worth)
    return np.asarray(np.where(measured, worth, 0.0).sum(axis=0) / np.maximum(measured.sum(axis=0), 1))
