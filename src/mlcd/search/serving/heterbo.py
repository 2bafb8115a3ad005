"""HeterBO for serving: the same search, with a latency limit in place of a deadline."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mlcd.problem import Problem
from mlcd.search.heterbo import HeterBO
from mlcd.search.heterbo_settings import HeterBOSettings
from mlcd.search.serving.latency import items
from mlcd.search.serving.table_informed import Floats, open_rows
from mlcd.trial.plan import Remaining
from mlcd.trial.trial import FailureKind, History, Measurement, Suggestion, Trial

Mask = NDArray[np.bool_]

FAILED_SPEED_SHARE = 0.25
"""A trial that ran out of memory counts as this share of the slowest speed: low enough to avoid it, but not so
low that one such trial bends the whole curve of a Gaussian process over ln speed. Unmeasured."""


DEFAULTS = HeterBOSettings(acquisition="net", price=False, gate=False)


@dataclass(frozen=True, kw_only=True)
class ServingHeterBO(HeterBO):
    """HeterBO without price and gate: the choice serves for a long time, and a trial takes a minute of it.

    It uses no other model. A latency limit L acts like a deadline in training, the longest a run may take: with b items
    in flight, b / speed <= L means that S requests take at most S L / b seconds. So improvement and the limit are
    judged together, by one unknown speed. While nothing kept the limit, it tries what most probably keeps it.
    """

    presets: ClassVar[Mapping[str, HeterBOSettings]] = {}
    settings: HeterBOSettings = DEFAULTS

    def suggest(self, problem: Problem, history: History, remaining: Remaining, count: int) -> tuple[Suggestion, ...]:
        """As HeterBO, with out-of-memory failures as very slow trials."""
        allowed = replace(remaining, allowed=open_rows(problem, history, remaining))
        count = min(count, problem.max_trials - len(history.tried))
        return super().suggest(problem, memory_failures_as_slow(problem, history), allowed, count) if count > 0 else ()

    def _start(self, problem: Problem, history: History, candidates: Mask, count: int) -> list[int]:
        """The same types as for a training, each at its middle sizes: a trial of a small batch costs no less."""
        rows = super()._start(problem, history, candidates, count)
        return [_in_the_middle(problem, candidates, row) for row in rows]

    def _log_longest(self, problem: Problem, remaining: Remaining) -> Floats:  # noqa: ARG002
        """(N,) ln(S L / b); budget and deadline limit search and verification, which the ledger handles."""
        if problem.goal.slo is None:
            return np.full(len(problem.space), np.inf)
        return np.asarray(np.log(problem.work_samples * problem.goal.slo.seconds / items(problem)))


def _in_the_middle(problem: Problem, candidates: Mask, row: int) -> int:
    """The open row of the same type whose sizes are nearest to the logarithmic middle."""
    encoding = problem.space.encoding
    alike = np.flatnonzero(candidates & (encoding.identity == encoding.identity[row]))
    sizes = encoding.counts[alike]
    middle = (sizes.min(axis=0) + sizes.max(axis=0)) / 2
    return int(alike[np.abs(sizes - middle).sum(axis=1).argmin()])


def memory_failures_as_slow(problem: Problem, history: History) -> History:
    """The trials for a speed model: one that ran out of memory becomes a very slow measurement."""
    slowest = min((trial.samples_per_second for trial in history.measured), default=1.0)
    return History(tuple(_as_slow(problem, trial, slowest * FAILED_SPEED_SHARE) for trial in history))


def _as_slow(problem: Problem, trial: Trial, speed: float) -> Trial:
    if isinstance(trial, Measurement) or trial.kind is not FailureKind.OUT_OF_MEMORY:
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
