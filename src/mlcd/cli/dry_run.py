"""What `mlcd train --dry-run` says: the question, what a trial may cost, what would be tried first."""

from dataclasses import replace

from mlcd.cli.output import print_json, print_text
from mlcd.jobs.train import Prepared
from mlcd.ledger import Authorisation, Ledger
from mlcd.problem import Problem
from mlcd.relaxation import relaxations
from mlcd.report.text import Item, Line, Rows, Style
from mlcd.spec import TrainSpec
from mlcd.trial.outcome import Status
from mlcd.trial.trial import History, Suggestion
from mlcd.units import Usd, format_seconds


def print_dry_run(spec: TrainSpec, prepared: Prepared, output: str) -> int:
    """Prints it, spends and writes nothing; the exit code: that of an infeasible run when not even a trial fits."""
    problem = prepared.setting.problem
    ledger = Ledger(problem=problem, history=History(), guarded=prepared.strategy.guarded)
    left = ledger.left()
    first = _first_round(prepared, ledger, min(spec.search.parallel, problem.max_trials))
    fits = bool(left.allowed.any())
    if output == "json":
        print_json(_json(spec, prepared, first, ledger))
    else:
        print_text(*_items(spec, prepared, first, ledger))
    return 0 if fits else Status.INFEASIBLE.exit_code


def _first_round(prepared: Prepared, ledger: Ledger, count: int) -> list[tuple[Suggestion, Authorisation]]:
    """The trials the run would start with, side by side, each authorised with those before it open."""
    granted: list[tuple[Suggestion, Authorisation]] = []
    for suggestion in prepared.strategy.suggest(ledger.problem, History(), ledger.left(), count):
        beside = replace(ledger, open=tuple(leave for _, leave in granted))
        answer = beside.authorise(suggestion.config)
        if isinstance(answer, Authorisation):
            granted.append((suggestion, answer))
    return granted


def _prices(problem: Problem) -> tuple[Usd, Usd, Usd, Usd]:
    """The least and most that a trial is planned to cost, then the same at worst."""
    planned = [
        price.for_seconds(seconds)
        for price, seconds in zip(problem.usd_per_hour, problem.planned_trial_seconds.tolist(), strict=True)
    ]
    worst = problem.worst_trial_micros.tolist()
    return min(planned), max(planned), Usd(min(worst)), Usd(max(worst))


def _worst_seconds(problem: Problem) -> tuple[float, float]:
    """The least and most that a trial can take."""
    return float(problem.worst_trial_seconds.min()), float(problem.worst_trial_seconds.max())


def _items(
    spec: TrainSpec, prepared: Prepared, first: list[tuple[Suggestion, Authorisation]], ledger: Ledger
) -> list[Item]:
    problem, cloud = prepared.setting.problem, prepared.setting.cloud
    goal = problem.goal
    low, high, worst_low, worst_high = _prices(problem)
    shortest, longest = (format_seconds(s) for s in _worst_seconds(problem))
    types = len({config.instance for config in problem.space})
    real = "simulated: nothing real is spent" if cloud.simulated else "real money"
    facts = [
        ["job", f"{problem.name}: {goal}"],
        ["where", f"{cloud.name} ({real}), prices of {prepared.catalog_date}"],
        ["space", f"{len(problem.space):,} deployments of {types} instance types"],
        *(["", note] for note in prepared.setting.notes),
        ["budget", "none" if goal.budget is None else f"{goal.budget}, search and training together"],
        ["deadline", "none" if goal.deadline_seconds is None else f"{format_seconds(goal.deadline_seconds)} in all"],
        ["strategy", f"{spec.search.strategy}, at most {problem.max_trials} trials, {spec.search.parallel} at a time"],
        ["a trial, planned", f"{low} .. {high}"],
        ["a trial, at worst", f"{worst_low} .. {worst_high}, {shortest} .. {longest}"],
        ["within the limits", f"a first trial of {int(ledger.left().allowed.sum()):,} of them"],
    ]
    items: list[Item] = [Line("Dry run: nothing is spent and nothing is written.", Style.HEADING)]
    items += [Rows(rows=facts, align="<<", indent=2, has_heads=False), Line()]
    if first:
        title = "First trial" if len(first) == 1 else "First trials, side by side"
        rows = [[title, "authorised for at most", "why"]]
        rows += [[f"  {s.config}", f"{a.usd}, {format_seconds(a.seconds)}", s.reason] for s, a in first]
        items.append(Rows(rows=rows, align="<><"))
    elif not ledger.left().allowed.any():
        items.append(Line("Nothing can fit: " + "; ".join(r.text for r in relaxations(ledger))))
    else:
        items.append(Line(f"{spec.search.strategy} tries nothing before it chooses."))
    return items


def _json(
    spec: TrainSpec, prepared: Prepared, first: list[tuple[Suggestion, Authorisation]], ledger: Ledger
) -> dict[str, object]:
    problem, cloud = prepared.setting.problem, prepared.setting.cloud
    low, high, worst_low, worst_high = _prices(problem)
    budget = problem.goal.budget
    return {
        "dry_run": True,
        "name": problem.name,
        "cloud": cloud.name,
        "simulated": cloud.simulated,
        "catalog_date": prepared.catalog_date,
        "goal": {
            "text": str(problem.goal),
            "minimize": str(problem.goal.minimize),
            "budget_usd": None if budget is None else budget.dollars,
            "deadline_seconds": problem.goal.deadline_seconds,
        },
        "strategy": spec.search.strategy,
        "max_trials": problem.max_trials,
        "parallel": spec.search.parallel,
        "notes": list(prepared.setting.notes),
        "configurations": len(problem.space),
        "configurations_within_limits": int(ledger.left().allowed.sum()),
        "trial_planned_usd": [low.dollars, high.dollars],
        "trial_worst_usd": [worst_low.dollars, worst_high.dollars],
        "trial_worst_seconds": list(_worst_seconds(problem)),
        "first_trials": [
            {
                "config": suggestion.config.as_dict(),
                "reason": suggestion.reason,
                "authorised_usd": leave.usd.dollars,
                "authorised_seconds": leave.seconds,
            }
            for suggestion, leave in first
        ],
    }
