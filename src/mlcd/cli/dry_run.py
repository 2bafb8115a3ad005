"""The first decision of a run that has not started, and the output of `mlcd train --dry-run`."""

from dataclasses import dataclass
from datetime import UTC, date, datetime

from mlcd.cli.catalog import age_text
from mlcd.cli.output import print_json, print_text
from mlcd.deciders.decision import Conclude, Start
from mlcd.deciders.search import SearchDecider
from mlcd.goal import goal_json
from mlcd.jobs.expected import JOBS, Expected, expected
from mlcd.jobs.prepared import Prepared
from mlcd.problem import Problem
from mlcd.report.text import Item, Line, Rows, Style
from mlcd.report.wording import plural
from mlcd.run.kind import Kind
from mlcd.run.step import Request
from mlcd.run.verdict import Relaxation
from mlcd.trial.outcome import Status
from mlcd.units import Usd, format_seconds


@dataclass(frozen=True, kw_only=True)
class FirstLook:
    """The first decision for a run that has not started.

    allowed      configurations whose first trial fits the limits
    relaxations  which limits would have to change if none fits
    expected     what search and run may cost, for jobs of several lengths
    """

    requests: tuple[Request, ...]
    allowed: int
    relaxations: tuple[Relaxation, ...]
    expected: tuple[Expected, ...]


def print_dry_run(prepared: Prepared[Problem], output: str) -> int:
    """Print the dry run; spend and write nothing. Returns the exit code: that of an infeasible run if no trial fits."""
    look = first_look(prepared)
    if output == "json":
        print_json(_json(prepared, look))
    else:
        print_text(*_items(prepared, look))
    return 0 if look.allowed else Status.INFEASIBLE.exit_code


def first_look(prepared: Prepared[Problem]) -> FirstLook:
    """What a run would decide first. Spends nothing."""
    run = prepared.new_run()
    decision = prepared.decider.next(run, 0.0)
    allowed = len(prepared.problem.space)
    if isinstance(prepared.decider, SearchDecider):
        allowed = prepared.decider.startable(run, 0.0)
    return FirstLook(
        expected=expected(prepared) if allowed and prepared.kind is Kind.TRAIN else (),
        requests=decision.requests if isinstance(decision, Start) else (),
        allowed=allowed,
        relaxations=decision.verdict.relaxations if isinstance(decision, Conclude) else (),
    )


def _prices(problem: Problem) -> tuple[Usd, Usd, Usd, Usd]:
    """(lowest, highest) planned cost of a trial, then the same for the worst case."""
    planned = [
        problem.price(config).for_seconds(seconds) + problem.move_to(config).trial_usd
        for config, seconds in zip(problem.space, problem.planned_trial_seconds.tolist(), strict=True)
    ]
    worst = problem.worst_trial_micros.tolist()
    return min(planned), max(planned), Usd(min(worst)), Usd(max(worst))


def _worst_seconds(problem: Problem) -> tuple[float, float]:
    """(shortest, longest) worst-case seconds of a trial."""
    return float(problem.worst_trial_seconds.min()), float(problem.worst_trial_seconds.max())


def _age(prepared: Prepared[Problem]) -> str:
    """` (107 days old)` of the prices, where they have a date."""
    try:
        day = date.fromisoformat(prepared.catalog_date)
    except ValueError:
        return ""
    return f" ({age_text((datetime.now(UTC).date() - day).days)})"


def _space_text(problem: Problem) -> str:
    types = len({config.instance for config in problem.space})
    deployments = len({(config.instance, config.nodes, config.as_dict().get("batch")) for config in problem.space})
    text = f"{plural(deployments, 'deployment')} of {plural(types, 'instance type')}"
    if not problem.space.settings:
        return text
    knobs = ", ".join(knob.name for knob in problem.space.settings)
    return f"{len(problem.space):,} configurations: {text}, with the knobs {knobs}"


