"""A training run as text: the choice, the receipt, why the others were rejected, a small plot."""

import math
from collections.abc import Sequence

from mlcd.report.batches import batch_notes
from mlcd.report.node_metrics import metrics_text
from mlcd.report.origin import is_replayed, origin, origin_lines
from mlcd.report.receipt_lines import receipt_rows, train_lines
from mlcd.report.text import Item, Line, Rows, Style, paragraphs, rendered, texts
from mlcd.report.text_plot import text_plot
from mlcd.report.thinning import MOST_LINES, MOST_NAMED, ends, left_out_text, listed
from mlcd.report.wording import assurance_text, plural, sentence, speed_text, watch_text
from mlcd.run.attempt import Attempt, Ending
from mlcd.run.findings import Receipt, RejectionReason, Saving
from mlcd.run.header import ReusedTrial
from mlcd.run.run import SearchRun
from mlcd.run.verdict import Relaxation
from mlcd.trial.markets import with_markets
from mlcd.trial.outcome import Status
from mlcd.trial.plan import Plan
from mlcd.units import Usd, format_seconds

TOP_PLANS = 5
_PLOT_COLUMNS = 72


def verdict(record: SearchRun, *, plain: bool = False, width: int | None = None, colour: bool = False) -> str:
    """The whole answer, without a newline at its end: about 100 columns, or as wide as the terminal.

    plain  ASCII only, for terminals that cannot show more
    width  of the terminal; None: no limit
    """
    parts: list[Sequence[Item]] = [origin_lines(origin(record)), _answer(record), _relaxations(record)]
    if record.status in _ALL_LISTED:
        parts.append(_failures(record))
    parts.append(_reused(record))
    if record.trials or record.choice:
        parts.append(_receipt(record, record.train_findings.receipt))
    parts += [_top(record), _others(record), metrics_text(record), _plot(record, plain, width), _more(record)]
    return rendered(paragraphs(parts), width=width, colour=colour)


def _plot(record: SearchRun, plain: bool, width: int | None) -> list[Item]:
    room = _PLOT_COLUMNS if width is None else min(_PLOT_COLUMNS, width - 8)
    lines = text_plot(record, width=room, plain=plain)
    title = "Job time over nodes" if is_replayed(record) else "Speed (samples/s) over nodes"
    return [Line(title, Style.HEADING), *(Line(line, is_drawn=True) for line in lines)] if lines else []


def headline(record: SearchRun) -> list[str]:
    """The goal, the result, and further sentences about it."""
    return texts([item for item in _answer(record) if isinstance(item, Line)])


def _answer(record: SearchRun) -> list[Item]:
    asked = f"{record.problem.name}: {record.problem.goal}"
    ended = outcome(record)
    is_unchosen = record.status in _UNCHOSEN or is_given_up(record)
    choice = [] if record.choice is None or is_unchosen else _choice(record, record.choice)
    if record.status.is_final:
        style = Style.BAD if record.status is Status.OUTPUT_MISSING else Style.PLAIN
        warned = [Line(text, Style.BAD, is_wrapped=True) for text in end_warning(record)]
        return [Line(asked), *choice, *(Line(text, style) for text in ended), *warned]
    return [Line(asked), *map(Line, ended), *choice]


def end_warning(record: SearchRun) -> list[str]:
    """What a training that is done did otherwise than its job file says, as a sentence; [] if nothing."""
    return [f"WARNING: {record.final.warning}."] if record.final is not None and record.final.warning else []


def is_given_up(record: SearchRun) -> bool:
    """Whether a limit was broken before the work was done."""
    return record.status is Status.OVERRAN and record.final is None and record.finished_trial is None


_UNCHOSEN = (Status.INFEASIBLE, Status.NOTHING_FITS, Status.ALL_FAILED, Status.REFUSED)


_ALL_LISTED = (Status.ALL_FAILED, Status.REFUSED)
"""Where every failure is listed already."""


def outcome(record: SearchRun) -> list[str]:
    """Sentences about the outcome besides the choice."""
    trials = plural(len(record.trials), "trial")
    if record.status is Status.INFEASIBLE:
        return ["Nothing fits these limits; nothing was trained."]
    if record.status is Status.NOTHING_FITS:
        paid = trials
        if record.earlier:
            paid += f" and {plural(len(record.earlier), 'unfinished training')}"
        none = "no training was finished" if record.earlier else "nothing was trained"
        lines = [f"Nothing measured fits the remaining limits after {paid}; {none}."]
        return [*lines, f"The search alone broke the limit: {_broken(record)}."] if _broken(record) else lines
    if record.status is Status.ALL_FAILED:
        return [f"Every trial failed ({len(record.trials)} of {len(record.trials)}); nothing was trained."]
    if record.status is Status.REFUSED:
        return [
            "Every cloud of the job refused to give nodes; nothing was trained. `mlcd check` lists what is missing."
        ]
    if not record.status.is_final:
        return [_unfinished(record.status, record.run_id, trials)]
    if is_given_up(record):
        return [f"The limit was broken before a training was finished: {_broken(record)}."]
    return _training_outcome(record) if record.choice else ["Nothing was chosen."]


