"""A serving run as one HTML file: the answer, the receipt, every load test, and what else was known. Works offline."""

from html import escape

from mlcd.report.serving import NOMINAL, goal_text, headline, latency_text
from mlcd.report.serving_facts import chosen, losers
from mlcd.report.stylesheet import CSS
from mlcd.report.wording import speed_text
from mlcd.trial.record import RunRecord, TrialRow
from mlcd.trial.trial import Failure
from mlcd.units import format_seconds


def serving_html(record: RunRecord) -> str:
    """The page, whole: no script, nothing loaded from elsewhere, every word from outside escaped."""
    choice = chosen(record)
    answer = str(choice.config) if choice else headline(record)[1]
    body = [_hero(record, answer), _receipt(record), _trials(record), _why_not(record), _known(record)]
    banner = f'<p class="banner" role="note"><b>NOMINAL</b> {escape(NOMINAL)}</p>' if record.cloud == "local" else ""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(record.problem.name)}: {escape(answer)} - mlcd</title>\n<style>{CSS}</style>\n</head>\n"
        "<body>\n"
        f'<header class="top"><b>mlcd</b><span>{escape(record.created)}</span>'
        f"<span>{escape(record.run_id)}</span></header>\n<main>\n{banner}\n"
        + "\n".join(part for part in body if part)
        + f"\n</main>\n<footer>mlcd {escape(record.version)}</footer>\n</body>\n</html>\n"
    )


def _hero(record: RunRecord, answer: str) -> str:
    lines = "".join(f"<p class='lead'>{escape(' '.join(line.split()))}</p>" for line in headline(record)[2:])
    return f'<p class="asked">{escape(goal_text(record))}</p><h1>{escape(answer)}</h1>{lines}'


def _receipt(record: RunRecord) -> str:
    rows = [["search", format_seconds(record.search_seconds), str(record.search_usd)]]
    rows += [[f"verification of {r.config}, not held", format_seconds(r.seconds), str(r.usd)] for r in record.earlier]
    if record.final is not None:
        rows.append(["verification", format_seconds(record.final.seconds), str(record.final.usd)])
    rows.append(["total", format_seconds(record.total_seconds), str(record.total_usd)])
    return _table("Receipt", ["", "time", "money"], rows)


def _trials(record: RunRecord) -> str:
    head = ["#", "configuration", "requests/s", "p50", "p95", "p99", "errors", "time", "money", "why it was tried"]
    return _table("Load tests", head, [_trial(row) for row in record.rows]) if record.rows else ""


def _trial(row: TrialRow) -> list[str]:
    trial = row.trial
    first, last = [str(row.number), str(trial.config)], [format_seconds(trial.seconds), str(trial.usd), row.reason]
    if isinstance(trial, Failure):
        return [*first, f"{trial.kind}: {trial.message}", "-", "-", "-", "-", *last]
    load = trial.load
    if load is None:
        return [*first, speed_text(trial.samples_per_second), "-", "-", "-", "-", *last]
    latencies = [latency_text(seconds) for seconds in (load.p50_seconds, load.p95_seconds, load.p99_seconds)]
    return [*first, speed_text(trial.samples_per_second), *latencies, f"{load.errors:,}", *last]


def _why_not(record: RunRecord) -> str:
    rows = [
        [
            str(loser.config),
            "-" if loser.requests_per_second is None else speed_text(loser.requests_per_second),
            "-" if loser.usd_per_million is None else str(loser.usd_per_million),
            loser.text,
        ]
        for loser in losers(record)
    ]
    return _table("Why not the others", ["configuration", "requests/s", "$ per million", "why"], rows) if rows else ""


def _known(record: RunRecord) -> str:
    alike = record.serving.resemblance if record.serving else None
    if alike is None:
        return ""
    rows = [[name, f"{share:.0%}"] for name, share in alike.nearest]
    unseen = f"<p>Never seen before: {escape(', '.join(alike.unseen))}.</p>" if alike.unseen else ""
    words = f"{alike.covered:.0%} of its time is in operators that were measured before ({alike.source}): {alike.word}."
    return _table("Known models that it resembles", ["model", "alike"], rows) + f"<p>{escape(words)}</p>{unseen}"


def _table(title: str, head: list[str], rows: list[list[str]]) -> str:
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return (
        f"<section><h2>{escape(title)}</h2><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></section>"
    )