def _items(prepared: Prepared[Problem], look: FirstLook) -> list[Item]:
    problem = prepared.problem
    goal = problem.goal
    low, high, worst_low, worst_high = _prices(problem)
    real = "simulated: nothing real is spent" if prepared.simulated else "real money"
    dated = f", prices of {prepared.catalog_date}{_age(prepared)}"
    if not prepared.simulated and not prepared.charged:
        real, dated = "nominal prices: nobody is charged", ""
    facts = [
        ["job", f"{problem.name}: {goal}"],
        ["where", f"{prepared.cloud} ({real}){dated}"],
        ["space", _space_text(problem)],
        ["budget", "none" if goal.budget is None else f"{goal.budget}, search and training together"],
        ["deadline", "none" if goal.deadline_seconds is None else f"{format_seconds(goal.deadline_seconds)} in all"],
        ["strategy", f"{prepared.strategy}, at most {problem.max_trials} trials, {prepared.parallel} at a time"],
        ["a trial's work", _WORKS[_work(problem)]],
        ["a trial, planned", _range((low, high))],
        ["a trial, at worst", f"{_range((worst_low, worst_high))}, {_range(_worst_seconds(problem))}"],
        ["within the limits", f"a first trial of {look.allowed:,} of {plural(len(problem.space), 'deployment')}"],
    ]
    if look.expected:
        estimated = f"an estimate from {JOBS} made-up jobs of each length; yours is not measured yet"
        facts.append(["what it may take", estimated])
        facts += [_expected_row(each) for each in look.expected]
    facts += [["notes" if at == 0 else "", note] for at, note in enumerate(prepared.notes)]
    items: list[Item] = [Line("Dry run: nothing is spent and nothing is written.", Style.HEADING)]
    items += [Rows(rows=facts, align="<<", indent=2, has_heads=False), Line()]
    if look.requests:
        title = "First trial" if len(look.requests) == 1 else "First trials, in parallel"
        rows = [[title, "authorised for at most", "why"]]
        for request in look.requests:
            allowed = request.authorisation
            rows.append([f"  {allowed.config}", f"{allowed.usd}, {format_seconds(allowed.seconds)}", request.reason])
        items.append(Rows(rows=rows, align="<><"))
    elif not look.allowed:
        items.append(Line("Nothing fits: " + "; ".join(r.text for r in look.relaxations)))
    elif prepared.reused:
        items.append(Line("What earlier runs measured is enough: the training would start without a trial."))
    else:
        items.append(Line(f"{prepared.strategy} chooses without trials."))
    return items


_WORKS = {
    "thrown": "is thrown away: the training follows the search, from its beginning",
    "kept": "is kept: each trial continues the training where the last one stopped",
    "beside": "is kept until the training runs; it starts on the first deployment that fits, and trials run beside it",
}


def _work(problem: Problem) -> str:
    return "beside" if problem.beside else "kept" if problem.keeps_work else "thrown"


def _expected_row(each: Expected) -> list[str]:
    head = f"  if the best takes {format_seconds(each.run_seconds)}"
    if not each.finished:
        return [head, "nothing would fit the limits"]
    few = "" if each.finished == each.jobs else f" ({each.finished} of {each.jobs} jobs fit the limits)"
    search = f"the search takes {_range(each.search_seconds)} and costs {_range(each.search_usd)}"
    return [head, f"{search}; with the training {_range(each.total_seconds)} and {_range(each.total_usd)}{few}"]


def _range(ends: tuple[Usd, Usd] | tuple[float, float]) -> str:
    low, high = (str(end) if isinstance(end, Usd) else format_seconds(end) for end in ends)
    return low if low == high else f"{low} to {high}"


def _json(prepared: Prepared[Problem], look: FirstLook) -> dict[str, object]:
    problem = prepared.problem
    low, high, worst_low, worst_high = _prices(problem)
    return {
        "dry_run": True,
        "kind": str(prepared.kind),
        "name": problem.name,
        "cloud": prepared.cloud,
        "simulated": prepared.simulated,
        "catalog_date": prepared.catalog_date,
        "goal": goal_json(problem.goal, text=str(problem.goal)),
        "strategy": prepared.strategy,
        "max_trials": problem.max_trials,
        "parallel": prepared.parallel,
        "work": _work(problem),
        "notes": list(prepared.notes),
        "configurations": len(problem.space),
        "configurations_within_limits": look.allowed,
        "ways_out": [way.text for way in look.relaxations],
        "trial_planned_usd": [low.dollars, high.dollars],
        "trial_worst_usd": [worst_low.dollars, worst_high.dollars],
        "trial_worst_seconds": list(_worst_seconds(problem)),
        "expected": [
            {
                "run_seconds": each.run_seconds,
                "jobs": each.jobs,
                "finished": each.finished,
                "trials": list(each.trials),
                "search_usd": [usd.dollars for usd in each.search_usd],
                "search_seconds": list(each.search_seconds),
                "total_usd": [usd.dollars for usd in each.total_usd],
                "total_seconds": list(each.total_seconds),
            }
            for each in look.expected
        ],
        "first_trials": [
            {
                "config": request.authorisation.config.as_dict(),
                "reason": request.reason,
                "authorised_usd": request.authorisation.usd.dollars,
                "authorised_seconds": request.authorisation.seconds,
            }
            for request in look.requests
        ],
    }
