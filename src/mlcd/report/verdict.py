"""The answer in words for standard output: the choice, the receipt, why not the others, a small plot."""

from textwrap import wrap

from mlcd.report.batches import batch_notes
from mlcd.report.origin import is_replayed, origin_text, origin_word
from mlcd.report.receipt_lines import train_lines
from mlcd.report.text_plot import text_plot
from mlcd.report.text_table import text_table
from mlcd.report.wording import assurance_text, plural, speed_text
from mlcd.run.attempt import Ending
from mlcd.run.findings import Receipt, RejectionReason, Saving
from mlcd.run.run import SearchRun
from mlcd.trial.outcome import Status
from mlcd.trial.plan import Plan
from mlcd.units import Usd, format_seconds

TOP = 5
WIDTH = 100


def verdict(record: SearchRun, *, plain: bool = False) -> str:
    """The whole answer, at most 100 columns wide as far as names allow, without a newline at its end.

    plain  ASCII only, for terminals that cannot show more
    """
    parts: list[list[str]] = []
    if word := origin_word(record):
        parts.append(wrap(f"{word}: {origin_text(record)}", WIDTH))
    parts.append(headline(record))
    parts.append(_relaxations(record))
    parts.append(_failures(record) if record.status is Status.ALL_FAILED else [])
    if record.trials or record.choice:
        parts.append(_receipt(record.train_findings.receipt, gone=record.status.is_final))
    parts.append(_top(record))
    parts.append(_others(record))
    plot = text_plot(record, plain=plain)
    if plot:
        parts.append(["Job time over nodes" if is_replayed(record) else "Speed (samples/s) over nodes", *plot])
    parts.append(_more(record))
    return "\n\n".join("\n".join(part) for part in parts if part)


def headline(record: SearchRun) -> list[str]:
    """What came of it, the first line the answer itself."""
    asked = f"{record.problem.name}: {record.problem.goal}"
    choice = record.choice
    if record.status is Status.INFEASIBLE:
        return [asked, "Nothing can fit these limits; nothing was trained."]
    if record.status is Status.NOTHING_FITS:
        paid = plural(len(record.trials), "trial")
        if record.earlier:
            paid += f" and {plural(len(record.earlier), 'training')} that did not end"
        none = "no training was finished" if record.earlier else "nothing was trained"
        lines = [asked, f"Nothing measured fits what is left after {paid}; {none}."]
        return [*lines, f"The search alone broke the limit: {_broken(record)}."] if _broken(record) else lines
    if record.status is Status.ALL_FAILED:
        return [asked, f"Every trial failed ({len(record.trials)} of {len(record.trials)}); nothing was trained."]
    if not record.status.is_final:
        state = "Interrupted" if record.status is Status.INTERRUPTED else "Not finished"
        lines = [asked, f"{state} after {plural(len(record.trials), 'trial')}. Go on with: mlcd resume {record.run_id}"]
        return lines + (_choice(record, choice) if choice else [])
    if choice is None:
        return [asked, "Nothing was chosen."]
    lines = [asked, *_choice(record, choice)]
    if record.status is Status.RUN_FAILED:
        why = f" ({record.final.message})" if record.final and record.final.message else ""
        lines.append(f"The training failed before its work was done{why}; what it cost is on the receipt.")
    if record.status is Status.OVERRAN:
        if record.final is not None and record.final.ending is Ending.STOPPED:
            lines.append(f"The training was {record.final.message}.")
        else:
            lines.append(f"Search and training together broke the limit: {_broken(record)}.")
    return lines


def _broken(record: SearchRun) -> str:
    """By how much the limits are broken; "" where they are kept."""
    usd, seconds = record.train_findings.over_usd, record.train_findings.over_seconds
    parts = [f"{usd} over the budget"] if usd else []
    parts += [f"{format_seconds(seconds)} after the deadline"] if seconds else []
    return " and ".join(parts)


def _choice(record: SearchRun, choice: Plan) -> list[str]:
    sure = assurance_text(record.problem.assurance)
    known = record.train_findings.choice_intervals
    word = "Chosen" if record.final or not record.status.is_final else "Train on"
    if known and known.is_exact:
        return [f"{word}: {choice.config}", f"  {format_seconds(choice.seconds)}, {choice.usd}: measured without noise"]
    rows = [["", "predicted", "95% interval", f"at most ({sure} sure)"]]
    if known is None:
        return [
            f"{word}: {choice.config}",
            f"  {format_seconds(choice.seconds)}, {choice.usd}: predicted, not measured",
        ]
    seconds = f"{format_seconds(known.seconds[0])} .. {format_seconds(known.seconds[1])}"
    rows.append(["time", format_seconds(choice.seconds), seconds, format_seconds(choice.worst_seconds)])
    rows.append(["money", str(choice.usd), f"{known.usd[0]} .. {known.usd[1]}", str(choice.worst_usd)])
    return [f"{word}: {choice.config}", *text_table(rows, "<>>>")]


def _relaxations(record: SearchRun) -> list[str]:
    if not record.relaxations:
        return []
    where = " among measured deployments" if record.history.measured else ""
    return [f"Nearest way out{where}: " + ", or ".join(relaxation.text for relaxation in record.relaxations)]


