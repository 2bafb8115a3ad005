"""Knobs that change learning: every combination of their values is tried once, then the strategy decides."""

from dataclasses import dataclass
from typing import ClassVar

from mlcd.problem import Problem
from mlcd.search.strategy import Strategy
from mlcd.space import Config, Value
from mlcd.trial.plan import Plan, Remaining, plans
from mlcd.trial.trial import History, Suggestion

MOST_FAILURES = 2
"""A combination with so many failed trials and none that measured is not tried again for its own sake."""


def learning_first(strategy: Strategy, problem: Problem) -> Strategy:
    """The strategy for this problem: itself, or where knobs change learning, after a trial of each combination."""
    return LearningFirst(inner=strategy) if problem.learning else strategy


@dataclass(frozen=True, kw_only=True)
class LearningFirst:
    """Any strategy, after one trial of each combination of the knobs that change learning.

    Speeds say nothing about how well a combination learns, so a strategy that predicts speeds would not try it. The
    first trial is the strategy's. The others repeat the best one measured so far with other learning, so that they
    differ in nothing else, and are cheap.
    """

    name: ClassVar[str] = "learning-first"

    inner: Strategy

    @property
    def guarded(self) -> bool:
        """As the inner strategy."""
        return self.inner.guarded

    def suggest(self, problem: Problem, history: History, remaining: Remaining, count: int) -> tuple[Suggestion, ...]:
        """Trials of combinations that were not tried; once all are, what the inner strategy would try."""
        if not history.measured:
            return self.inner.suggest(problem, history, remaining, count)
        base = min(plans(problem, history), key=lambda plan: plan.value(problem)).config
        found = []
        for values in _untried(problem, history)[:count]:
            config = _alike(problem, base, values, remaining)
            if config is not None:
                text = ", ".join(f"{name}={value}" for name, value in zip(problem.learning, values, strict=True))
                found.append(
                    Suggestion(config=config, reason=f"how well the model learns with {text} is not known yet")
                )
        return tuple(found) or self.inner.suggest(problem, history, remaining, count)

    def recommend(self, problem: Problem, history: History, remaining: Remaining) -> Plan | None:
        """As the inner strategy."""
        return self.inner.recommend(problem, history, remaining)

    def ending(self, problem: Problem, history: History, remaining: Remaining) -> str:
        """As the inner strategy says."""
        return self.inner.ending(problem, history, remaining)


def _untried(problem: Problem, history: History) -> list[tuple[Value, ...]]:
    """The combinations without a measurement and with few failures, in the order of the space."""
    measured = {problem.learning_values(trial.config) for trial in history.measured}
    failed = [problem.learning_values(trial.config) for trial in history.failures]
    known = dict.fromkeys(problem.learning_values(config) for config in problem.space)
    return [values for values in known if values not in measured and failed.count(values) < MOST_FAILURES]


def _alike(problem: Problem, base: Config, values: tuple[Value, ...], remaining: Remaining) -> Config | None:
    """The configuration with this learning that has most in common with `base`, the cheapest of several; None: none."""
    best: tuple[int, int, Config] | None = None
    for row, config in enumerate(problem.space):
        if not remaining.allowed[row] or problem.learning_values(config) != values:
            continue
        differs = sum(config[name] != value for name, value in base.values if name not in problem.learning)
        key = (differs, problem.usd_per_hour[row].micros, config)
        if best is None or key[:2] < best[:2]:
            best = key
    return None if best is None else best[2]
