"""A serving run as one HTML file: the answer, the receipt, every load test, and what else was known. Works offline."""

from mlcd.report.decisions import decisions, decisions_note
from mlcd.report.origin import origin
from mlcd.report.page import Cell, Page, Table, plain_table, render
from mlcd.report.pictures import pictures_of
from mlcd.report.receipt_lines import receipt_table, serving_lines
from mlcd.report.serving import caveats, goal_text, headline, price_basis
from mlcd.report.step_words import miss_text
from mlcd.report.thinning import MOST_ROWS, ends, left_out_text
from mlcd.report.wording import speed_text
from mlcd.run.run import SearchRun
from mlcd.run.step import Step
from mlcd.trial.trial import Failure
from mlcd.units import format_seconds, latency_text


def serving_html(record: SearchRun, *, whole: bool = True) -> str:
    """The page, or what is inside it (see `render`): no script, nothing loaded from elsewhere, every value escaped."""
    choice, lines = record.serve_findings.choice, headline(record)
    word, meaning = origin(record)
    leads = [" ".join(line.split()) for line in lines[2:]]
    leads += [text for text in caveats(record) if text not in leads] if record.status.is_final else []
    page = Page(
        name=record.problem.name,
        run_id=record.run_id,
        created=record.created,
        asked=goal_text(record),
        answer=str(choice.config) if choice else lines[1],
        footer=f"mlcd {record.version}",
        origin_word=word,
        origin_text=meaning,
        leads=leads,
    )
    return render(
        "tables.html.j2",
        page,
        whole=whole,
        pictures=pictures_of(record),
        decisions=decisions(record),
        decisions_note=decisions_note(record),
        tables=serving_tables(record),
    )


def serving_tables(record: SearchRun) -> list[Table]:
    """The tables of the page: the receipt, every load test, why the others were rejected, what was known before."""
    tables = [receipt_table(serving_lines(record)), _trials(record), _why_not(record), _known(record)]
    return [table for table in tables if table and (table.rows or table.after)]


def _trials(record: SearchRun) -> Table:
    heads = ">#|configuration|>requests/s|>p50|>p95|>p99|>errors|>time|>money|why it was tried"
    rows = [_trial(record, row) for row in ends(record.trials, MOST_ROWS)]
    return plain_table("Load tests", heads, rows, after=_left_out(record, len(record.trials), "load tests"))


def _left_out(record: SearchRun, count: int, noun: str) -> list[str]:
    text = left_out_text(count, MOST_ROWS, noun, record.run_id)
    return [text] if text else []


def _trial(record: SearchRun, row: Step) -> list[str | Cell]:
    trial = row.trial
    miss = miss_text(record, row)
    reason = "; ".join(filter(None, (row.reason, f"measured: {miss}" if miss else "")))
    first, last = [str(row.number), str(trial.config)], [format_seconds(trial.seconds), str(trial.usd), reason]
    if isinstance(trial, Failure):
        return [*first, Cell.of(f"{trial.kind}: {trial.message}", "what"), "-", "-", "-", "-", *last]
    load = trial.load
    if load is None:
        return [*first, speed_text(trial.samples_per_second), "-", "-", "-", "-", *last]
    latencies = [latency_text(seconds) for seconds in (load.p50_seconds, load.p95_seconds, load.p99_seconds)]
    return [*first, speed_text(trial.samples_per_second), *latencies, f"{load.errors:,}", *last]


def _why_not(record: SearchRun) -> Table:
    rows = [
        [
            entry.subject,
            "-" if entry.samples_per_second is None else speed_text(entry.samples_per_second),
            "-" if entry.usd_per_million is None else str(entry.usd_per_million),
            entry.text,
        ]
        for entry in ends(record.serve_findings.rejected, MOST_ROWS)
    ]
    after = [price_basis(record)] if rows else []
    after += _left_out(record, len(record.serve_findings.rejected), "configurations")
    return plain_table(
        "Why the others were rejected", "configuration|>requests/s|>$ per million requests|why", rows, after=after
    )


def _known(record: SearchRun) -> Table | None:
    alike = record.serving.resemblance if record.serving else None
    if alike is None:
        return None
    rows = [[name, f"{share:.0%}"] for name, share in alike.nearest]
    after = [
        f"{alike.covered:.0%} of its time is in operators that were measured before ({alike.source}): {alike.word}."
    ]
    if alike.unseen:
        after.append(f"Never measured before: {', '.join(alike.unseen)}.")
    return plain_table("Known models that it resembles", "model|>alike", rows, after=after)
