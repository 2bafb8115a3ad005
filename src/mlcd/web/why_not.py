"""Why: what speaks for the choice, what failed, and what a run knows of another instance type or configuration."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from mlcd.findings.outlook import more_text
from mlcd.goal import Objective
from mlcd.report.serverless import instances_text
from mlcd.report.serving import caveats as serving_caveats
from mlcd.report.thinning import thinned
from mlcd.report.verdict import saving_texts
from mlcd.report.wording import plural, sentence
from mlcd.run.findings import RejectedConfig, RejectionReason, Untried, UntriedState
from mlcd.run.kind import Kind
from mlcd.run.run import EpochRun, Run, SearchRun
from mlcd.run.step import Role
from mlcd.trial.outcome import Status
from mlcd.trial.plan import tie
from mlcd.units import format_seconds
from mlcd.web.why_short import LIMITS, configs_of, in_short, type_in_short, untried_groups, with_verb

MOST_ANSWERS = 7
"""Sentences about one of them; the tables of the page have all."""
MOST_SUBJECTS = 300
MOST_COUNTS = 16
"""Numbers of functions that can be asked about; the map has more."""
FREE = "Free: what is left of a limit, less what is kept to train on the best choice so far."
"""Of runs of earlier versions, whose texts do not say what is kept."""
_BEST = {Objective.TIME: "fastest", Objective.COST: "cheapest", Objective.KNEE: "best by time x cost"}


def reason(run: Run[Any]) -> str:
    """Why the choice was chosen: against the next best, which was measured; "" where nothing was chosen or compared."""
    found = run.findings
    if run.kind is Kind.SERVERLESS:
        return _fleet_reason(cast(EpochRun, run))
    if found is None or run.choice is None:
        return ""
    if run.kind is Kind.SERVE:
        return _server_reason(cast(SearchRun, run))
    measured = [each for each in found.train.rejected if each.plan is not None] if found.train else []
    if not measured:
        return "It is the only deployment that was measured."
    best = _BEST[cast(SearchRun, run).problem.goal.minimize]
    told = f"The {best} that fits, of {plural(len(measured) + 1, 'measured deployment')}: "
    if any(each.reason is RejectionReason.PASSED_OVER for each in measured):
        told = f"What {run.strategy} chose: "
    elif any(each.reason is RejectionReason.TIED for each in measured):  # which may be a little faster
        told = f"One of the {best} that fit, of {plural(len(measured) + 1, 'measured deployment')}: "
    barred = [each for each in measured[:1] if each.reason in LIMITS and not _is_equal(run, each)]
    fitting = [each for each in measured if each.reason not in LIMITS][:1]
    return told + "; ".join(f"{each.subject} {with_verb(each.text)}" for each in (*barred, *fitting)) + "."


def _is_equal(run: Run[Any], rival: RejectedConfig) -> bool:
    """Whether it would not have been chosen without its limit either: it counts as equal to the choice."""
    problem, choice, plan = cast(SearchRun, run).problem, run.choice, rival.plan
    if plan is None or choice is None or plan.value(problem) * (1 + tie(problem)) < choice.value(problem):
        return False
    return plan.seconds > choice.seconds if problem.goal.minimize is Objective.COST else plan.usd > choice.usd


def _server_reason(run: SearchRun) -> str:
    """`The cheapest of 3 load-tested configurations. Next best: ...`, or with which it is equal."""
    found = run.serve_findings.rejected
    if not found:
        return "It is the only configuration that was load-tested."
    best, tested = _BEST[run.problem.goal.minimize], plural(len(found) + 1, "load-tested configuration")
    if run.status.is_final and all(each.reason in _BARRED for each in found):
        return f"It is the only one of {tested} within the limits. Nearest: {found[0].subject}: {found[0].text}."
    one = "One of the" if found[0].reason is RejectionReason.TIED else "The"
    return f"{one} {best} within the limits, of {tested}. Next best: {found[0].subject}: {found[0].text}."


_BARRED = (
    RejectionReason.BREAKS_SLO,
    RejectionReason.BELOW_RATE,
    RejectionReason.NOT_VERIFIED,
    RejectionReason.FAILED,
)
"""Why a load-tested configuration of a server is not within the limits."""


def compared(run: Run[Any]) -> tuple[str, str]:
    """(question, answer): what a training would have taken otherwise, as the report says it; "" where not known."""
    if run.findings is None or not run.status.is_final:
        return "", ""
    if run.kind is Kind.TRAIN:
        saved = saving_texts(cast(SearchRun, run))
        return "What did the search save?", f"Compared with {'; with '.join(saved)}." if saved else ""
    return "Is a plain instance better, as estimated?", instances_text(
        cast(EpochRun, run)
    ) if run.kind is Kind.SERVERLESS else ""


def caveats(run: Run[Any]) -> tuple[str, ...]:
    """What limits the answer, in sentences: those of the report."""
    if run.findings is None or not run.status.is_final:
        return ()
    return serving_caveats(cast(SearchRun, run)) if run.kind is Kind.SERVE else ()


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
    return (
        f"The scheduler ({run.strategy}) chose before each epoch; {share} ran on {functions} x {memory_mb:,} MB{edge}."
    )


def subjects(run: Run[Any]) -> tuple[str, ...]:
    """What can be asked about: instance types; also configurations of a server; memory and numbers of functions."""
    if run.kind is Kind.SERVERLESS:
        return tuple(_fleet_subjects(cast(EpochRun, run)))[:MOST_SUBJECTS]
    if run.findings is None:
        return ()
    space = cast(SearchRun, run).problem.space
    types = (
        tuple(dict.fromkeys(config.instance for config in space)) if "instance" in space.configs[0].as_dict() else ()
    )
    if run.kind is Kind.TRAIN:
        return types[:MOST_SUBJECTS]
    tried = [each.subject for each in _rejected(run)]
    configs = [str(each.config) for each in _untried_of(run)]
    return tuple(dict.fromkeys([*(types if len(types) > 1 else ()), *tried, *configs]))[:MOST_SUBJECTS]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Why one was not chosen.

    short  the answer first, with the number that decides
    more   every sentence about it, in full; empty if `short` says all
    """

    short: tuple[str, ...] = ()
    more: tuple[str, ...] = ()


