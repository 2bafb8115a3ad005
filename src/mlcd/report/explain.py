"""Why not X: for every deployment that was not chosen, the reason, in words and as a kind."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from mlcd.goal import Objective
from mlcd.ledger import Ledger, Refusal
from mlcd.report.account import keeps_reserve
from mlcd.report.pareto import measured_plans
from mlcd.report.wording import percent_text
from mlcd.space import Config
from mlcd.trial.plan import Plan
from mlcd.trial.record import RunRecord, TrialRow
from mlcd.trial.trial import Failure, Measurement
from mlcd.units import Usd, format_seconds


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
    """

    subject: str
    kind: Lost
    text: str
    config: Config | None = None
    number: int | None = None
    plan: Plan | None = None
    samples_per_second: float | None = None
    configurations: int = 1


def why_not(record: RunRecord) -> tuple[WhyNot, ...]:
    """All but the choice: the measured ones, best first in the goal's unit; the failed; the untried by type."""
    return (*_measured(record), *_failed(record), *_untried(record))


def ranked(record: RunRecord) -> tuple[Plan, ...]:
    """The measured plans, best first in the goal's unit; among equals the cheaper."""
    return tuple(sorted(measured_plans(record), key=lambda plan: (plan.value(record.problem), plan.usd)))


def _measured(record: RunRecord) -> Iterator[WhyNot]:
    rows = {row.trial.config: row for row in record.rows if isinstance(row.trial, Measurement)}
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


def _lost(record: RunRecord, plan: Plan, *, assured: bool) -> tuple[Lost, str]:
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
    if ratio > 1:
        kinds = {Objective.TIME: Lost.SLOWER, Objective.COST: Lost.DEARER, Objective.KNEE: Lost.WORSE_KNEE}
        return kinds[record.problem.goal.minimize], compared
    if ratio == 1:
        return Lost.TIED, f"{compared}, and costs no less"
    return Lost.PASSED_OVER, f"{compared}, but not what {record.strategy} chose"


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
    return f"{percent_text(ratio - 1)} {worse if ratio > 1 else better}"


def _over_budget(record: RunRecord, plan: Plan, *, assured: bool) -> tuple[Lost, str] | None:
    budget = record.problem.goal.budget
    if budget is None:
        return None
    total, worst = record.search_usd + plan.usd, record.search_usd + plan.worst_usd
    if total > budget:
        return Lost.OVER_BUDGET, f"would cost {total} with the search: {total - budget} over the budget"
    if worst > budget and assured:
        return Lost.OVER_BUDGET, f"could cost up to {worst} with the search: {worst - budget} over the budget"
    return None


def _late(record: RunRecord, plan: Plan, *, assured: bool) -> tuple[Lost, str] | None:
    deadline = record.problem.goal.deadline_seconds
    if deadline is None:
        return None
    late = record.search_seconds + plan.seconds - deadline
    if late > 0:
        return Lost.LATE, f"would end {format_seconds(late)} late"
    late = record.search_seconds + plan.worst_seconds - deadline
    if late > 0 and assured:
        return Lost.LATE, f"could end {format_seconds(late)} late"
    return None


def _failed(record: RunRecord) -> Iterator[WhyNot]:
    measured = {trial.config for trial in record.history.measured}
    last: dict[Config, TrialRow] = {row.trial.config: row for row in record.rows}
    for config, row in last.items():
        if config not in measured and isinstance(row.trial, Failure):
            message = f"{row.trial.kind}: {row.trial.message}" if row.trial.message else str(row.trial.kind)
            yield WhyNot(subject=str(config), kind=Lost.FAILED, text=message, config=config, number=row.number)


def _untried(record: RunRecord) -> Iterator[WhyNot]:
    problem, tried = record.problem, record.history.tried
    chosen = record.choice.config if record.choice else None
    groups: dict[str, list[Config]] = {}
    for config in problem.space:
        if config not in tried and config != chosen:
            groups.setdefault(config.instance, []).append(config)
    ledger = Ledger(
        problem=problem, history=record.history, spent=record.search_usd, elapsed_seconds=record.search_seconds
    )
    guarded = keeps_reserve(record)
    left = ledger.left()
    ended = record.stopped or ("the search ended before" if record.status.is_final else "the search has not ended")
    types_tried = {config.instance for config in tried}
    for instance, configs in groups.items():
        kind, text = Lost.NOT_TRIED, f"not tried: {ended}"
        if guarded and not any(left.allowed[problem.space.index[config]] for config in configs):
            cheapest = min(configs, key=lambda c: problem.worst_trial_micros[problem.space.index[c]])
            refusal = ledger.authorise(cheapest)
            kind = Lost.NOT_AFFORDABLE
            text = f"not tried: {refusal.reason if isinstance(refusal, Refusal) else 'not affordable'}"
        yield WhyNot(
            subject=_group(instance, configs, whole=instance not in types_tried),
            kind=kind,
            text=text,
            configurations=len(configs),
        )


def _group(instance: str, configs: list[Config], *, whole: bool) -> str:
    if len(configs) == 1:
        return str(configs[0])
    return f"{instance} ({'all' if whole else 'the other'} {len(configs)} node counts)"


def over(record: RunRecord) -> tuple[Usd | None, float | None]:
    """By how much the run broke its budget and its deadline; None where it did not."""
    goal = record.problem.goal
    usd = None if goal.budget is None else record.total_usd - goal.budget
    seconds = None if goal.deadline_seconds is None else record.total_seconds - goal.deadline_seconds
    return usd if usd is not None and usd.micros > 0 else None, seconds if seconds and seconds > 0 else None
