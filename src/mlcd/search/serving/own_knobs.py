"""Search over the settings of a server that is a command: any names and words, of which nothing is known."""

from dataclasses import dataclass, replace

from mlcd.problem import Problem
from mlcd.search.bayesian import Bayesian
from mlcd.search.serving.heterbo import FAILED_SPEED_SHARE
from mlcd.space import Space
from mlcd.trial.plan import Remaining
from mlcd.trial.trial import History, Measurement, Suggestion

KNOWN_KNOBS = ("instance", "batch")
"""Knobs that say more than a name: prices and speeds follow from a type, latency from a batch."""


def has_only_own_knobs(space: Space) -> bool:
    """Whether nothing but a server's own settings, and how many nodes it has, can be chosen."""
    return not any(knob.name in KNOWN_KNOBS and len(knob.values) > 1 for knob in space.knobs)


@dataclass(frozen=True, kw_only=True)
class OwnKnobs(Bayesian):
    """`bayesian`, to which a load test that broke the limits is as bad as one that failed."""

    def suggest(self, problem: Problem, history: History, remaining: Remaining, count: int) -> tuple[Suggestion, ...]:
        """See Bayesian."""
        return super().suggest(problem, _broken_as_slow(problem, history), remaining, count)


def _broken_as_slow(problem: Problem, history: History) -> History:
    """The trials, of which those that broke the limits are slower than all others."""
    slowest = min((trial.samples_per_second for trial in history.measured), default=1.0)
    return History(
        tuple(
            replace(trial, samples_per_second=slowest * FAILED_SPEED_SHARE)
            if isinstance(trial, Measurement) and not trial.meets(problem.goal)
            else trial
            for trial in history
        )
    )
