"""What the adapters share: mlcd's engine runs the trials, keeps the limits and counts; the library only suggests."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mlcd.problem import Problem
from mlcd.search.candidates import open_rows
from mlcd.search.first_looks import spread_start
from mlcd.search.strategy import MeasuredStrategy
from mlcd.space import Config
from mlcd.trial.plan import Plan, Remaining, plans
from mlcd.trial.trial import History, Suggestion

Rows = NDArray[np.intp]

START = 3
"""Quasi-random trials before the library is asked, as CherryPick makes: the libraries' own starts take 5 to 10."""


@dataclass(frozen=True, kw_only=True)
class Told:
    """A trial as the library is told of it.

    log_value   ln of the goal's value to minimise; one that failed counts as the worst measured one
    log_excess  ln of the plan's upper bound over what remains of the tighter limit; at most 0 where it fits
    """

    config: Config
    log_value: float
    log_excess: float

    @property
    def log_penalised(self) -> float:
        """What a user minimises who has no constraints: a plan that does not fit is worse by what it lacks."""
        return self.log_value + max(self.log_excess, 0.0)


@dataclass(frozen=True, kw_only=True)
class Peer(MeasuredStrategy):
    """A library that suggests the next trial; `steps` is how many its user would make.

    The search keeps limits: it ends early when the ledger allows no trial. A suggestion that was tried already or is
    not allowed is replaced by the nearest that is.
    """

    name: ClassVar[str]
    package: ClassVar[str]
    steps: int = 8

    @abstractmethod
    def ask(self, problem: Problem, told: list[Told], remaining: Remaining, rows: Rows) -> int | None:
        """The row to try next, of `rows`; None ends the search."""

    def suggest(self, problem: Problem, history: History, remaining: Remaining, count: int) -> tuple[Suggestion, ...]:  # noqa: ARG002
        """One trial: a quasi-random start, then what the library suggests."""
        candidates = open_rows(problem, history, remaining)
        if len(history.tried) >= self.steps or not candidates.any():
            return ()
        if len(history.tried) < START or not history.measured:
            return spread_start(problem, history, candidates, seed=self.seed, count=1)
        row = self.ask(problem, told(problem, history, remaining), remaining, np.flatnonzero(candidates))
        if row is None:
            return ()
        return (Suggestion(config=problem.space.configs[row], reason=f"suggested by {self.package}"),)

    def ending(self, problem: Problem, history: History, remaining: Remaining) -> str:  # noqa: ARG002
        """The trials were made, none is allowed, or the library wants none."""
        return f"{self.name} ended after {len(history.tried)} trials"


def told(problem: Problem, history: History, remaining: Remaining) -> list[Told]:
    """Every trial, in order."""
    by_config = {plan.config: plan for plan in plans(problem, history)}
    worst = max(by_config.values(), key=lambda plan: plan.value(problem))
    found = []
    for trial in history:
        plan = by_config.get(trial.config, worst)
        found.append(
            Told(config=trial.config, log_value=float(np.log(plan.value(problem))), log_excess=_excess(plan, remaining))
        )
    return found


def _excess(plan: Plan, remaining: Remaining) -> float:
    shares = [-np.inf]
    if remaining.seconds is not None:
        shares.append(np.log(plan.worst_seconds / max(remaining.seconds, 1e-9)))
    if remaining.usd is not None:
        shares.append(np.log(plan.worst_usd.dollars / max(remaining.usd.dollars, 1e-9)))
    return float(max(shares))


def nearest_row(problem: Problem, rows: Rows, instance: str, nodes: int) -> int:
    """The row that is nearest to a suggestion: of the same type if there is one, then by nodes and price of a node."""
    node_price = problem.dollars_per_second / problem.nodes
    same = np.array([problem.space.configs[row].instance == instance for row in rows])
    of_type = [row for row, config in enumerate(problem.space.configs) if config.instance == instance]
    apart = np.abs(np.log(problem.nodes[rows] / nodes))
    apart = apart + np.abs(np.log(node_price[rows] / node_price[of_type[0]])) + np.where(same, 0.0, 1e3)
    return int(rows[int(apart.argmin())])
