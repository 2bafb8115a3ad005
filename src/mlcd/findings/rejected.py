"""Why each configuration was not chosen: the reason in words and as a RejectionReason."""

from collections.abc import Iterator, Sequence

from mlcd.findings.outlook import kept_text
from mlcd.goal import Objective
from mlcd.ledger import Ledger
from mlcd.problem import Problem
from mlcd.run.findings import Receipt, RejectedConfig, RejectionReason, Untried, UntriedState, best_expected
from mlcd.run.run import SearchRun
from mlcd.run.step import Step
from mlcd.space import Config
from mlcd.space.placed import place_of
from mlcd.trial.markets import with_markets
from mlcd.trial.plan import Plan, tie
from mlcd.trial.trial import Failure, Measurement
from mlcd.units import MOST_SECONDS, MOST_USD, ZERO, Usd, format_seconds, percent_text

MOST_TYPES = 6
"""Types without a trial that have an entry each; more have one together."""


def rejected(
    run: SearchRun,
    remaining: Problem,
    ranked: Sequence[Plan],
    paid: Receipt,
    *,
    guarded: bool,
    known: Sequence[Untried] = (),
) -> tuple[RejectedConfig, ...]:
    """All configurations but the choice: measured (best first by the goal), failed, then untried, grouped by reason.

    remaining  the problem with the work that remains after the trials
    ranked     the plans of the measured configurations, best first
    guarded    whether every trial left room for training on the incumbent
    known      what was known of the untried ones
    """
    return (
        *_measured(run, ranked, paid, guarded=guarded),
        *_failed(run),
        *_untried(run, remaining, paid, guarded=guarded, known=known),
    )


def _measured(run: SearchRun, ranked: Sequence[Plan], paid: Receipt, *, guarded: bool) -> Iterator[RejectedConfig]:
    numbers = {row.trial.config: row.number for row in run.trials if isinstance(row.trial, Measurement)}
    known = with_markets(run.problem, run.history).measured
    speeds = {trial.config: trial.samples_per_second for trial in known}
    for plan in ranked:
        if run.choice is not None and plan.config == run.choice.config:
            continue
        reason, text = _lost(run, plan, paid, guarded=guarded)
        yield RejectedConfig(
            subject=str(plan.config),
            reason=reason,
            text=text,
            config=plan.config,
            trial=numbers.get(plan.config),  # None if its trial is reused from an earlier run
            plan=plan,
            samples_per_second=speeds[plan.config],
        )


def _lost(run: SearchRun, plan: Plan, paid: Receipt, *, guarded: bool) -> tuple[RejectionReason, str]:
    checks = (_unbookable(plan), _over_budget(plan, paid, guarded=guarded), _late(plan, paid, guarded=guarded))
    broken = [each for each in checks if each is not None]
    limits = " and ".join(text for _, text in broken)
    choice = run.choice
    if choice is None:
        fits = "fits the limits; nothing was chosen" if run.status.is_final else "fits the limits so far"
        return (broken[0][0], limits) if broken else (RejectionReason.OPEN, fits)
    ratio = plan.value(run.problem) / choice.value(run.problem)
    compared = _compared(run.problem.goal.minimize, ratio)
    if broken:
        return broken[0][0], f"{compared}, {'but' if ratio < 1 else 'and'} {limits}"
    worse_elsewhere = _worse_elsewhere(run.problem.goal.minimize, plan, choice)
    equal = tie(run.problem)
    if ratio < 1 and worse_elsewhere and ratio * (1 + equal) >= 1:
        near = (1 + equal) ** 2 - 1 if run.problem.goal.minimize is Objective.KNEE else equal
        return RejectionReason.TIED, f"{compared}, within {near * 100:.2g}% of it, but {worse_elsewhere}"
    if ratio > 1:
        kinds = {
            Objective.TIME: RejectionReason.SLOWER,
            Objective.COST: RejectionReason.DEARER,
            Objective.KNEE: RejectionReason.WORSE_KNEE,
        }
        return kinds[run.problem.goal.minimize], f"{compared} and {worse_elsewhere}" if worse_elsewhere else compared
    if ratio == 1:
        return RejectionReason.TIED, f"{compared}, and {worse_elsewhere or 'no better otherwise'}"
    if run.finished_trial is not None:
        return RejectionReason.PASSED_OVER, f"{compared}, but the last trial had done the rest of the work elsewhere"
    return RejectionReason.PASSED_OVER, f"{compared}, but not what {run.strategy} chose"