def _training_outcome(record: SearchRun) -> list[str]:
    if record.status is Status.RUN_FAILED:
        why = f" ({record.final.message})" if record.final and record.final.message else ""
        return [f"The training failed before its work was done{why}; what it cost is on the receipt."]
    if record.status is Status.OUTPUT_MISSING and record.final is not None:
        return _missing_outputs(record, record.final)
    if record.status is Status.OVERRAN:
        if record.final is not None and record.final.ending is Ending.STOPPED:
            return [f"The training was {record.final.message}."]
        if record.final is not None and record.final.ending is Ending.OVERRAN:
            return [f"The training overran its time: {record.final.message}."]
        return [f"Search and training together broke the limit: {_broken(record)}."]
    return []


def _missing_outputs(record: SearchRun, final: Attempt) -> list[str]:
    names = final.missing_outputs
    why = "listed under outputs in the job file, and not there when the training ended"
    lines = [f"MISSING: {', '.join(names)}: {why}."]
    lines += ["Everything that it wrote is kept: copy what you need from", f"  {final.kept_folder}"]
    lines.append("Before the next run, correct `outputs`, or let the script write these paths in its working folder.")
    return [*lines, f"Search and training together broke the limit: {_broken(record)}."] if _broken(record) else lines


def _unfinished(status: Status, run_id: str, trials: str) -> str:
    if status is Status.SEARCHED:
        return f"Nothing is trained yet, after {trials}. Train there with: mlcd train {run_id}"
    state = "Interrupted" if status is Status.INTERRUPTED else "Not finished"
    return f"{state} after {trials}. Continue with: mlcd resume {run_id}"


def _broken(record: SearchRun) -> str:
    """By how much the limits are broken; "" if they are kept."""
    usd, seconds = record.train_findings.over_usd, record.train_findings.over_seconds
    parts = [f"{usd} over the budget"] if usd else []
    parts += [f"{format_seconds(seconds)} after the deadline"] if seconds else []
    return " and ".join(parts)


def _choice(record: SearchRun, choice: Plan) -> list[Item]:
    sure = assurance_text(record.problem.assurance)
    known = record.train_findings.choice_intervals
    trained = record.final or record.finished_trial or not record.status.is_final
    word = "Chosen" if trained and record.status is not Status.SEARCHED else "Train on"
    title = Line(f"{word}: {choice.config}", Style.ANSWER)
    rest = [Line(f"  {text}")] if (text := rest_text(record)) else []
    if record.finished_trial is not None:
        took = f"{format_seconds(record.finished_trial.seconds)} and {record.finished_trial.usd}"
        return [title, Line(f"  {all_in_trials(record)} The last trial took {took}.", is_wrapped=True)]
    if known is None or known.is_exact:
        how = "predicted, not measured" if known is None else "measured without noise"
        return [title, *rest, Line(f"  {format_seconds(choice.seconds)}, {choice.usd}: {how}")]
    rows = [["", "predicted", "95% interval", f"at most ({sure} sure)"]]
    seconds = f"{format_seconds(known.seconds[0])} .. {format_seconds(known.seconds[1])}"
    rows.append(["time", format_seconds(choice.seconds), seconds, format_seconds(choice.worst_seconds)])
    rows.append(["money", str(choice.usd), f"{known.usd[0]} .. {known.usd[1]}", str(choice.worst_usd)])
    return [title, *rest, Rows(rows=rows, align="<>>>", indent=2), *_watched(record)]


def all_in_trials(record: SearchRun) -> str:
    """That the trials did the training too, and how to compare more configurations before they do."""
    said = "The trials did all of the work: no training was needed after them."
    if len(record.history.measured) >= len(record.problem.space):
        return said
    now = f"{record.problem.trial.seconds / 60:.3g}"
    return f"{said} Shorter trials (search.trial.minutes, now {now}) would compare more configurations."


def rest_text(record: SearchRun) -> str:
    """Which part of the training the predictions are for; "" if for all of it."""
    done = record.train_findings.done_share
    if done <= 0 or record.finished_trial is not None:
        return ""
    return f"for the remaining {1 - done:.0%} of the training; the trials did the rest"


