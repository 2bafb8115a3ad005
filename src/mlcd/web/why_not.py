"""Why not another one: what a run knows of each instance type, or of each configuration of a server, in sentences."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, cast

from mlcd.goal import Objective
from mlcd.report.wording import plural, sentence
from mlcd.run.findings import RejectedConfig, RejectionReason, Untried
from mlcd.run.kind import Kind
from mlcd.run.run import Run, SearchRun
from mlcd.units import format_seconds

MOST_ANSWERS = 6
"""Sentences about one of them; the tables of the page have all."""
MOST_SUBJECTS = 300
_LIMITS = (RejectionReason.OVER_BUDGET, RejectionReason.LATE)
_BEST = {Objective.TIME: "fastest", Objective.COST: "cheapest", Objective.KNEE: "best by time x cost"}


def reason(run: Run[Any]) -> str:
    """Why the choice was chosen: against the next best, which was measured; "" where nothing was chosen or compared."""
    found = run.findings
    if found is None or run.choice is None or run.kind is Kind.SERVERLESS:
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
        *([f"{more} more are in the table of those that were rejected."] if more > 0 else ()),
    )


def _of_type(run: Run[Any], instance: str) -> Iterator[str]:
    if run.findings is None or run.findings.train is None:
        return
    if run.choice is not None and run.choice.config.instance == instance:
        yield f"{run.choice.config} was chosen."
    for each in _rejected(run):
        if (each.config is not None and each.config.instance == instance) or instance in each.instances:
            yield f"{sentence(each.subject)}: {each.text}."
            if len(each.instances) > 1:
                yield from _expected(run.findings.train.untried, instance)
    named = re.compile(rf"(?<![\w.-]){re.escape(instance)}(?![\w.-])")
    for step in run.findings.train.account:
        for text in step.skipped:
            if named.search(text.partition(":")[0]):
                yield f"After trial {step.trial}, skipped {text}."


def _expected(untried: Sequence[Untried], instance: str) -> Iterator[str]:
    """What was known of the best of this type, where the entry is about many types."""
    known = [each for each in untried if each.config.instance == instance and each.seconds is not None]
    if known:
        best = min(known, key=lambda each: each.seconds or 0.0)
        price = "" if best.usd is None else f" and {best.usd}"
        yield f"Of {instance}, the model expects {format_seconds(best.seconds or 0.0)}{price} on {best.config}."


def _rejected(run: Run[Any]) -> tuple[RejectedConfig, ...]:
    found = run.findings
    if found is None:
        return ()
    return found.serve.rejected if found.serve else found.train.rejected if found.train else ()