def _worse_elsewhere(minimize: Objective, plan: Plan, choice: Plan) -> str:
    """By how much `plan` is worse by the tie-breaker; empty where it is not."""
    if minimize is Objective.COST:
        later = plan.seconds - choice.seconds
        return f"takes {format_seconds(later)} longer" if later > 0 else ""
    return f"costs {plan.usd - choice.usd} more" if plan.usd > choice.usd else ""


def _compared(minimize: Objective, ratio: float) -> str:
    worse, better, times, equal = {
        Objective.TIME: ("takes {} longer", "takes {} less time", "takes {} times as long", "as fast"),
        Objective.COST: ("{} more expensive", "{} cheaper", "costs {} times as much", "as cheap"),
        Objective.KNEE: ("{} more time x cost", "{} less time x cost", "{} times the time x cost", "as good"),
    }[minimize]
    if minimize is Objective.KNEE:
        ratio = ratio**2
    if ratio >= 2:
        return times.format(f"{ratio:.1f}")
    if ratio == 1:
        return equal
    return (worse if ratio > 1 else better).format(percent_text(abs(ratio - 1)))


def _unbookable(plan: Plan) -> tuple[RejectionReason, str] | None:
    if plan.is_bookable:
        return None
    return RejectionReason.OVER_BUDGET, f"beyond what mlcd plans ({MOST_USD}, {format_seconds(MOST_SECONDS)})"


def _over_budget(plan: Plan, paid: Receipt, *, guarded: bool) -> tuple[RejectionReason, str] | None:
    budget = paid.cap_usd
    if budget is None:
        return None
    total, worst = paid.sunk_usd + plan.usd, paid.sunk_usd + plan.worst_usd
    if total > budget:
        return RejectionReason.OVER_BUDGET, f"would cost {total} with the search: {total - budget} over the budget"
    if worst > budget and guarded:
        return (
            RejectionReason.OVER_BUDGET,
            f"could cost up to {worst} with the search: {worst - budget} over the budget",
        )
    return None


def _late(plan: Plan, paid: Receipt, *, guarded: bool) -> tuple[RejectionReason, str] | None:
    deadline = paid.cap_seconds
    if deadline is None:
        return None
    late = paid.sunk_seconds + plan.seconds - deadline
    if late > 0:
        return RejectionReason.LATE, f"would end {format_seconds(late)} late"
    late = paid.sunk_seconds + plan.worst_seconds - deadline
    if late > 0 and guarded:
        return RejectionReason.LATE, f"could end {format_seconds(late)} late"
    return None


def _failed(run: SearchRun) -> Iterator[RejectedConfig]:
    measured = {trial.config for trial in with_markets(run.problem, run.history).measured}
    last: dict[Config, Step] = {row.trial.config: row for row in run.trials}
    for config, row in last.items():
        if config not in measured and isinstance(row.trial, Failure):
            message = f"{row.trial.kind}: {row.trial.message}" if row.trial.message else str(row.trial.kind)
            yield RejectedConfig(
                subject=str(config), reason=RejectionReason.FAILED, text=message, config=config, trial=row.number
            )


def _untried(
    run: SearchRun, problem: Problem, paid: Receipt, *, guarded: bool, known: Sequence[Untried]
) -> Iterator[RejectedConfig]:
    """One entry per reason: unaffordable types, each type without a trial (one for many), others of tried types."""
    tried = with_markets(run.problem, run.history).tried
    chosen = run.choice.config if run.choice else None
    types: dict[str, list[Config]] = {}
    for config in problem.space:
        if config not in tried and config != chosen:
            types.setdefault(config.instance, []).append(config)
    ledger = Ledger(problem=problem, history=run.history, spent=paid.sunk_usd, elapsed_seconds=paid.sunk_seconds)
    remaining = ledger.remaining()
    types_tried = {config.instance for config in tried} | ({chosen.instance} if chosen else set())
    alone = len(types.keys() - types_tried) <= MOST_TYPES
    groups: dict[tuple[RejectionReason, str, str, bool], list[Config]] = {}
    for instance, configs in types.items():
        reason, short_of = RejectionReason.NOT_TRIED, ""
        if guarded and not any(remaining.allowed[problem.space.index[config]] for config in configs):
            reason, short_of = RejectionReason.NOT_AFFORDABLE, _short_of(ledger, configs)
        if (place := place_of(instance)) in run.history.refused_places:
            reason, short_of = RejectionReason.NOT_TRIED, f"{place or 'the cloud'} refused to give nodes"
        some_tried = instance in types_tried
        own = instance if alone and not some_tried and reason is RejectionReason.NOT_TRIED else ""
        groups.setdefault((reason, short_of, own, some_tried), []).extend(configs)
    for (reason, short_of, _, some_tried), configs in groups.items():
        text = "not tried" if run.status.is_final else "not tried yet"
        if reason is RejectionReason.NOT_AFFORDABLE:
            text = f"not tried: {_refusal(ledger, configs, short_of)}"
        elif short_of:
            text = f"not tried: {short_of}"
        elif some_tried:
            text += _ended(run)
        else:
            text += _unworthy(run, problem, configs, known)
        yield RejectedConfig(
            subject=_group(configs, some_tried=some_tried),
            reason=reason,
            text=text,
            configurations=len(configs),
            instances=tuple({config.instance: None for config in configs}),
        )