def _watched(record: SearchRun) -> list[Item]:
    watch = record.verdict.watch if record.verdict else None
    if watch is None:
        return []
    return [Line(f"  {sentence(watch_text(watch))}", hang=2, is_wrapped=True)]


def _relaxations(record: SearchRun) -> list[Item]:
    if not record.relaxations:
        return []
    where = " among measured deployments" if record.history.measured else ""
    ways = ", or ".join(relaxation.text for relaxation in record.relaxations)
    flags = [text for relaxation in record.relaxations if (text := _limit_flags(relaxation))]
    items: list[Item] = [Line(f"Nearest way out{where}: {ways}", Style.HEADING)]
    if flags and record.history.measured:
        again = " or with ".join(flags)
        items.append(Line(f"  The same command with {again} starts from what these trials measured.", is_wrapped=True))
    return items


def _limit_flags(relaxation: Relaxation) -> str:
    """The flags of `mlcd train` for these limits, with the trials of this run; "" if it changes none."""
    parts = []
    if relaxation.budget is not None:
        parts.append(f"--budget {relaxation.budget.dollars:.2f}")
    if relaxation.deadline_seconds is not None:
        hours, minutes = divmod(math.ceil(relaxation.deadline_seconds / 60), 60)
        parts.append(f"--deadline {f'{hours}h' * bool(hours)}{f'{minutes}min' * bool(minutes or not hours)}")
    return " ".join([*parts, "--reuse"]) if parts else ""


def _reused(record: SearchRun) -> list[Item]:
    """Which trials of earlier runs counted, and when and at which prices they were paid."""
    runs: dict[str, list[ReusedTrial]] = {}
    for each in record.header.reused:
        runs.setdefault(each.run_id, []).append(each)
    return [
        Line(
            f"{plural(len(trials), 'trial')} reused from {run_id}, of {trials[0].created[:10]}, paid there at prices of"
            f" {trials[0].catalog_date}; plans use today's."
        )
        for run_id, trials in runs.items()
    ]


def _failures(record: SearchRun) -> list[Item]:
    groups: dict[str, list[str]] = {}
    for failure in record.history.failures:
        key = f"{failure.kind}: {failure.message}" if failure.message else str(failure.kind)
        groups.setdefault(key, []).append(str(failure.config))
    lines: list[Item] = [Line("What failed")]
    most_first = sorted(groups.items(), key=lambda item: -len(item[1]))
    for reason, configs in most_first[:MOST_NAMED]:
        lines.append(Line(f"  {len(configs)} x {reason}", hang=4, is_wrapped=True))
        separator = "; " if any(", " in config for config in configs) else ", "  # knobs have commas between them
        lines.append(Line(" " * 6 + listed(configs, separator=separator), is_wrapped=True))
    if len(most_first) > MOST_NAMED:
        lines.append(Line(f"  and {len(most_first) - MOST_NAMED:,} more reasons: mlcd show {record.run_id} -o json"))
    return lines


def _receipt(record: SearchRun, paid: Receipt) -> list[Item]:
    items: list[Item] = [receipt_rows(train_lines(paid, is_final=record.status.is_final))]
    if paid.savings:
        items.append(Line("Savings, search included, compared with training without a search on", Style.HEADING))
        for saving in paid.savings:
            items += [Line(text, hang=4, is_wrapped=True) for text in _saving(record, saving)]
    return items


def search_price(record: SearchRun, saving: Saving) -> str:
    """What the search took, where the naive choice is the one that it found; empty where it is another."""
    if record.choice is None or saving.naive.plan.config != record.choice.config:
        return ""
    paid = record.train_findings.receipt
    took = f"{format_seconds(paid.search_seconds)} and {paid.search_usd}"
    if record.finished_trial is not None:
        return f"also what was chosen; the search, which did the training too, took {took}"
    return f"also what was chosen: nothing is saved, and the search took {took}"


def _saving(record: SearchRun, saving: Saving) -> list[str]:
    """What the naive choice takes, then the difference; `~` and an interval if it was not measured."""
    if text := search_price(record, saving):
        return [f"  {saving.naive.plan.config} ({saving.naive.label}):", f"      {text}"]
    plan, known, about = saving.naive.plan, saving.intervals, "" if saving.naive.measured else "~"
    spread = []
    if known:
        low, high = known.seconds
        spread = [f"      95%: {format_seconds(low)} .. {format_seconds(high)}, {known.usd[0]} .. {known.usd[1]}"]
    return [
        f"  {_naive_text(saving)}: {about}{format_seconds(plan.seconds)}, {about}{plan.usd}",
        *spread,
        f"      {_saved(saving)}",
    ]


