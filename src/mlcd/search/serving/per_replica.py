"""Search for one node, choose for several: the strategy sees each type and setting once, not each number of nodes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np

from mlcd.goal import Objective
from mlcd.problem import Problem
from mlcd.search.serving.table_informed import ById
from mlcd.search.strategy import Strategy
from mlcd.space import Config, Space
from mlcd.trial.plan import Plan, Remaining, best_fitting
from mlcd.trial.replicas import Settings, at_nodes, by_settings, settings_of
from mlcd.trial.trial import History, Measurement, Suggestion, Trial


@dataclass(frozen=True, kw_only=True)
class PerReplica:
    """Any strategy over configurations without their number of nodes.

    A load test is made with the fewest nodes. The rate that is asked for needs several nodes, so it is not asked of
    one: the inner strategy looks for the most requests per dollar, or for the highest rate of all nodes together.
    """

    name: ClassVar[str] = "per-replica"

    inner: Strategy

    @property
    def guarded(self) -> bool:
        """As the inner strategy."""
        return self.inner.guarded

    def suggest(self, problem: Problem, history: History, remaining: Remaining, count: int) -> tuple[Suggestion, ...]:
        """What the inner strategy would try, with the fewest nodes."""
        view = _view(ById(problem))
        found = self.inner.suggest(view.problem, view.of_history(history), view.of_remaining(remaining), count)
        return tuple(replace(each, config=view.fewest[each.config]) for each in found)

    def recommend(self, problem: Problem, history: History, remaining: Remaining) -> Plan | None:
        """The best that was measured, or follows from what was measured, and fits."""
        return best_fitting(problem, history, remaining)

    def ending(self, problem: Problem, history: History, remaining: Remaining) -> str:
        """As the inner strategy says."""
        view = _view(ById(problem))
        return self.inner.ending(view.problem, view.of_history(history), view.of_remaining(remaining))


@dataclass(frozen=True, kw_only=True)
class _View:
    """A problem without the number of nodes.

    fewest  its configurations -> those of the whole problem with the fewest nodes, of which trials are made
    shown   the same, with the number of nodes that counts for the goal
    inside  by settings, its configurations
    """

    whole: Problem
    problem: Problem
    fewest: Mapping[Config, Config]
    shown: Mapping[Config, Config]
    inside: Mapping[Settings, Config]

    def of_history(self, history: History) -> History:
        """Each setting's own trials. What only follows from one, for another number of nodes, is left out."""
        first: dict[Settings, Trial] = {}
        found: list[Trial] = []
        for trial in history:
            key = settings_of(trial.config)
            if key in first and trial.config != first[key].config:
                continue
            first[key] = trial
            found.append(self._inside(trial))
        return History(tuple(found))

    def of_remaining(self, remaining: Remaining) -> Remaining:
        """With the configurations of which a trial may start."""
        rows = np.array([self.whole.space.index[self.fewest[config]] for config in self.problem.space], dtype=np.intp)
        return replace(remaining, allowed=remaining.allowed[rows])

    def _inside(self, trial: Trial) -> Trial:
        config = self.inside[settings_of(trial.config)]
        if isinstance(trial, Measurement):
            # Its paces stay those of the test: beliefs about them are about the requests in flight that are tried.
            trial = replace(at_nodes(trial, self.shown[config]), load=trial.load)
        return replace(trial, config=config)


@lru_cache(maxsize=8)
def _view(problem: "ById[Problem]") -> _View:
    whole = problem.value
    groups = by_settings(whole.space)
    inside = {key: Config(key) for key in groups}
    # Where every setting can have as many times the nodes, the highest rate of one is the highest of all together.
    growths = {group[-1].nodes / group[0].nodes for group in groups.values()}
    most = whole.goal.minimize is Objective.TIME and len(growths) > 1
    shown = {inside[key]: group[-1 if most else 0] for key, group in groups.items()}
    knobs = tuple(knob for knob in whole.space.knobs if knob.name != "nodes")
    space = Space(knobs, tuple(inside.values()))
    return _View(
        whole=whole,
        problem=replace(
            whole,
            space=space,
            usd_per_hour=tuple(whole.price(shown[config]) for config in space),
            lease_usd_per_hour=tuple(whole.lease_price(shown[config]) for config in space),
            goal=replace(whole.goal, rate=None),
            scales_out=False,
        ),
        fewest={inside[key]: group[0] for key, group in groups.items()},
        shown=shown,
        inside=inside,
    )
