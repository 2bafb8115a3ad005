"""Why not X: for every deployment that was not chosen, the reason, in words and as a kind."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from mlcd.goal import Objective
from mlcd.ledger import Ledger
from mlcd.models.standing import standing
from mlcd.report.account import keeps_reserve
from mlcd.report.pareto import measured_plans
from mlcd.report.receipt import gone_seconds, gone_usd
from mlcd.report.wording import listed, percent_text
from mlcd.run.run import SearchRun
from mlcd.run.step import Step
from mlcd.space import Config
from mlcd.trial.plan import Plan, tie
from mlcd.trial.trial import Failure, Measurement
from mlcd.units import ZERO, Usd, format_seconds


class Lost(StrEnum):
    """The main reason why a deployment is not the choice."""

    OVER_BUDGET = "over-budget"
    LATE = "late"
    SLOWER = "slower"
    DEARER = "dearer"
    WORSE_KNEE = "worse-knee"
    TIED = "tied"
    PASSED_OVER = "passed-over"
    OPEN = "open"
    FAILED = "failed"
    NOT_AFFORDABLE = "not-affordable"
    NOT_TRIED = "not-tried"


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyNot:
    """One deployment, or a group of untried ones, and why it lost.

    subject             the deployment in words; for a group what it is made of
    config, number      of a tried deployment (number: its last trial); None for a group
    plan                of a measured one
    configurations      how many the entry speaks of
    instances           the types of a group, all of them
    """

    subject: str
    kind: Lost
    text: str
    config: Config | None = None
    number: int | None = None
    plan: Plan | None = None
    samples_per_second: float | None = None
    configurations: int = 1
    instances: tuple[str, ...] = ()


def why_not(record: SearchRun) -> tuple[WhyNot, ...]:
    """All but the choice: the measured ones, best first in the goal's unit; the failed; the untried by reason."""
    return (*_measured(record), *_failed(record), *_untried(record))


def ranked(record: SearchRun) -> tuple[Plan, ...]:
    """The measured plans, best first in the goal's unit; among equals the cheaper."""
    return tuple(sorted(measured_plans(record), key=lambda plan: (plan.value(record.problem), plan.usd)))


def _measured(record: SearchRun) -> Iterator[WhyNot]:
    rows = {row.trial.config: row for row in record.trials if isinstance(row.trial, Measurement)}
    assured = keeps_reserve(record)
    for plan in ranked(record):
        if record.choice is not None and plan.config == record.choice.config:
            continue
        kind, text = _lost(record, plan, assured=assured)
        row = rows[plan.config]
        speed = row.trial.samples_per_second if isinstance(row.trial, Measurement) else None
        yield WhyNot(
            subject=str(plan.config),
            kind=kind,
            text=text,
            config=plan.config,
            number=row.number,
            plan=plan,
            samples_per_second=speed,
        )


def _lost(record: SearchRun, plan: Plan, *, assured: bool) -> tuple[Lost, str]:
    checks = (_over_budget(record, plan, assured=assured), _late(record, plan, assured=assured))
    broken = [each for each in checks if each is not None]
    limits = " and ".join(text for _, text in broken)
    choice = record.choice
    if choice is None:
        return (broken[0][0], limits) if broken else (Lost.OPEN, "fits what is left; nothing was chosen")
    ratio = plan.value(record.problem) / choice.value(record.problem)
    compared = _compared(record.problem.goal.minimize, ratio)
    if broken:
        return broken[0][0], f"{compared}, {'but' if ratio < 1 else 'and'} {limits}"
    dearer = _worse_elsewhere(record.problem.goal.minimize, plan, choice)
    equal = tie(record.problem)
    if ratio < 1 and dearer and ratio * (1 + equal) >= 1:
        near = (1 + equal) ** 2 - 1 if record.problem.goal.minimize is Objective.KNEE else equal
        return Lost.TIED, f"{compared}, within {near * 100:.2g}% of it, but {dearer}"
    if ratio > 1:
        kinds = {Objective.TIME: Lost.SLOWER, Objective.COST: Lost.DEARER, Objective.KNEE: Lost.WORSE_KNEE}
        return kinds[record.problem.goal.minimize], f"{compared}, and {dearer}" if dearer else compared
    if ratio == 1:
        return Lost.TIED, f"{compared}, and {dearer or 'no better otherwise'}"
    return Lost.PASSED_OVER, f"{compared}, but not what {record.strategy} chose"


