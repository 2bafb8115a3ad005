"""A training on functions as text: how it ended, epochs, receipt, and whether an instance would have been better."""

from mlcd.report.origin import origin, origin_lines
from mlcd.report.receipt_lines import receipt_rows, serverless_lines
from mlcd.report.text import Item, Line, Rows, Style, rendered
from mlcd.report.thinning import MOST_LINES, ends, left_out_text
from mlcd.run.run import EpochRun
from mlcd.run.verdict import PlainInstance
from mlcd.trial.epoch import Epoch, FailedEpoch
from mlcd.trial.outcome import Status
from mlcd.units import format_seconds

_INDENT, _GAP = 2, 3
_HEADLINES = {
    Status.RUNNING: "Not finished. Continue with: mlcd resume {run}",
    Status.INTERRUPTED: "Interrupted. Continue with: mlcd resume {run}",
    Status.DONE: "Trained to the target.",
    Status.OVERRAN: "Trained to the target, past the deadline.",
    Status.INFEASIBLE: "Nothing was started: no training fits the limits.",
    Status.NOTHING_FITS: "The target loss was not reached.",
    Status.ALL_FAILED: "Every epoch failed.",
    Status.RUN_FAILED: "The training failed.",
}


def headline(record: EpochRun) -> str:
    """How the run ended."""
    budget = record.problem.goal.budget
    if record.status is Status.OVERRAN and (not record.is_target_reached or (budget and record.total_usd > budget)):
        target = "Trained to the target" if record.is_target_reached else "The target loss was not reached"
        return f"{target}, and the cloud took more than was authorised: {record.total_usd} in all."
    return _HEADLINES.get(record.status, f"The run ended: {record.status}.").format(run=record.run_id)


def goal_text(record: EpochRun) -> str:
    """What was asked for."""
    problem, goal = record.problem, record.problem.goal
    least = "soonest" if str(goal.minimize) == "time" else "cheapest"
    limits = [f"within {goal.budget}"] if goal.budget is not None else []
    if goal.deadline_seconds is not None:
        limits.append(f"in {format_seconds(goal.deadline_seconds)}")
    what = f"{problem.name}: {record.function_facts.model} to a loss of {problem.target_loss:.4g}"
    return f"{what}, {least} {' and '.join(limits)}".strip()


def instances_text(record: EpochRun) -> str:
    """Whether a plain instance would have been better, and by how much; empty if unknown."""
    found = record.serverless_findings
    if not found.is_target_reached or not record.instances:
        return ""
    usd, seconds = found.receipt.total_usd, found.receipt.training_seconds
    better = found.better_instance
    if better is not None:
        faster, cheaper = 1 - better.seconds / seconds, 1 - better.usd.dollars / max(usd.dollars, 1e-9)
        return (
            f"One {better.name} would have been better: {format_seconds(better.seconds)} ({faster:.0%} less time)"
            f" and {better.usd} ({cheaper:.0%} less money)."
        )
    cheapest = record.instances[0]
    if cheapest.usd < usd:
        saved = 1 - cheapest.usd.dollars / usd.dollars
        return (
            f"One {cheapest.name} would have been {saved:.0%} cheaper ({cheapest.usd}) and slower:"
            f" {format_seconds(cheapest.seconds)} against {format_seconds(seconds)}."
        )
    return f"No plain instance would have been better; the nearest is {cheapest.name}: {_at(cheapest)}."


def model_text(record: EpochRun) -> str:
    """Where the trained model is; empty if there is none."""
    return f"The trained model: {record.model_file} (numpy.load)" if record.model_file else ""


def ways_out(record: EpochRun) -> list[str]:
    """What would have sufficed, one line each."""
    return [f"Nearest way out: {way.text}" for way in record.relaxations]


