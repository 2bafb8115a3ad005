"""A training on functions as one HTML file: how it ended, the pictures, every epoch, the receipt. Works offline."""

from html import escape

from mlcd.report.serverless import epoch_cells, goal_text, headline, instances_text, lost_rows, origin
from mlcd.report.serverless_picture import serverless_picture
from mlcd.report.stylesheet import CSS
from mlcd.trial.epoch import Epoch
from mlcd.trial.serverless import EpochRow, ServerlessRecord
from mlcd.units import format_seconds


def serverless_html(record: ServerlessRecord) -> str:
    """The page, whole: no script, nothing loaded from elsewhere, every word from outside escaped."""
    word, sentence = origin(record)
    banner = f'<p class="banner" role="note"><b>{word}</b> {escape(sentence)}</p>' if word else ""
    title = headline(record)
    body = [
        f'<p class="asked">{escape(goal_text(record))}</p><h1>{escape(title)}</h1>',
        f"<p class='lead'>{escape(record.stopped)}</p>" if record.stopped else "",
        f"<p class='lead'>{escape(instances_text(record))}</p>" if instances_text(record) else "",
        f"<figure>{serverless_picture(record)}</figure>",
        _receipt(record),
        _table("Epochs", _HEAD, [_cells(row) for row in record.rows]),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(record.problem.name)}: {escape(title)} - mlcd</title>\n<style>{CSS}</style>\n</head>\n"
        "<body>\n"
        f'<header class="top"><b>mlcd</b><span>{escape(record.created)}</span>'
        f"<span>{escape(record.run_id)}</span></header>\n<main>\n{banner}\n"
        + "\n".join(part for part in body if part)
        + f"\n</main>\n<footer>mlcd {escape(record.version)}</footer>\n</body>\n</html>\n"
    )


_HEAD = ["epoch", "samples", "functions", "memory", "loss", "time", "money"]
_HEAD += ["fetch", "compute", "update", "calls", "repeated"]


def _cells(row: EpochRow) -> list[str]:
    done = row.outcome
    start = epoch_cells(done)
    if not isinstance(done, Epoch):
        return [*start, f"failed: {done.message}", f"{done.seconds:.1f} s", str(done.usd), "-", "-", "-", "-", "-"]
    phases = [f"{phase.mean_seconds:.2f} s" for phase in (done.fetch, done.compute, done.update)]
    counts = [str(done.calls), str(done.failed)]
    return [*start, f"{done.loss:.4f}", f"{done.seconds:.1f} s", str(done.usd), *phases, *counts]


def _receipt(record: ServerlessRecord) -> str:
    goal = record.problem.goal
    rows = [["training", format_seconds(record.training_seconds), str(record.total_usd)], *lost_rows(record)]
    if goal.budget is not None:
        rows += [["budget", "", str(goal.budget)], ["left", "", str(goal.budget - record.total_usd)]]
    return _table("Receipt", ["", "time", "money"], rows)


def _table(title: str, head: list[str], rows: list[list[str]]) -> str:
    if not rows:
        return ""
    names = "".join(f"<th>{escape(name)}</th>" for name in head)
    lines = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return (
        f"<section><h2>{escape(title)}</h2><div class='scroll'><table><thead><tr>{names}</tr></thead>"
        f"<tbody>{lines}</tbody></table></div></section>"
    )
