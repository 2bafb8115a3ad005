"""Spot or on demand: a strategy sees each machine once, as it would be bought; the choice sees both."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mlcd.goal import Objective
from mlcd.problem import Problem, ProblemKey
from mlcd.search.strategy import Strategy
from mlcd.space import Config, Space
from mlcd.trial.markets import by_machine
from mlcd.trial.plan import Plan, Remaining, best_fitting
from mlcd.trial.trial import Failure, FailureKind, History, Measurement, Suggestion, Trial


def per_market(strategy: Strategy, problem: Problem) -> Strategy:
    """The strategy for this problem: itself, or where spot is a choice, over machines."""
    return strategy if problem.interruptions is None else PerMachine(inner=strategy)


@dataclass(frozen=True, kw_only=True)
class PerMachine:
    """Any strategy over machines: of spot and on demand, it sees and tries the one that the goal prefers.

    One trial measures both, since they are the same machine.
    """

    name: ClassVar[str] = "per-machine"

    inner: Strategy

    @property
    def guarded(self) -> bool:
        """As the inner strategy."""
        return self.inner.guarded

    def suggest(self, problem: Problem, history: History, remaining: Remaining, count: int) -> tuple[Suggestion, ...]:
        """What the inner strategy would try."""
        view = _view(ProblemKey(problem))
        found = self.inner.suggest(view.problem, view.of_history(history), view.of_remaining(remaining), count)
        tried = history.tried
        answers = []
        for each in found:
            config = each.config
            if config in tried:  # its nodes were taken away
                config = next((c for c in view.markets[config.machine] if c not in tried), config)
                each = replace(each, config=config)  # noqa: PLW2901 - the same suggestion
            if config not in tried and remaining.allowed[problem.space.index[config]]:
                answers.append(each)
        return tuple(answers)

    def recommend(self, problem: Problem, history: History, remaining: Remaining) -> Plan | None:
        """The best of all that was measured, on either market, and fits."""
        return best_fitting(problem, history, remaining)

    def ending(self, problem: Problem, history: History, remaining: Remaining) -> str:
        """As the inner strategy says."""
        view = _view(ProblemKey(problem))
        return self.inner.ending(view.problem, view.of_history(history), view.of_remaining(remaining))


@dataclass(frozen=True, kw_only=True)
class _View:
    """A problem with one configuration for each machine.

    shown    that configuration, by machine
    markets  all of its configurations, by machine
    rows     its rows in the whole problem
    """

    problem: Problem
    shown: Mapping[Config, Config]
    markets: Mapping[Config, tuple[Config, ...]]
    rows: NDArray[np.intp]

    def of_history(self, history: History) -> History:
        """Each machine's own trials. What only follows from one, for the other market, is left out.

        A machine of which only spot nodes were tried and taken away is as if untried: on demand it can be measured.
        """
        tried = history.tried
        open_machines = {machine for machine, configs in self.markets.items() if any(c not in tried for c in configs)}
        found: list[Trial] = []
        seen: set[tuple[object, ...]] = set()
        for trial in history:
            config = self.shown[trial.config.machine]
            if isinstance(trial, Failure) and trial.kind is FailureKind.INTERRUPTED and config.machine in open_machines:
                continue
            if isinstance(trial, Measurement):
                key = (config, trial.samples_per_second, trial.seconds, trial.startup_seconds)
                if key in seen:
                    continue
                seen.add(key)
            found.append(replace(trial, config=config))
        return History(tuple(found))

    def of_remaining(self, remaining: Remaining) -> Remaining:
        """With the configurations of which a trial may start."""
        return replace(remaining, allowed=remaining.allowed[self.rows])


@lru_cache(maxsize=8)
def _view(key: ProblemKey) -> _View:
    whole = key.problem
    stretches, prices = whole.stretches, whole.dollars_per_second
    values = whole.goal.values(stretches, stretches * prices)
    if whole.goal.minimize is Objective.TIME and whole.goal.budget is not None:
        values = stretches * prices  # what is saved buys more nodes
    markets = by_machine(whole.space)
    shown = {
        machine: min(group, key=lambda config: float(values[whole.space.index[config]]))
        for machine, group in markets.items()
    }
    rows = np.array([whole.space.index[config] for config in shown.values()], dtype=np.intp)
    problem = replace(
        whole,
        space=Space(whole.space.knobs, tuple(shown.values())),
        usd_per_hour=tuple(whole.usd_per_hour[row] for row in rows),
        similar=tuple(whole.similar[row] for row in rows) if whole.similar else (),
    )
    return _View(problem=problem, shown=shown, markets=markets, rows=rows)
