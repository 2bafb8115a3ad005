"""The protocol of strategies, which decide what to try next."""

from dataclasses import dataclass, replace
from typing import ClassVar, Protocol, runtime_checkable

from mlcd.problem import Problem
from mlcd.trial.plan import Plan, Remaining, best_fitting
from mlcd.trial.trial import History, Suggestion


class Strategy(Protocol):
    """Decides what to try next. Pure: a function of its arguments, its options and its seed.

    name     as the user writes it
    guarded  whether it keeps the limits; one that does not may run on simulated clouds only
    """

    name: ClassVar[str]

    @property
    def guarded(self) -> bool: ...  # noqa: D102

    def suggest(self, problem: Problem, history: History, remaining: Remaining, count: int) -> tuple[Suggestion, ...]:
        """At most `count` configurations to try now, the best first; none means the search is done.

        Each is in the space, was not tried before, is not repeated, and is allowed by `remaining.allowed`.
        """
        ...

    def recommend(self, problem: Problem, history: History, remaining: Remaining) -> Plan | None:
        """The deployment to train on, or None if nothing known fits."""
        ...

    def ending(self, problem: Problem, history: History, remaining: Remaining) -> str:
        """Why it suggests nothing more for the same arguments, for the user: a clause without a full stop."""
        ...


@runtime_checkable
class Elastic(Protocol):
    """A strategy that can also predict, while a training runs, what every other configuration would take."""

    def outlook(self, problem: Problem, history: History) -> tuple[Plan, ...]:
        """A plan for the remaining work on each configuration, measured or predicted; may be empty."""
        ...


@runtime_checkable
class Watching(Protocol):
    """A strategy that says whether its trainings are watched (mlcd.trial.watched); those of others are not."""

    @property
    def watched(self) -> bool:
        """Whether a training may start where it is expected to fit but not certain to."""
        ...


@runtime_checkable
class EndsTrials(Protocol):
    """A strategy whose trials end as soon as they are known well enough; those of others take their planned time."""

    @property
    def least_trial(self) -> float:
        """The share of a trial's planned time that is measured at least; 1: no trial ends early."""
        ...


@runtime_checkable
class OtherJobs(Protocol):
    """A strategy that may ignore what earlier runs of other jobs showed; others use it."""

    @property
    def other_jobs(self) -> bool:
        """Whether speeds are expected a little like those of other jobs (`Problem.similar`)."""
        ...


def uses_other_jobs(strategy: Strategy) -> bool:
    """Whether `Problem.similar` is to be filled in for this strategy."""
    return strategy.other_jobs if isinstance(strategy, OtherJobs) else True


def with_wishes(problem: Problem, strategy: Strategy) -> Problem:
    """The problem with what the strategy asks of the engine: watched trainings, trials that may end early."""
    least = strategy.least_trial if isinstance(strategy, EndsTrials) else 1.0
    return replace(
        problem,
        watched=isinstance(strategy, Watching) and strategy.watched,
        trial=replace(problem.trial, least_share=least),
    )


@dataclass(frozen=True, kw_only=True)
class MeasuredStrategy:
    """What most strategies share: a seed, and the best measured deployment that fits as the answer."""

    name: ClassVar[str]

    seed: int = 0

    @property
    def guarded(self) -> bool:
        """True; a rival that ignores limits overrides this."""
        return True

    def recommend(self, problem: Problem, history: History, remaining: Remaining) -> Plan | None:
        """The incumbent: the best measured deployment that fits."""
        return best_fitting(problem, history, remaining)


def at_least(bound: float, /, **options: float) -> None:
    """Raises ValueError naming the first option that is less than `bound` or not a number."""
    for name, value in options.items():
        if not value >= bound:
            raise ValueError(f"{name} must be at least {bound} (got {value})")
