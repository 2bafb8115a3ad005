"""The reports of a hand-built run as users see them: with its findings, computed here."""

from mlcd.findings import shown
from mlcd.report import as_json, batches, html, pictures, serverless_html, serving_html, text_plot, verdict
from mlcd.report.page import WIDE
from mlcd.report.pictures import PictureKind
from mlcd.run.run import EpochRun, SearchRun


def verdict_of(run: SearchRun, *, plain: bool = False) -> str:
    return verdict.verdict(shown(run), plain=plain)


def json_of(run: SearchRun) -> dict[str, object]:
    return as_json.record_json(shown(run))


def html_of(run: SearchRun) -> str:
    return html.html_report(shown(run))


def serving_html_of(run: SearchRun) -> str:
    return serving_html.serving_html(shown(run))


def serverless_html_of(run: EpochRun) -> str:
    return serverless_html.serverless_html(shown(run))


def picture_of(run: SearchRun, kind: PictureKind | str = PictureKind.SPEED, *, width: float = WIDE) -> str:
    return pictures.picture(shown(run), kind, width=width)


def plot_of(run: SearchRun) -> tuple[str, ...]:
    return text_plot.text_plot(shown(run))


def batch_notes_of(run: SearchRun) -> list[str]:
    return batches.batch_notes(shown(run))
