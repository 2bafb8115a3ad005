"""HeterBO over ways to serve: the same search, told that a trial which breaks the latency limit is worth nothing."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mlcd.problem import Problem
from mlcd.search.heterbo import HeterBO
from mlcd.search.serving.knowing import open_rows
from mlcd.trial.plan import Left
from mlcd.trial.trial import FailureKind, History, Measurement, Suggestion, Trial

Mask = NDArray[np.bool_]

WORTHLESS = 0.25
"""A trial that broke the limit counts as this share of the slowest that kept it: low enough to turn away from, and not
so low that one such trial bends the whole curve of a Gaussian process over ln speed."""


@dataclass(frozen=True, kw_only=True)
class ServingHeterBO(HeterBO):
    """HeterBO with its price and its gate off: what is chosen serves for long, and a trial takes a minute of that.

    It knows no other model. Its Gaussian process is of the speed and cannot see a latency, so a trial that broke the
    latency limit or ran out of memory is given to it as a very slow one.
    """

    acquisition: Literal["auto", "net", "pandora", "tei", "tei-literal"] = "net"
    price: bool = False
    gate: bool = False

    def suggest(self, problem: Problem, history: History, left: Left, count: int) -> tuple[Suggestion, ...]:
        """As HeterBO, over the trials as it can understand them."""
        allowed = replace(left, allowed=open_rows(problem, history, left))
        count = min(count, problem.max_trials - len(history.tried))
        return super().suggest(problem, understood(problem, history), allowed, count) if count > 0 else ()

    def _start(self, problem: Problem, history: History, candidates: Mask, count: int) -> list[int]:
        """The same types as for a training, each in the middle of its sizes: a small batch costs no less to try."""
        rows = super()._start(problem, history, candidates, count)
        return [_in_the_middle(problem, candidates, row) for row in rows]


def _in_the_middle(problem: Problem, candidates: Mask, row: int) -> int:
    """Of the row's type, the open row whose sizes are nearest to the middle of them, by their logarithms."""
    encoding = problem.space.encoding
    alike = np.flatnonzero(candidates & (encoding.identity == encoding.identity[row]))
    sizes = encoding.counts[alike]
    middle = (sizes.min(axis=0) + sizes.max(axis=0)) / 2
    return int(alike[np.abs(sizes - middle).sum(axis=1).argmin()])


def understood(problem: Problem, history: History) -> History:
    """The trials as a model of speed alone may see them; itself where every trial kept the limits."""
    kept = [trial.samples_per_second for trial in history.measured if trial.meets(problem.goal)]
    slowest = min(kept or [trial.samples_per_second for trial in history.measured], default=1.0)
    return History(tuple(_understood(problem, trial, slowest * WORTHLESS) for trial in history))


def _understood(problem: Problem, trial: Trial, speed: float) -> Trial:
    if isinstance(trial, Measurement):
        return trial if trial.meets(problem.goal) else replace(trial, samples_per_second=speed)
    if trial.kind is not FailureKind.OUT_OF_MEMORY:
        return trial
    return Measurement(
        config=trial.config,
        attempt=trial.attempt,
        samples_per_second=speed,
        relative_error=problem.noise,
        iterations=1,
        startup_seconds=0.0,
        seconds=trial.seconds,
        usd=trial.usd,
    )