def _worse_elsewhere(minimize: Objective, plan: Plan, choice: Plan) -> str:
    """By how much `plan` is worse in the unit that settles a tie; empty where it is not."""
    if minimize is Objective.COST:
        later = plan.seconds - choice.seconds
        return f"{format_seconds(later)} slower" if later > 0 else ""
    return f"{plan.usd - choice.usd} dearer" if plan.usd > choice.usd else ""


def _compared(minimize: Objective, ratio: float) -> str:
    worse, better, times = {
        Objective.TIME: ("slower", "faster", "takes {} times as long"),
        Objective.COST: ("dearer", "cheaper", "costs {} times as much"),
        Objective.KNEE: ("more time x cost", "less time x cost", "{} times the time x cost"),
    }[minimize]
    if minimize is Objective.KNEE:
        ratio = ratio**2
    if ratio >= 2:
        return times.format(f"{ratio:.1f}")
    if ratio == 1:
        return {"slower": "as fast", "dearer": "as cheap"}.get(worse, "as good")
    if minimize is Objective.TIME and ratio < 1:  # speed: 16% slower one way is 16% faster the other
        return f"{1 / ratio:.1f} times as fast" if ratio <= 0.5 else f"{percent_text(1 / ratio - 1)} {better}"
    return f"{percent_text(ratio - 1)} {worse if ratio > 1 else better}"


def _over_budget(record: SearchRun, plan: Plan, *, assured: bool) -> tuple[Lost, str] | None:
    budget = record.problem.goal.budget
    if budget is None:
        return None
    paid = gone_usd(record)
    total, worst = paid + plan.usd, paid + plan.worst_usd
    if total > budget:
        return Lost.OVER_BUDGET, f"would cost {total} with the search: {total - budget} over the budget"
    if worst > budget and assured:
        return Lost.OVER_BUDGET, f"could cost up to {worst} with the search: {worst - budget} over the budget"
    return None


def _late(record: SearchRun, plan: Plan, *, assured: bool) -> tuple[Lost, str] | None:
    deadline = record.problem.goal.deadline_seconds
    if deadline is None:
        return None
    late = gone_seconds(record) + plan.seconds - deadline
    if late > 0:
        return Lost.LATE, f"would end {format_seconds(late)} late"
    late = gone_seconds(record) + plan.worst_seconds - deadline
    if late > 0 and assured:
        return Lost.LATE, f"could end {format_seconds(late)} late"
    return None


def _failed(record: SearchRun) -> Iterator[WhyNot]:
    measured = {trial.config for trial in record.history.measured}
    last: dict[Config, Step] = {row.trial.config: row for row in record.trials}
    for config, row in last.items():
        if config not in measured and isinstance(row.trial, Failure):
            message = f"{row.trial.kind}: {row.trial.message}" if row.trial.message else str(row.trial.kind)
            yield WhyNot(subject=str(config), kind=Lost.FAILED, text=message, config=config, number=row.number)


