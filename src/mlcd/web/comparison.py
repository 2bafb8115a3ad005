"""Runs side by side: a row for each fact, with the values that differ marked."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from mlcd.run.kind import Kind
from mlcd.run.run import Run
from mlcd.units import MICROS, Usd, format_seconds
from mlcd.web.api_types import RunNowJson


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One row; `best` is the column with the least time or money, None where that means nothing."""

    name: str
    values: tuple[str, ...]
    best: int | None = None

    @property
    def differs(self) -> bool:
        """Whether the runs differ in it."""
        return len(set(self.values)) > 1


def compared(runs: Sequence[Run[Any]], now: Sequence[RunNowJson]) -> list[Fact]:
    """The facts of these runs."""

    def fact(name: str, text: Callable[[Run[Any], RunNowJson], str]) -> Fact:
        return Fact(name=name, values=tuple(text(run, each) for run, each in zip(runs, now, strict=True)))

    def least(name: str, number: Callable[[Run[Any], RunNowJson], float | None], text: Callable[[float], str]) -> Fact:
        found = [number(run, each) for run, each in zip(runs, now, strict=True)]
        known = [value for value in found if value is not None]
        best = found.index(min(known)) if len(set(known)) > 1 else None
        return Fact(name=name, values=tuple("-" if value is None else text(value) for value in found), best=best)

    return [
        fact("State", lambda _, each: each.state),
        fact("Kind", lambda run, _: str(run.kind)),
        fact("Where", lambda run, _: run.cloud),
        fact("Goal", _goal),
        fact("Strategy", lambda run, _: run.strategy),
        fact("Seed", lambda run, _: str(run.seed)),
        fact("Chosen, or best so far", lambda _, each: each.best or "-"),
        least("Its time, expected", lambda _, each: each.best_seconds, format_seconds),
        least("Its cost, expected", lambda _, each: _dollars(each.best_usd), _money),
        fact("Trials", lambda _, each: str(each.trials)),
        least("Cost of the search", lambda run, _: run.search_usd.dollars if _searches(run) else None, _money),
        least("Time of the search", lambda run, _: run.search_seconds if _searches(run) else None, format_seconds),
        least("Spent in all", lambda _, each: each.spent_usd.dollars, _money),
        least("Time in all", lambda _, each: each.elapsed_seconds, format_seconds),
        fact("Budget", lambda _, each: "none" if each.budget_usd is None else str(each.budget_usd)),
        fact(
            "Deadline",
            lambda _, each: "none" if each.deadline_seconds is None else format_seconds(each.deadline_seconds),
        ),
        fact("Why the search ended", lambda run, _: run.stopped or "-"),
        fact("Prices of", lambda run, _: run.catalog_date),
        fact("mlcd", lambda run, _: run.version),
    ]


def _searches(run: Run[Any]) -> bool:
    """Whether it has a search: a training on functions chooses while it trains."""
    return run.kind is not Kind.SERVERLESS


def _goal(run: Run[Any], _: RunNowJson) -> str:
    return run.problem.goal.serving_text if run.kind is Kind.SERVE else str(run.problem.goal)


def _money(dollars: float) -> str:
    return str(Usd(round(Fraction(dollars) * MICROS)))


def _dollars(usd: Usd | None) -> float | None:
    return None if usd is None else usd.dollars