def serverless_verdict(record: EpochRun, *, width: int | None = None, colour: bool = False) -> str:
    """The whole answer, without a newline at its end."""
    ended = Style.ANSWER if record.is_target_reached else Style.PLAIN
    items = [*origin_lines(origin(record)), Line(goal_text(record)), Line(headline(record), ended)]
    if record.stopped:
        items.append(Line(f"Ended: {record.stopped}."))
    items += [Line(text, Style.HEADING) for text in ways_out(record)]
    if record.smallest_budget is not None and not record.relaxations:
        items.append(Line(f"Estimated smallest sufficient budget: {record.smallest_budget}."))
    if record.epoch_steps:
        items += [Line(), Line("Epochs", Style.HEADING), *_epochs(record, width), Line(), *_receipt(record)]
    if text := model_text(record):
        items += [Line(), Line(text)]
    if text := instances_text(record):
        items += [Line(), Line(text)]
        items.append(Line("(An estimate from the functions' processor time; docs/serverless.md says how.)"))
    items += [Line(), Line(f"Run {record.run_id}: mlcd show {record.run_id}; mlcd report {record.run_id}")]
    return rendered(items, width=width, colour=colour)


def epoch_cells(done: Epoch | FailedEpoch) -> list[str]:
    """Its number, its share of the samples, and its fleet."""
    fleet = done.fleet
    return [str(done.number), f"{fleet.share:.0%}", str(fleet.functions), f"{fleet.memory_mb:,} MB"]


_DETAILS = ("samples", "fetch", "compute", "update", "repeated")
"""Columns that are a table of their own where the terminal is too narrow for one."""


def _tables(rows: list[list[str]], width: int | None) -> list[Item]:
    """The rows as one table, or as two if one does not fit: what came of each epoch, then what it did."""
    natural = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    if width is None or _INDENT + sum(natural) + _GAP * (len(natural) - 1) <= width:
        return [_table(rows)]
    heads = rows[0]
    results = [at for at, head in enumerate(heads) if head not in _DETAILS]
    details = [0, *(at for at, head in enumerate(heads) if head in _DETAILS)]
    return [_table([[row[at] for at in chosen] for row in rows]) for chosen in (results, details)]


def _table(rows: list[list[str]]) -> Rows:
    return Rows(rows=rows, align=">" * len(rows[0]), indent=_INDENT, gap=_GAP)


def _epochs(record: EpochRun, width: int | None) -> list[Item]:
    rows = [
        ["epoch", "samples", "functions", "memory", "loss", "time", "money", "fetch", "compute", "update", "repeated"]
    ]
    for row in ends(record.epoch_steps, MOST_LINES):
        done = row.epoch
        start = epoch_cells(done)
        if isinstance(done, Epoch):
            phases = [f"{phase.mean_seconds:.2f} s" for phase in (done.fetch, done.compute, done.update)]
            rows.append([*start, f"{done.loss:.4f}", f"{done.seconds:.1f} s", str(done.usd), *phases, str(done.failed)])
        else:
            rows.append([*start, "failed", f"{done.seconds:.1f} s", str(done.usd), "-", "-", "-", "-"])
    failed = [Line(f"  epoch {each.number} failed: {each.message}") for each in ends(record.failed_epochs, MOST_LINES)]
    left_out = left_out_text(len(record.epoch_steps), MOST_LINES, "epochs", record.run_id)
    note = [Line(f"  {left_out}", is_wrapped=True)] if left_out else []
    return [*_tables(rows, width), *note, *failed]


def _receipt(record: EpochRun) -> list[Item]:
    prices = record.problem.prices
    paid = record.serverless_findings.receipt
    sync = record.function_facts.sync
    calls = "1 call" if paid.calls == 1 else f"{paid.calls:,} calls"
    tail = f"  {calls}, {paid.repeated_calls:,} of them repeated; {sync}; scheduled by {record.strategy}"
    date = f"  prices of {prices.name}, {prices.date.isoformat()}"
    return [receipt_rows(serverless_lines(record)), Line(tail), Line(date)]


def _at(plan: PlainInstance) -> str:
    return f"{format_seconds(plan.seconds)} and {plan.usd}"
