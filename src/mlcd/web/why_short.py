"""Why an instance type was not chosen, in short: the decisive number first, then how many were not tried, by reason."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from mlcd.goal import Objective
from mlcd.report.wording import sentence
from mlcd.run.findings import Receipt, RejectedConfig, RejectionReason, Untried, UntriedState
from mlcd.run.run import Run, SearchRun
from mlcd.space import Config
from mlcd.units import Usd, format_seconds

MOST_WORDS = 25
"""Of a sentence in short; the whole of it is below, with the rest."""
LIMITS = (RejectionReason.OVER_BUDGET, RejectionReason.LATE)
_ORDER = (
    UntriedState.PREDICTED,
    UntriedState.OVER_LIMIT,
    UntriedState.REFUSED,
    UntriedState.RULED_OUT,
    UntriedState.NOT_TRIED,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UntriedGroup:
    """Configurations that were not tried for the same reason.

    breaks   of those that are expected to break a limit: which, of "budget" and "deadline"
    nearest  the one that came nearest to being tried or chosen
    """

    state: UntriedState
    breaks: tuple[str, ...]
    count: int
    nearest: Untried


def untried_groups(run: Run[Any], untried: Sequence[Untried]) -> tuple[UntriedGroup, ...]:
    """One for each reason; those that could be chosen first."""
    problem, paid = cast(SearchRun, run).problem, paid_of(run)
    found: dict[tuple[UntriedState, tuple[str, ...]], list[Untried]] = {}
    for each in untried:
        breaks: tuple[str, ...] = ()
        if each.state is UntriedState.OVER_LIMIT and paid and each.seconds is not None and each.usd is not None:
            breaks = paid.broken_limits(each.seconds, each.usd)
        found.setdefault((each.state, breaks), []).append(each)
    prices, index = problem.worst_trial_micros, problem.space.index
    groups = []
    for (state, breaks), members in found.items():
        nearest = members[0]
        if state in (UntriedState.PREDICTED, UntriedState.OVER_LIMIT):
            by_cost = "budget" in breaks or (not breaks and problem.goal.minimize is Objective.COST)
            nearest = min(members, key=lambda each: _expected(each, by_cost=by_cost))
        elif state is UntriedState.REFUSED:
            nearest = min(members, key=lambda each: int(prices[index[each.config]]))
        groups.append(UntriedGroup(state=state, breaks=breaks, count=len(members), nearest=nearest))
    return tuple(sorted(groups, key=lambda group: (_ORDER.index(group.state), group.breaks)))


def paid_of(run: Run[Any]) -> Receipt | None:
    """The receipt of a training; None of other kinds."""
    return None if run.findings is None or run.findings.train is None else run.findings.train.receipt


def type_in_short(
    run: Run[Any], instance: str, tried: Sequence[RejectedConfig], untried: Sequence[Untried], *, whole: bool
) -> tuple[str, ...]:
    """The answer in a sentence, then at most two lines: what was not tried, and what could have been.

    tried  those of this type, best first
    whole  whether `untried` has all of its type that were not tried
    """
    groups = untried_groups(run, untried)
    lead = _lead(run, instance, tried)
    led = not lead and bool(groups)
    if led:
        lead = _untried_lead(run, groups[0])
        groups = groups if groups[0].state is UntriedState.PREDICTED else groups[1:]
    if not lead:
        return ()
    barred = [_barred(group) for group in groups if group.state in _BARRED]
    words = "Others not tried" if led else "Not tried"
    words += "" if run.status.is_final or run.stopped else " yet"
    some = "" if whole else ", on the map"
    lines = [f"{words}{some}: {_once('; '.join(barred), 'expected ')}."] if barred else []
    open_ = [each for each in groups if each.state not in _BARRED]
    lines += [line for group in open_[:1] if (line := _open(run, group, told=led))]
    return (lead, *lines)


def _once(text: str, word: str) -> str:
    """`text` with `word` where it stands first only."""
    before, found, after = text.partition(word)
    return before + found + after.replace(word, "")


_BARRED = (UntriedState.OVER_LIMIT, UntriedState.REFUSED, UntriedState.RULED_OUT)


def _lead(run: Run[Any], instance: str, tried: Sequence[RejectedConfig]) -> str:
    """The best of the type that was tried; "" if none was."""
    choice = run.choice
    measured = [each for each in tried if each.plan is not None]
    if choice is not None and choice.config.instance == instance:
        return f"{choice.config} was chosen."
    if measured:
        best = measured[0]
        is_better = choice is not None and best.plan is not None and _value(run, best) < choice.value(_problem(run))
        fitting = [each for each in measured if each.reason not in LIMITS]
        if fitting and not is_better:
            best = fitting[0]
        among = ", the only one tried," if len(measured) == 1 else f", the best of {len(measured)} tried,"
        return in_short(f"{best.subject}{among} {with_verb(best.text)}.", f"{best.subject} {with_verb(best.text)}.")
    return in_short(f"{sentence(tried[0].subject)}: {tried[0].text}.") if tried else ""


def with_verb(text: str) -> str:
    """`is 7.2% cheaper` of `7.2% cheaper`, and `takes 52% less time` as it is."""
    return f"is {text}" if text[:1].isdigit() or text.startswith(("as ", "$")) else text


def _untried_lead(run: Run[Any], group: UntriedGroup) -> str:
    each, count = group.nearest, group.count
    name = str(each.config)
    if group.state is UntriedState.REFUSED:
        least = f", the cheapest of {count}," if count > 1 else ""
        text = each.text.partition(" besides")[0].partition(";")[0].removeprefix("its ")
        noun, _, costs = text.partition(" costs ") if " costs " in text else text.partition(" takes ")
        verb = "costs" if " costs " in text else "takes"
        return in_short(
            f"Not tried: a {noun} of {name}{least} {verb} {costs}." if costs else f"Not tried: {each.text}."
        )
    if group.state is UntriedState.OVER_LIMIT:
        least = "" if count == 1 else f", the {'cheapest' if 'budget' in group.breaks else 'fastest'} of {count},"
        return f"Not tried: {name}{least} is expected to {_takes(each, group.breaks)}, {_over(run, group.breaks)}."
    if group.state is UntriedState.PREDICTED:
        least = f", the best of {count}," if count > 1 else ""
        return f"Not tried: {name}{least} is expected to {_takes(each, _units(run))}{_against(run)}."
    more = f" and {count - 1} more" if count > 1 else ""
    if group.state is UntriedState.RULED_OUT:
        return in_short(f"Not tried: {name}{more}: {each.text}.")
    return in_short(f"Not tried: {name}{more}{_ended(run)}.")


def _barred(group: UntriedGroup) -> str:
    """`11 expected over the budget`."""
    if group.state is UntriedState.OVER_LIMIT:
        names = {"budget": "over the budget", "deadline": "too late"}
        broken = [names[limit] for limit in group.breaks] or ["over a limit"]
        return f"{group.count} expected {broken[0] if len(broken) == 1 else 'over both limits'}"
    told = "ruled out by other trials"
    return f"{group.count} {'whose trial does not fit' if group.state is UntriedState.REFUSED else told}"


def _open(run: Run[Any], group: UntriedGroup, *, told: bool) -> str:
    """Those that could have been tried, and why none was: the best of them is not better, or the search ended."""
    ended = f"The search ended: {run.stopped}." if run.stopped else ""
    if group.state is UntriedState.NOT_TRIED:
        return in_short(f"{group.count} not tried{_ended(run)}.")
    is_better = run.choice is None or _expected_value(run, group.nearest) < run.choice.value(_problem(run))
    if told:
        return in_short(ended) if is_better else ""
    units = _units(run)
    time, usd = format_seconds(group.nearest.seconds or 0.0), str(group.nearest.usd)
    value = " and ".join([*([time] if "deadline" in units else []), *([usd] if "budget" in units else [])])
    few = "1 other is" if group.count == 1 else f"{group.count} others are"
    more = " or more" if group.count > 1 else ""
    but, word = "" if is_better else "but ", "in" if "deadline" in units else "for"
    line = f"{few} expected to fit, {but}{word} {value}{more}."
    return f"{line} {in_short(ended)}".rstrip() if is_better else line


def _ended(run: Run[Any]) -> str:
    return f", because the search ended: {run.stopped}" if run.stopped else ""


def _units(run: Run[Any]) -> tuple[str, ...]:
    """What the goal minimises, as the limits on it are named."""
    units = {Objective.TIME: ("deadline",), Objective.COST: ("budget",), Objective.KNEE: ("budget", "deadline")}
    return units[_problem(run).goal.minimize]


def _takes(each: Untried, units: Sequence[str]) -> str:
    """`take 7 h 2 min`, `cost $86.14`, `take 7 h 2 min and $86.14`."""
    if "deadline" not in units and units:
        return f"cost {each.usd}"
    seconds = format_seconds(each.seconds or 0.0)
    return f"take {seconds} and {each.usd}" if "budget" in units or not units else f"take {seconds}"


def _against(run: Run[Any]) -> str:
    choice = run.choice
    if choice is None:
        return ""
    units = _units(run)
    amounts = {"deadline": format_seconds(choice.seconds), "budget": str(choice.usd)}
    verb = "takes" if "deadline" in units else "costs"
    return f"; the choice {verb} {' and '.join(amounts[unit] for unit in ('deadline', 'budget') if unit in units)}"


def _over(run: Run[Any], breaks: Sequence[str]) -> str:
    """`over the $92.92 left`, `later than the 7 h 33 min left`, `over both limits`."""
    paid = paid_of(run)
    if paid is None or not breaks:
        return "over a limit"
    usd = f"the {max(paid.run_cap_usd or Usd(0), Usd(0))}"
    seconds = f"the {format_seconds(max(paid.run_cap_seconds or 0.0, 0.0))}"
    if len(breaks) > 1:
        return "over both limits"
    return f"over {usd} left" if "budget" in breaks else f"later than {seconds} left"


def in_short(text: str, *shorter: str) -> str:
    """The first that has at most MOST_WORDS; else the last without its second limit, then cut."""
    for each in (text, *shorter):
        if len(each.split()) <= MOST_WORDS:
            return each
    last = re.sub(r" and (would|could) end [^,;:]* late", "", (text, *shorter)[-1])
    words = last.split()
    return last if len(words) <= MOST_WORDS else " ".join(words[:MOST_WORDS]).rstrip(".,;:") + " ..."


def _problem(run: Run[Any]) -> Any:
    return cast(SearchRun, run).problem


def _value(run: Run[Any], each: RejectedConfig) -> float:
    return math.inf if each.plan is None else float(each.plan.value(_problem(run)))


def _expected_value(run: Run[Any], each: Untried) -> float:
    if each.seconds is None or each.usd is None:
        return math.inf
    return float(_problem(run).goal.value(each.seconds, each.usd.dollars))


def _expected(untried: Untried, *, by_cost: bool) -> float:
    """The dollars, or the seconds, that the model expects."""
    found = None if untried.usd is None else untried.usd.dollars
    found = found if by_cost else untried.seconds
    return math.inf if found is None else found


def configs_of(run: Run[Any], instance: str) -> list[Config]:
    """Those of the space of an instance type."""
    return [config for config in _problem(run).space if config.instance == instance]