def _failures(record: SearchRun) -> list[str]:
    groups: dict[str, list[str]] = {}
    for failure in record.history.failures:
        key = f"{failure.kind}: {failure.message}" if failure.message else str(failure.kind)
        groups.setdefault(key, []).append(str(failure.config))
    lines = ["What failed"]
    for reason, configs in sorted(groups.items(), key=lambda item: -len(item[1])):
        lines.append(f"  {len(configs)} x {reason}")
        lines += wrap(", ".join(configs), WIDTH - 6, initial_indent=" " * 6, subsequent_indent=" " * 6)
    return lines


def _receipt(paid: Receipt, *, gone: bool) -> list[str]:
    rows = [["Receipt", "time", "money"]]
    for line in train_lines(paid, is_final=gone):
        label, *amounts = line.cells()
        rows.append([f"  {label}", *amounts])
    lines = text_table(rows, "<>>", indent=0)
    if paid.savings:
        lines.append("Saved, search included, against training without a search on")
        for saving in paid.savings:
            lines += _saving(saving)
    return lines


def _saving(saving: Saving) -> list[str]:
    """What the naive choice takes, then the difference; `~` and an interval where it was not measured."""
    plan, known, about = saving.naive.plan, saving.intervals, "" if saving.naive.measured else "~"
    spread = []
    if known:
        low, high = known.seconds
        spread = [f"      95%: {format_seconds(low)} .. {format_seconds(high)}, {known.usd[0]} .. {known.usd[1]}"]
    label = saving.naive.label if saving.naive.measured else f"{saving.naive.label}, predicted"
    warning = f"; it {saving.warning}" if saving.warning else ""
    return [
        f"  {plan.config} ({label}): {about}{format_seconds(plan.seconds)}, {about}{plan.usd}",
        *spread,
        f"      {about}{_saved_time(saving.seconds)}, {about}{_saved_usd(saving.usd)}{warning}",
    ]


def _saved_time(seconds: float) -> str:
    return f"{format_seconds(seconds)} saved" if seconds >= 0 else f"{format_seconds(-seconds)} longer"


def _saved_usd(usd: Usd) -> str:
    return f"{usd} saved" if usd.micros >= 0 else f"{Usd(-usd.micros)} more"


def _top(record: SearchRun) -> list[str]:
    entries = {entry.config: entry for entry in record.train_findings.rejected if entry.plan is not None}
    plans = list(record.train_findings.ranked)
    if not plans:
        return []
    shown = plans[:TOP]
    chosen = record.choice.config if record.choice else None
    if chosen in {plan.config for plan in plans} - {plan.config for plan in shown}:
        shown = [*shown[: TOP - 1], *(plan for plan in plans if plan.config == chosen)]
    speeds = {trial.config: trial.samples_per_second for trial in record.history.measured}
    with_speed = not is_replayed(record)
    fate = {Status.RUN_FAILED: "; its training failed", Status.NOTHING_FITS: "; does not fit any more"}
    took = "chosen" + fate.get(record.status, "")
    top = f"Top {TOP - 1} and the chosen" if shown != plans[:TOP] else f"Top {len(shown)}"
    rows = [[top, *["samples/s"] * with_speed, "time", "money", "why not"]]
    for plan in shown:
        reason = took if plan.config == chosen else entries[plan.config].text
        speed = [speed_text(speeds[plan.config])] * with_speed
        rows.append([f"  {plan.config}", *speed, format_seconds(plan.seconds), str(plan.usd), reason])
    return _hanging(text_table(rows, "<" + ">" * (2 + with_speed) + "<", indent=0), rows)


def _hanging(lines: list[str], rows: list[list[str]]) -> list[str]:
    """The lines with a last column that is too long wrapped under itself."""
    made = []
    for line, row in zip(lines, rows, strict=True):
        start = len(line) - len(row[-1])
        wrapped = wrap(row[-1], max(24, WIDTH - start)) or [""]
        made.append(line[:start] + wrapped[0])
        made += [" " * start + more for more in wrapped[1:]]
    return made


def _others(record: SearchRun) -> list[str]:
    entries = record.train_findings.rejected
    failed = [e for e in entries if e.reason is RejectionReason.FAILED and record.status is not Status.ALL_FAILED]
    untried = [e for e in entries if e.reason in (RejectionReason.NOT_TRIED, RejectionReason.NOT_AFFORDABLE)]
    if not failed and not untried:
        return []
    rows = [[f"  {e.subject}", e.text] for e in failed]
    lines = ["And why not", *_hanging(text_table(rows, "<<", indent=0), rows)]
    for entry in untried:
        lines += wrap(f"{entry.subject}: {entry.text}", WIDTH, initial_indent="  ", subsequent_indent=" " * 6)
    return lines


def _more(record: SearchRun) -> list[str]:
    lines = []
    if record.stopped:
        lines.append(f"The search ended: {record.stopped}.")
    for note in batch_notes(record):
        lines += wrap(note, WIDTH, subsequent_indent="  ")
    done = record.train_findings.done_share
    if done > 0:
        lines.append(f"The trials did {done:.0%} of the training: it went on from their checkpoint.")
    if record.outputs:
        lines.append(f"Brought home: {record.outputs}")
    if record.trials:
        lines.append(f"Pictures, every trial, how to repeat it: mlcd report {record.run_id}")
    return lines