def _ended(run: SearchRun) -> str:
    """`: no further trial is expected to pay for itself`: why the search ended, once the run has."""
    return f": {run.stopped}" if run.stopped and run.status.is_final else ""


def _unworthy(run: SearchRun, problem: Problem, configs: list[Config], known: Sequence[Untried]) -> str:
    """`: no further trial is expected to pay for itself; the model expects 2 h and $5 at best`: what is known of it."""
    why = _ended(run)
    among = set(configs)
    best = best_expected(problem.goal, (each for each in known if each.config in among))
    if best is None or best.seconds is None:
        return why
    where = "" if len(configs) == 1 else f", on {best.config}"
    over = " over a limit" if best.state is UntriedState.OVER_LIMIT else ""
    return f"{why}; the model expects {format_seconds(best.seconds)} and {best.usd} at best{over}{where}"


def _least(ledger: Ledger, configs: list[Config]) -> tuple[Usd, float]:
    """Worst-case cost of the cheapest trial, and worst-case seconds of the shortest."""
    problem = ledger.problem
    rows = [problem.space.index[config] for config in configs]
    micros = min(int(problem.worst_trial_micros[row]) for row in rows)
    return Usd(micros), min(float(problem.worst_trial_seconds[row]) for row in rows)


def _free(ledger: Ledger) -> tuple[Usd | None, float | None]:
    """The most that a trial may take: what remains, less the reserve."""
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
    """`a trial may cost $1.10 or more, and $0.40 is free besides $42.70 kept to ...`: each limit that is too tight."""
    problem, reserve = ledger.problem, ledger.incumbent()
    (usd, seconds), (free_usd, free_seconds) = _least(ledger, configs), _free(ledger)
    more = " or more" if len(configs) > 1 else ""
    parts = []
    if free_usd is not None and short_of != "time":
        kept = kept_text(problem, reserve, lambda plan: str(plan.worst_usd))
        parts.append(f"a trial may cost {usd}{more}, and {free_usd} is free{kept}")
    if free_seconds is not None and short_of != "money":
        kept = kept_text(problem, reserve, lambda plan: format_seconds(plan.worst_seconds))
        free = f"{format_seconds(free_seconds)} is free{kept}"
        parts.append(f"a trial may take {format_seconds(seconds)}{more}, and {free}")
    return "; ".join(parts)


def _group(configs: list[Config], *, some_tried: bool) -> str:
    if len(configs) == 1:
        return str(configs[0])
    names = listed([*{config.instance: None for config in configs}], "type")
    what = "deployments" if "batch" in configs[0].as_dict() else "node counts"
    what = "configurations" if configs[0].settings else what
    return f"{len(configs):,} other {what} of {names}" if some_tried else f"all {len(configs):,} of {names}"


def listed(names: Sequence[str], noun: str, *, width: int = 34) -> str:
    """`a, b and 3 more types`: as many of the first names as fit `width`, at least one."""
    shown = [names[0]]
    while len(shown) < len(names) and len(", ".join([*shown, names[len(shown)]])) <= width:
        shown.append(names[len(shown)])
    rest = len(names) - len(shown)
    if rest:
        return f"{', '.join(shown)} and {rest:,} more {noun}{'s' * (rest > 1)}"
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)