def saving_texts(record: SearchRun) -> tuple[str, ...]:
    """Against each naive choice, what was saved, search included: a clause each for a page."""
    savings = record.train_findings.receipt.savings
    return tuple(f"{_naive_text(each)}: {search_price(record, each) or _saved(each)}" for each in savings)


def _naive_text(saving: Saving) -> str:
    label = saving.naive.label if saving.naive.measured else f"{saving.naive.label}, predicted"
    return f"{saving.naive.plan.config} ({label})"


def _saved(saving: Saving) -> str:
    about, warning = "" if saving.naive.measured else "~", f"; it {saving.warning}" if saving.warning else ""
    return f"{about}{_saved_time(saving.seconds)}, {about}{_saved_usd(saving.usd)}{warning}"


def _saved_time(seconds: float) -> str:
    return f"{format_seconds(seconds)} saved" if seconds >= 0 else f"{format_seconds(-seconds)} longer"


def _saved_usd(usd: Usd) -> str:
    return f"{usd} saved" if usd.micros >= 0 else f"{Usd(-usd.micros)} more"


def _top(record: SearchRun) -> list[Item]:
    entries = {entry.config: entry for entry in record.train_findings.rejected if entry.plan is not None}
    plans = list(record.train_findings.ranked)
    if not plans:
        return []
    shown = plans[:TOP_PLANS]
    chosen = record.choice.config if record.choice else None
    if chosen in {plan.config for plan in plans} - {plan.config for plan in shown}:
        shown = [*shown[: TOP_PLANS - 1], *(plan for plan in plans if plan.config == chosen)]
    known = with_markets(record.problem, record.history).measured
    speeds = {trial.config: trial.samples_per_second for trial in known}
    with_speed = not is_replayed(record)
    fate = {
        Status.RUN_FAILED: "; its training failed",
        Status.OUTPUT_MISSING: "; an output is missing",
        Status.NOTHING_FITS: "; no longer fits",
    }
    took = "chosen" + fate.get(record.status, "")
    top = f"Top {TOP_PLANS - 1} and the chosen" if shown != plans[:TOP_PLANS] else f"Top {len(shown)}"
    of = "remaining " if rest_text(record) else ""
    rows = [[top, *["samples/s"] * with_speed, f"{of}time", f"{of}money", "why not"]]
    for plan in shown:
        reason = took if plan.config == chosen else entries[plan.config].text
        speed = [speed_text(speeds[plan.config])] * with_speed
        rows.append([f"  {plan.config}", *speed, format_seconds(plan.seconds), str(plan.usd), reason])
    return [Rows(rows=rows, align="<" + ">" * (2 + with_speed) + "<", is_wrapped=True)]


def _others(record: SearchRun) -> list[Item]:
    entries = record.train_findings.rejected
    failed = [e for e in entries if e.reason is RejectionReason.FAILED and record.status not in _ALL_LISTED]
    untried = [e for e in entries if e.reason in (RejectionReason.NOT_TRIED, RejectionReason.NOT_AFFORDABLE)]
    if not failed and not untried:
        return []
    rows = [[f"  {e.subject}", e.text] for e in ends(failed, MOST_LINES)]
    items: list[Item] = [Line("Other configurations", Style.HEADING)]
    items.append(Rows(rows=rows, align="<<", has_heads=False, is_wrapped=True))
    if text := left_out_text(len(failed), MOST_LINES, "failed configurations", record.run_id):
        items.append(Line(f"  {text}", is_wrapped=True))
    items += [Line(f"  {entry.subject}: {entry.text}", hang=4, is_wrapped=True) for entry in ends(untried, MOST_LINES)]
    if text := left_out_text(len(untried), MOST_LINES, "untried configurations", record.run_id):
        items.append(Line(f"  {text}", is_wrapped=True))
    return items


def _more(record: SearchRun) -> list[Item]:
    items: list[Item] = []
    if record.stopped:
        items.append(Line(f"The search ended: {record.stopped}.", hang=2, is_wrapped=True))
    items += [Line(note, hang=2, is_wrapped=True) for note in batch_notes(record)]
    done = record.train_findings.done_share
    if done > 0 and record.finished_trial is None:
        items.append(Line(f"The trials did {done:.0%} of the training: it continued from their checkpoint."))
    if record.outputs:
        items.append(Line(f"Outputs: {record.outputs}"))
    elif record.status is Status.DONE and not record.simulated:
        none = "Outputs: none: `outputs` in the job file is empty, so no file of the training was brought back."
        items.append(Line(none, Style.BAD, is_wrapped=True))
    if record.log:
        items.append(Line(f"Log of the newest failure: {record.log}"))
    if record.trials:
        items.append(Line(f"Pictures, every trial, how to repeat it: mlcd report {record.run_id}"))
    return items
