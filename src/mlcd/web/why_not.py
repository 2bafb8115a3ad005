"""Why: what speaks for the choice, what failed, and what a run knows of another instance type or configuration."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, cast

from mlcd.findings.outlook import more_text
from mlcd.goal import Objective
from mlcd.report.wording import plural, sentence
from mlcd.run.findings import RejectedConfig, RejectionReason, Untried, UntriedState
from mlcd.run.kind import Kind
from mlcd.run.run import EpochRun, Run, SearchRun
from mlcd.run.step import Role
from mlcd.trial.outcome import Status

MOST_ANSWERS = 7
"""Sentences about one of them; the tables of the page have all."""
MOST_SUBJECTS = 300
FREE = "Free: what a limit leaves besides the reserve, which is kept to train on the best choice so far."
_LIMITS = (RejectionReason.OVER_BUDGET, RejectionReason.LATE)
_EXPECTED = (UntriedState.PREDICTED, UntriedState.OVER_LIMIT)
_BEST = {Objective.TIME: "fastest", Objective.COST: "cheapest", Objective.KNEE: "best by time x cost"}


def reason(run: Run[Any]) -> str:
    """Why the choice was chosen: against the next best, which was measured; "" where nothing was chosen or compared."""
    found = run.findings
    if run.kind is Kind.SERVERLESS:
        return _fleet_reason(cast(EpochRun, run))
    if found is None or run.choice is None:
        return ""
    if run.kind is Kind.SERVE:
        rivals = found.serve.rejected if found.serve else ()
        return f"Next best: {rivals[0].subject}: {rivals[0].text}." if rivals else ""
    measured = [each for each in found.train.rejected if each.plan is not None] if found.train else []
    if not measured:
        return "It is the only deployment that was measured."
    best = _BEST[cast(SearchRun, run).problem.goal.minimize]
    told = f"The {best} that fits, of {plural(len(measured) + 1, 'measured deployment')}: "
    if any(each.reason is RejectionReason.PASSED_OVER for each in measured):
        told = f"What {run.strategy} chose: "
    elif any(each.reason is RejectionReason.TIED for each in measured):  # which may be a little faster
        told = f"One of the {best} that fit, of {plural(len(measured) + 1, 'measured deployment')}: "
    barred = [each for each in measured[:1] if each.reason in _LIMITS]
    fitting = [each for each in measured if each.reason not in _LIMITS][:1]
    return told + "; ".join(f"{each.subject} {each.text}" for each in (*barred, *fitting)) + "."


_FAILED = (Status.RUN_FAILED, Status.ALL_FAILED, Status.OVERRAN, Status.OUTPUT_MISSING, Status.REFUSED)


def failure(run: Run[Any]) -> str:
    """What went wrong in a run that failed: its last step that has a message; "" of other runs."""
    if run.status not in _FAILED:
        return ""
    for step in reversed(run.steps):
        message = getattr(step.outcome, "message", "")
        missing = getattr(step.outcome, "missing_outputs", ())
        if message or missing:
            where = step.fleet if step.role is Role.EPOCH else step.config
            what = message or f"it did not leave {', '.join(missing)}"
            return f"{sentence(str(step.role))} {step.number} on {where}: {what}"
    return ""


def _fleet_reason(run: EpochRun) -> str:
    """Which functions most epochs ran on, and whether the job allows more of them; "" before the first epoch."""
    used = Counter((each.fleet.functions, each.fleet.memory_mb) for each in run.epochs)
    if not used:
        return ""
    (functions, memory_mb), count = used.most_common(1)[0]
    ends = [
        f"the {word} {what}"
        for what, value, allowed in (
            ("functions", functions, run.problem.functions),
            ("memory", memory_mb, run.problem.memory_mb),
        )
        for word, end in (("most", allowed[-1]), ("least", allowed[0]))
        if value == end and len(allowed) > 1
    ]
    edge = f": {' and '.join(ends)} that the job allows" if ends else ""
    share = f"{count} of {len(run.epochs)}"
    return f"{run.strategy} chose for each epoch; {share} ran on {functions} x {memory_mb:,} MB{edge}."


def subjects(run: Run[Any]) -> tuple[str, ...]:
    """What can be asked about: instance types of a training, rejected configurations of a server; none of functions."""
    if run.findings is None or run.kind is Kind.SERVERLESS:
        return ()
    if run.kind is Kind.SERVE:
        return tuple(dict.fromkeys(each.subject for each in _rejected(run)))[:MOST_SUBJECTS]
    return tuple(dict.fromkeys(config.instance for config in cast(SearchRun, run).problem.space))[:MOST_SUBJECTS]


def answers(run: Run[Any], subject: str) -> tuple[str, ...]:
    """Why this one of `subjects` was not chosen, or that it was; nothing for another text."""
    if run.kind is Kind.SERVE:
        return tuple(sentence(each.text) + "." for each in _rejected(run) if each.subject == subject)
    found = [*_of_type(run, subject)]
    more = len(found) - MOST_ANSWERS
    return (
        *found[:MOST_ANSWERS],
        *([f"And {more} more: see the decisions, and the table of those that were rejected."] if more > 0 else ()),
        *([FREE] if any(" is free" in text for text in found) else ()),
    )


def _of_type(run: Run[Any], instance: str) -> Iterator[str]:
    if run.findings is None or run.findings.train is None:
        return
    if run.choice is not None and run.choice.config.instance == instance:
        yield f"{run.choice.config} was chosen."
    untried = [each for each in run.findings.train.untried if each.config.instance == instance]
    for each in _rejected(run):
        is_of_type = each.config.instance == instance if each.config else instance in each.instances and not untried
        if is_of_type:
            yield f"{sentence(each.subject)}: {each.text}."
    yield from _untried(run, untried)
    named = re.compile(rf"(?<![\w.-]){re.escape(instance)}(?![\w.-])")
    for step in run.findings.train.account:
        for text in step.skipped:
            if named.search(text.partition(":")[0]):
                yield f"After trial {step.trial}, skipped {text}."


def _untried(run: Run[Any], untried: Sequence[Untried]) -> Iterator[str]:
    """Why those of a type were not tried: for each reason, the one that came nearest to being tried or chosen."""
    problem = cast(SearchRun, run).problem
    goal, prices = problem.goal, problem.worst_trial_micros
    has_room = False
    for state in UntriedState:
        of_state = [each for each in untried if each.state is state]
        if not of_state:
            continue
        nearest = of_state[0]
        if state in _EXPECTED:
            by_cost = goal.budget is not None if state is UntriedState.OVER_LIMIT else goal.minimize is Objective.COST
            nearest = min(of_state, key=lambda each: _expected(each, by_cost=by_cost))
        more = f" and {len(of_state) - 1} more of its type" if len(of_state) > 1 else ""
        if state is UntriedState.REFUSED:
            nearest = min(of_state, key=lambda each: int(prices[problem.space.index[each.config]]))
            more = more_text(len(of_state) - 1)
        text = nearest.text if nearest.text.startswith("not tried") else f"not tried: {nearest.text}"
        has_room = has_room or state is not UntriedState.REFUSED
        yield f"{nearest.config}{more}: {text}."
    if has_room and run.stopped:
        yield f"The search ended: {run.stopped}."


def _expected(untried: Untried, *, by_cost: bool) -> float:
    """The dollars, or the seconds, that the model expects."""
    found = None if untried.usd is None else untried.usd.dollars
    found = found if by_cost else untried.seconds
    return math.inf if found is None else found


def _rejected(run: Run[Any]) -> tuple[RejectedConfig, ...]:
    found = run.findings
    if found is None:
        return ()
    return found.serve.rejected if found.serve else found.train.rejected if found.train else ()