def answer(run: Run[Any], subject: str) -> Answer:
    """Why this one of `subjects` was not chosen, or that it was; nothing for another text."""
    if run.kind is Kind.SERVERLESS:
        return Answer(short=_of_fleets(cast(EpochRun, run), subject))
    if run.kind is Kind.SERVE:
        told = tuple(sentence(each.text) + "." for each in _rejected(run) if each.subject == subject)
        if not told:
            untried = [each for each in _untried_of(run) if str(each.config) == subject]
            told = tuple(sentence(_untried_text(run, each)) + "." for each in untried)
        if told:
            short = tuple(in_short(each) for each in told)
            return Answer(short=short, more=told if short != told else ())
    if not subject or "instance" not in cast(SearchRun, run).problem.space.configs[0].as_dict():
        return Answer()  # as of a server on this machine
    tried, untried = _of_type(run, subject)
    known = {each.config for each in _untried_of(run)} | run.history.tried if run.findings is not None else set()
    whole = all(config in known for config in configs_of(run, subject)) if known else False
    short = type_in_short(run, subject, tried, untried, whole=whole)
    more = tuple(each for each in _in_full(run, subject, tried, untried) if each not in short)
    return Answer(short=short, more=more)


def _in_full(
    run: Run[Any], subject: str, tried: Sequence[RejectedConfig], untried: Sequence[Untried]
) -> tuple[str, ...]:
    found = [
        *(f"{sentence(each.subject)}: {each.text}." for each in tried),
        *_untried(run, untried),
        *_skipped(run, subject, untried),
    ]
    more = len(found) - MOST_ANSWERS
    old = any(re.search(r" is free(?! besides)", text) for text in found)
    return (
        *found[:MOST_ANSWERS],
        *([f"And {more} more: see the decisions, and the table of those that were rejected."] if more > 0 else ()),
        *([FREE] if old and run.choice is not None else ()),
    )


