"""The decisions of a run in plain words, in order: what was tried and what came of it, skipped, chosen."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from mlcd.report.step_words import miss_text, outcome_text, place_text
from mlcd.report.thinning import MOST_ROWS, ends, left_out_text
from mlcd.report.wording import plural, sentence, watch_text
from mlcd.report.worth import worth
from mlcd.run.attempt import Attempt, Ending
from mlcd.run.kind import Kind
from mlcd.run.run import AnyRun, Run, SearchRun
from mlcd.run.step import Role, Step
from mlcd.trial.trial import Measurement
from mlcd.units import format_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionLine:
    """A decision, or what came of one.

    seconds  on the run's clock
    step     the number of the step that it is about; None for the others
    what     `tried`, `skipped`, `chosen`, `trained`, `ended`: one word for filters and icons
    """

    seconds: float
    what: str
    text: str
    step: int | None = None

    @property
    def when(self) -> str:
        """`12 min`; `start` at the very beginning."""
        return format_seconds(self.seconds) if self.seconds > 0 else "start"


def decisions(run: Run[Any]) -> tuple[DecisionLine, ...]:
    """The decisions of a run with findings, in order; of a very long one, the first and the last."""
    return tuple(ends(list(_lines(run)), MOST_ROWS))


def decisions_note(run: Run[Any]) -> str:
    """What `decisions` left out; "" if nothing."""
    return left_out_text(sum(1 for _ in _lines(run)), MOST_ROWS, "decisions", run.run_id)


def _lines(run: AnyRun) -> Iterator[DecisionLine]:
    worths = _worths(cast(SearchRun, run)) if run.kind is Kind.TRAIN else {}
    found = run.findings.train if run.findings else None
    skipped = {step.trial: step for step in found.account} if found else {}
    reused = len(run.header.reused)
    if reused:
        text = f"Reused {plural(reused, 'trial')} of earlier runs of the same job, at no price."
        yield DecisionLine(seconds=0.0, what="reused", text=text)
    verdict_told = False
    for step in run.steps:
        is_after = run.verdict is not None and step.started_seconds >= run.verdict.search_seconds
        if is_after and not verdict_told and run.kind is not Kind.SERVERLESS:
            yield from _verdict(run)
            verdict_told = True
        yield _of_step(run, step, worths.get(step.number, ""))
        entry = skipped.get(step.number)
        if entry is not None:
            for each in entry.skipped:
                yield DecisionLine(seconds=entry.elapsed_seconds, what="skipped", text=f"Skipped {each}.")
    if not verdict_told:
        yield from _verdict(run)
    served = run.findings.serve if run.findings and run.status.is_final else None
    if served is not None and served.choice is not None and run.choice is not None:
        config = served.choice.config
        if config != run.choice.config:
            text = f"Chose {config} instead: it held its rate in its verification."
            yield DecisionLine(seconds=run.step_seconds, what="chosen", text=text)


def _worths(run: SearchRun) -> dict[int, str]:
    """What each measured trial was worth, by its number."""
    texts: dict[int, str] = {}
    before, best = None, {}
    account = {step.trial: step for step in run.train_findings.account}
    for step in run.trials:
        entry = account.get(step.number)
        if entry is None or not isinstance(step.trial, Measurement):
            continue
        best[step.trial.config] = step.trial
        rival = None if entry.incumbent is None else best.get(entry.incumbent.config)
        texts[step.number] = worth(
            run.problem,
            step.trial,
            before,
            entry.incumbent,
            rival,
            spent=entry.spent,
            elapsed_seconds=entry.elapsed_seconds,
        )
        before = entry.incumbent
    return texts


def _of_step(run: AnyRun, step: Step, worth_text: str) -> DecisionLine:
    where, reason = place_text(step), f" ({step.reason})" if step.reason else ""
    came = ", ".join(filter(None, (outcome_text(run, step), miss_text(run, step))))
    paid = "" if step.outcome is None else f", for {format_seconds(step.outcome.seconds)} and {step.outcome.usd}"
    if step.role is Role.TRIAL:
        verb = "Trying" if step.outcome is None else "Tried"
        tail = f": {came}; {worth_text}" if worth_text else f": {came}{paid}"
        text = f"{verb} {where}{reason}{tail}."
        what = "tried"
    elif step.role is Role.EPOCH:
        verb = "Training" if step.outcome is None else "Trained"
        text, what = f"{verb} an epoch on {where}{reason}: {came}{paid}.", "epoch"
    elif step.role is Role.VERIFICATION:
        text, what = f"Verified {where}{reason}: {came}{paid}.", "verified"
    else:
        text, what = f"{_training_words(step)} {where}{reason}: {came}{paid}.", "trained"
    return DecisionLine(seconds=_when(run, step), what=what, text=text, step=step.number)


def _when(run: AnyRun, step: Step) -> float:
    """Its start; of a training, its end, unless something else was decided while it ran."""
    if step.role is not Role.TRAINING or step.outcome is None:
        return step.started_seconds
    end = step.started_seconds + step.outcome.seconds
    during = any(step.started_seconds <= each.started_seconds < end for each in run.steps if each is not step)
    return step.started_seconds if during else end


def _training_words(step: Step) -> str:
    if step.outcome is None:
        return "Training on"
    if isinstance(step.outcome, Attempt) and step.outcome.ending is Ending.CONTINUED:
        return "Trained for a while on"
    return "Trained on"


def _verdict(run: AnyRun) -> Iterator[DecisionLine]:
    verdict = run.verdict
    if verdict is None:
        return
    at = verdict.search_seconds or run.step_seconds
    if run.kind is Kind.SERVERLESS:
        if verdict.stopped:
            yield DecisionLine(seconds=run.step_seconds, what="ended", text=f"Ended: {verdict.stopped}.")
        return
    yield DecisionLine(seconds=at, what="ended", text=f"Ended the search: {verdict.stopped or 'nothing more to try'}.")
    choice = verdict.choice
    if choice is None:
        ways = "".join(f" {sentence(way.text)}." for way in verdict.relaxations)
        yield DecisionLine(seconds=at, what="chosen", text=f"Chose nothing: nothing measured fits.{ways}")
        return
    expected = "" if run.kind is Kind.SERVE else f": {format_seconds(choice.seconds)} and {choice.usd} expected"
    watch = f"; {watch_text(verdict.watch)}" if verdict.watch else ""
    yield DecisionLine(seconds=at, what="chosen", text=f"Chose {choice.config}{expected}{watch}.")
