"""Runs side by side: in words which took least, and a row for each fact, with the values that differ marked."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from mlcd.run.kind import Kind
from mlcd.run.run import Run
from mlcd.trial.outcome import Status
from mlcd.units import MICROS, Usd, format_seconds
from mlcd.web.api_types import RunNowJson


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One row; `best` has the columns with the least time or money, none where that means nothing."""

    name: str
    values: tuple[str, ...]
    best: tuple[int, ...] = ()

    @property
    def differs(self) -> bool:
        """Whether the runs differ in it."""
        return len(set(self.values)) > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What the training of a run took in the end, without the search."""

    seconds: float
    usd: Usd


def training_taken(run: Run[Any]) -> Taken | None:
    """None while the training has not ended, and of other kinds."""
    found = run.findings.train.receipt if run.findings and run.findings.train and run.kind is Kind.TRAIN else None
    if (
        found is None
        or found.run_is_predicted
        or found.run_failed
        or found.run_seconds is None
        or found.run_usd is None
    ):
        return None
    return Taken(seconds=found.run_seconds, usd=found.run_usd)


def compared(runs: Sequence[Run[Any]], now: Sequence[RunNowJson]) -> list[Fact]:
    """The facts of these runs; the least is marked where they are of one kind."""
    alike = len({run.kind for run in runs}) == 1

    def fact(name: str, text: Callable[[Run[Any], RunNowJson], str]) -> Fact:
        return Fact(name=name, values=tuple(text(run, each) for run, each in zip(runs, now, strict=True)))

    def least(name: str, number: Callable[[Run[Any], RunNowJson], float | None], text: Callable[[float], str]) -> Fact:
        found = [number(run, each) for run, each in zip(runs, now, strict=True)]
        shown = tuple("-" if value is None else text(value) for value in found)
        return Fact(name=name, values=shown, best=_least(found, text) if alike else ())

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
        *(
            [
                least(
                    "Its time, actual",
                    lambda run, _: each.seconds if (each := training_taken(run)) else None,
                    format_seconds,
                ),
                least(
                    "Its cost, actual",
                    lambda run, _: each.usd.dollars if (each := training_taken(run)) else None,
                    _money,
                ),
            ]
            if any(training_taken(run) for run in runs)
            else []
        ),
        fact("Trials", lambda _, each: str(each.trials)),
        least("Cost of the search", lambda run, _: run.search_usd.dollars if _searches(run) else None, _money),
        least("Time of the search", lambda run, _: run.search_seconds if _searches(run) else None, format_seconds),
        least("Spent in all", lambda _, each: each.spent_usd.dollars, _money),
        least("Time in all", lambda _, each: each.elapsed_seconds, format_seconds),
        *(
            [least("A million requests cost", lambda run, _: _per_million(run), _money)]
            if any(run.kind is Kind.SERVE for run in runs)
            else []
        ),
        fact("Budget", lambda _, each: "none" if each.budget_usd is None else str(each.budget_usd)),
        fact(
            "Deadline",
            lambda _, each: "none" if each.deadline_seconds is None else format_seconds(each.deadline_seconds),
        ),
        fact("Why the search ended", lambda run, _: run.stopped or "-"),
        fact("Prices of", lambda run, _: run.catalog_date),
        fact("mlcd", lambda run, _: run.version),
    ]


def verdict(runs: Sequence[Run[Any]], now: Sequence[RunNowJson]) -> tuple[str, ...]:
    """What each chose, then which of those that are done took the least time and money, in sentences."""
    choices = [each.best for each in now]
    if choices[0] is not None and len(set(choices)) == 1:
        told = [f"{'Both' if len(runs) == 2 else 'All'} chose {choices[0]}."]
    else:
        told = [f"{', '.join(_chose(run, each) for run, each in zip(runs, now, strict=True))}."]
    if len({run.kind for run in runs}) > 1:
        return (*told, "They are of different kinds: their times and costs do not compare.")
    if len({_work(run) for run in runs}) > 1:
        return (*told, "Their work differs: their times and costs do not compare.")
    done = [(run, each) for run, each in zip(runs, now, strict=True) if run.status is Status.DONE]
    if len(done) < len(runs):
        told.append(f"Not done: {', '.join(run.run_id for run in runs if run.status is not Status.DONE)}.")
    if len(done) < 2:
        return tuple(told)
    names = [run.run_id for run, _ in done]
    if runs[0].kind is Kind.SERVE:
        return (*told, *_winners(names, [_per_million(run) for run, _ in done], _money, "Least money a request"))
    seconds = [each.elapsed_seconds for _, each in done]
    return (
        *told,
        *_winners(names, seconds, format_seconds, "Least time, search included"),
        *_winners(names, [each.spent_usd.dollars for _, each in done], _money, "Least money, search included"),
    )


def _chose(run: Run[Any], now: RunNowJson) -> str:
    if run.kind is Kind.SERVERLESS:
        return f"{run.run_id} chose functions for each epoch"
    return f"{run.run_id} chose {now.best or 'nothing'}"


def _work(run: Run[Any]) -> object:
    """What has to be equal for times and costs to compare."""
    problem = run.problem
    if run.kind is Kind.SERVE:
        return None
    if run.kind is Kind.SERVERLESS:
        return problem.samples, problem.target_loss
    network = problem.blueprint  # of simulated jobs, and of those that describe their network
    return problem.work_samples, None if network is None else (network.flops_per_sample, network.parameter_bytes)


def _winners(
    names: Sequence[str], found: Sequence[float | None], text: Callable[[float], str], what: str
) -> tuple[str, ...]:
    """`Least time: a, 8 h 29 min; next: b, 8 h 30 min.`; that they are equal; nothing where one is not known."""
    known = [value for value in found if value is not None]
    if len(known) < len(found):
        return ()
    best = _least(found, text)
    if not best:
        return (f"{what}: equal, {text(known[0])}.",)
    rest = [at for at in range(len(known)) if at not in best]
    second = min(rest, key=lambda at: known[at])
    first = f"{' and '.join(names[at] for at in best)}, {text(known[best[0]])}"
    return (f"{what}: {first}; next: {names[second]}, {text(known[second])}.",)


def _least(found: Sequence[float | None], text: Callable[[float], str]) -> tuple[int, ...]:
    """Where the least value is, wherever it is shown the same; nowhere if all values are shown the same."""
    known = [value for value in found if value is not None]
    if len({text(value) for value in known}) < 2:
        return ()
    least = text(min(known))
    return tuple(at for at, value in enumerate(found) if value is not None and text(value) == least)


def _per_million(run: Run[Any]) -> float | None:
    """Dollars of a million requests to the server that was chosen."""
    found = run.findings.serve if run.findings else None
    return None if found is None or found.choice is None else found.choice.usd_per_million.dollars


def _searches(run: Run[Any]) -> bool:
    """Whether it has a search: a training on functions chooses while it trains."""
    return run.kind is not Kind.SERVERLESS


def _goal(run: Run[Any], _: RunNowJson) -> str:
    return run.problem.goal.serving_text if run.kind is Kind.SERVE else str(run.problem.goal)


def _money(dollars: float) -> str:
    return str(Usd(round(Fraction(dollars) * MICROS)))


def _dollars(usd: Usd | None) -> float | None:
    return None if usd is None else usd.dollars