def _fleet_subjects(run: EpochRun) -> dict[str, tuple[int | None, int | None]]:
    """(functions, memory) of each subject of a training on functions."""
    from mlcd.findings.more_budget import fleet_choices  # noqa: PLC0415 - the models are imported once the page is there

    functions, memory_mb = fleet_choices(run)
    found: dict[str, tuple[int | None, int | None]] = {}
    if len(memory_mb) > 1:
        found |= {f"{each:,} MB": (None, each) for each in memory_mb}
    if len(functions) > 1:
        used = {each.fleet.functions for each in run.epochs}
        some = thinned(functions, MOST_COUNTS, keep=lambda each: each in used)
        found |= {plural(each, "function"): (each, None) for each in some}
    return found


def _of_fleets(run: EpochRun, subject: str) -> tuple[str, ...]:
    """How many epochs ran with this much memory, or so many functions, and what is expected of a whole training."""
    from mlcd.findings.more_budget import fleet_text  # noqa: PLC0415 - the models are imported once the page is there

    functions, memory_mb = _fleet_subjects(run).get(subject, (None, None))
    if functions is None and memory_mb is None:
        return ()
    count = sum(
        functions in (None, each.fleet.functions) and memory_mb in (None, each.fleet.memory_mb) for each in run.epochs
    )
    share = f"{count} of {len(run.epochs)} epochs" if count else f"None of {len(run.epochs)} epochs"
    return (f"{share} ran with {subject}.", fleet_text(run, functions=functions, memory_mb=memory_mb))


def _of_type(run: Run[Any], instance: str) -> tuple[list[RejectedConfig], list[Untried]]:
    """Those of a type that were tried, best first, and those that were not; else the group that the type is in."""
    if run.findings is None:
        return [], []
    untried = [each for each in _untried_of(run) if each.config.instance == instance]
    rejected = _rejected(run)
    own = [each for each in rejected if each.config is not None and each.config.instance == instance]
    groups = [each for each in rejected if each.config is None and instance in each.instances and not untried]
    return [*own, *groups], untried


def _skipped(run: Run[Any], instance: str, untried: Sequence[Untried]) -> Iterator[str]:
    found = run.findings
    if found is None or found.train is None or any(each.state is UntriedState.REFUSED for each in untried):
        return  # which says what its trial costs, and what was free at the end
    named = re.compile(rf"(?<![\w.-]){re.escape(instance)}(?![\w.-])")
    for step in found.train.account:
        for text in step.skipped:
            if named.search(text.partition(":")[0]):
                yield f"After trial {step.trial}, skipped {text}."


def _untried(run: Run[Any], untried: Sequence[Untried]) -> Iterator[str]:
    """Why those of a type were not tried: for each reason, the one that came nearest to being tried or chosen."""
    for group in untried_groups(run, untried):
        more = f" and {group.count - 1} more of its type" if group.count > 1 else ""
        if group.state is UntriedState.REFUSED:
            more = more_text(group.count - 1)
        yield f"{group.nearest.config}{more}: {_untried_text(run, group.nearest)}."


def _untried_text(run: Run[Any], untried: Untried) -> str:
    """The reason first: a trial or a limit that did not fit, else why the search ended; then what the model expects."""
    text = untried.text
    if untried.state not in (UntriedState.PREDICTED, UntriedState.NOT_TRIED) or not run.stopped:
        link = ", because " if untried.state is UntriedState.REFUSED else ": "
        return text if text.startswith("not tried") else f"not tried{link}{text}"
    why = f"not tried, because the search ended: {run.stopped}"
    if untried.state is UntriedState.NOT_TRIED:
        return why
    choice = f", against {format_seconds(run.choice.seconds)} and {run.choice.usd} of the choice" if run.choice else ""
    return f"{why}. {sentence(text.removeprefix('not tried; '))}{choice}"


def _untried_of(run: Run[Any]) -> tuple[Untried, ...]:
    found = run.findings
    if found is None:
        return ()
    return found.serve.untried_configs if found.serve else found.train.untried if found.train else ()


def _rejected(run: Run[Any]) -> tuple[RejectedConfig, ...]:
    found = run.findings
    if found is None:
        return ()
    return found.serve.rejected if found.serve else found.train.rejected if found.train else ()