def _untried(record: SearchRun) -> Iterator[WhyNot]:
    """One entry a reason: types that could not be afforded, types without a trial, other node counts of the tried."""
    problem, tried = standing(record.problem, record.history), record.history.tried
    chosen = record.choice.config if record.choice else None
    types: dict[str, list[Config]] = {}
    for config in problem.space:
        if config not in tried and config != chosen:
            types.setdefault(config.instance, []).append(config)
    ledger = Ledger(
        problem=problem, history=record.history, spent=gone_usd(record), elapsed_seconds=gone_seconds(record)
    )
    guarded, left = keeps_reserve(record), ledger.left()
    types_tried = {config.instance for config in tried} | ({chosen.instance} if chosen else set())
    groups: dict[tuple[Lost, str, bool], list[Config]] = {}
    for instance, configs in types.items():
        kind, short_of = Lost.NOT_TRIED, ""
        if guarded and not any(left.allowed[problem.space.index[config]] for config in configs):
            kind, short_of = Lost.NOT_AFFORDABLE, _short_of(ledger, configs)
        groups.setdefault((kind, short_of, instance in types_tried), []).extend(configs)
    for (kind, short_of, some_tried), configs in groups.items():
        text = "not tried" if record.status.is_final else "not tried yet"
        if kind is Lost.NOT_AFFORDABLE:
            text = f"not tried: {_refusal(ledger, configs, short_of)}"
        yield WhyNot(
            subject=_group(configs, some_tried=some_tried),
            kind=kind,
            text=text,
            configurations=len(configs),
            instances=tuple({config.instance: None for config in configs}),
        )


def _least(ledger: Ledger, configs: list[Config]) -> tuple[Usd, float]:
    """The cheapest trial's worst price, and the shortest one's worst time."""
    problem = ledger.problem
    rows = [problem.space.index[config] for config in configs]
    micros = min(int(problem.worst_trial_micros[row]) for row in rows)
    return Usd(micros), min(float(problem.worst_trial_seconds[row]) for row in rows)


def _free(ledger: Ledger) -> tuple[Usd | None, float | None]:
    """What a trial may take at most: what is left less the reserve."""
    reserve, usd, seconds = ledger.incumbent(), ledger.usd_left, ledger.seconds_left
    if reserve is not None:
        usd = None if usd is None else usd - reserve.worst_usd
        seconds = None if seconds is None else seconds - reserve.worst_seconds
    return None if usd is None else max(usd, ZERO), None if seconds is None else max(seconds, 0.0)


def _short_of(ledger: Ledger, configs: list[Config]) -> str:
    (usd, seconds), (free_usd, free_seconds) = _least(ledger, configs), _free(ledger)
    if free_usd is not None and usd > free_usd:
        return "money"
    return "time" if free_seconds is not None and seconds > free_seconds else "both"


def _refusal(ledger: Ledger, configs: list[Config], short_of: str) -> str:
    """`a trial may cost $1.10 or more, and $0.40 is free`: in the units that have a limit and are short."""
    (usd, seconds), (free_usd, free_seconds) = _least(ledger, configs), _free(ledger)
    more = " or more" if len(configs) > 1 else ""
    parts = []
    if free_usd is not None and short_of != "time":
        parts.append(f"a trial may cost {usd}{more}, and {free_usd} is free")
    if free_seconds is not None and short_of != "money":
        parts.append(f"a trial may take {format_seconds(seconds)}{more}, and {format_seconds(free_seconds)} is free")
    reserve = ledger.incumbent()
    kept = "" if reserve is None else f" beside what is kept to train on {reserve.config}"
    return "; ".join(parts) + kept


def _group(configs: list[Config], *, some_tried: bool) -> str:
    if len(configs) == 1:
        return str(configs[0])
    names = listed([*{config.instance: None for config in configs}], "type")
    what = "deployments" if "batch" in configs[0].as_dict() else "node counts"
    return f"{len(configs):,} other {what} of {names}" if some_tried else f"all {len(configs):,} of {names}"


def over(record: SearchRun) -> tuple[Usd | None, float | None]:
    """By how much the run broke its budget and its deadline; None where it did not."""
    goal = record.problem.goal
    usd = None if goal.budget is None else record.total_usd - goal.budget
    seconds = None if goal.deadline_seconds is None else record.total_seconds - goal.deadline_seconds
    return usd if usd is not None and usd.micros > 0 else None, seconds if seconds and seconds > 0 else None
