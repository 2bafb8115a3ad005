"""A serving run as one HTML file: the answer, the receipt, every load test, and what else was known. Works offline."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from mlcd.report.day_picture import day_picture
from mlcd.report.origin import origin
from mlcd.report.pace_picture import RATES_PICTURE, TOKENS_PICTURE, has_paces, pace_picture
from mlcd.report.page import NARROW, WIDE, Cell, Page, Table, drawn, plain_table, render
from mlcd.report.receipt_lines import receipt_table, serving_lines
from mlcd.report.serving import day_lines, goal_text, headline, price_basis
from mlcd.report.serving_picture import serving_picture
from mlcd.report.thinning import MOST_ROWS, ends, left_out_text
from mlcd.report.wording import speed_text
from mlcd.run.run import SearchRun
from mlcd.run.step import Step
from mlcd.trial.trial import Failure, Measurement
from mlcd.units import format_seconds, latency_text


def serving_html(record: SearchRun) -> str:
    """The whole page: no script, nothing loaded from elsewhere, every value escaped."""
    choice, lines = record.serve_findings.choice, headline(record)
    word, meaning = origin(record)
    page = Page(
        name=record.problem.name,
        run_id=record.run_id,
        created=record.created,
        asked=goal_text(record),
        answer=str(choice.config) if choice else lines[1],
        footer=f"mlcd {record.version}",
        origin_word=word,
        origin_text=meaning,
        leads=[" ".join(line.split()) for line in lines[2:]],
    )
    tables = [
        receipt_table(serving_lines(record)),
        _day(record),
        _paces(record),
        _trials(record),
        _why_not(record),
        _known(record),
    ]
    return render(
        "serve.html.j2",
        page,
        figures=_figures(record),
        tables=[table for table in tables if table and (table.rows or table.after)],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Figure:
    """A picture for wide and narrow screens, with its title and a sentence."""

    wide: object
    narrow: object
    title: str = ""
    caption: str = ""


def _figures(record: SearchRun) -> list[_Figure]:
    def figure(draw: Callable[[float], str], title: str = "", caption: str = "") -> _Figure:
        return _Figure(wide=drawn(draw(WIDE)), narrow=drawn(draw(NARROW)), title=title, caption=caption)

    found = [figure(lambda width: serving_picture(record, width))]
    if has_paces(record):
        caption = "Each line is a configuration with more and more requests in flight; up and to the left is better."
        for kind, title in (
            (TOKENS_PICTURE, "Tokens against the first token"),
            (RATES_PICTURE, "Rate against latency"),
        ):
            if has_paces(record, kind):
                found.append(figure(partial(pace_picture, record, kind), title, caption))
    day = record.serve_findings.day
    if day is not None:
        found.append(figure(partial(day_picture, record, day), "Replicas by the hour", " ".join(day_lines(day))))
    return found


def _day(record: SearchRun) -> Table | None:
    """Replicas of every hour."""
    day = record.serve_findings.day
    if day is None:
        return None
    broken = {change.hour: change for change in day.broken}
    rows: list[list[str | Cell]] = [
        [
            str(hour),
            speed_text(rate),
            str(replicas),
            ", ".join(broken[hour].broken) if hour in broken else "kept",
        ]
        for hour, (rate, replicas) in enumerate(zip(day.rates[:MOST_ROWS], day.replicas, strict=False))
    ]
    return plain_table("Replicas by the hour", ">hour|>requests/s|>replicas|limits when it begins", rows)


def _paces(record: SearchRun) -> Table | None:
    """Of a language model: tokens and times at every pace of every load test."""
    rows: list[list[str | Cell]] = [
        [
            str(step.number),
            str(step.trial.config),
            f"{point.concurrency:.0f}",
            speed_text(point.output_tokens_per_second),
            latency_text(point.ttft_p95),
            latency_text(point.tpot_p95),
            "kept" if point.kept else "broken",
        ]
        for step in ends(record.trials, MOST_ROWS)
        if isinstance(step.trial, Measurement) and step.trial.load is not None and step.trial.load.tokens is not None
        for point in step.trial.load.tokens.front
    ]
    heads = ">#|configuration|>in flight|>output tokens/s|>ttft p95|>tpot p95|limits"
    return plain_table("Requests in flight, tokens and times", heads, rows) if rows else None


def _trials(record: SearchRun) -> Table:
    heads = ">#|configuration|>requests/s|>p50|>p95|>p99|>errors|>time|>money|why it was tried"
    rows = [_trial(row) for row in ends(record.trials, MOST_ROWS)]
    return plain_table("Load tests", heads, rows, after=_left_out(record, len(record.trials), "load tests"))


def _left_out(record: SearchRun, count: int, noun: str) -> list[str]:
    text = left_out_text(count, MOST_ROWS, noun, record.run_id)
    return [text] if text else []


def _trial(row: Step) -> list[str | Cell]:
    trial = row.trial
    first, last = [str(row.number), str(trial.config)], [format_seconds(trial.seconds), str(trial.usd), row.reason]
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
