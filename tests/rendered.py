"""The reports of a hand-built run as users see them: with its findings, computed here."""

from mlcd.findings import shown
from mlcd.report import as_json, batches, html, serverless_html, serving_html, text_plot, verdict
from mlcd.report.page import WIDE
from mlcd.report.pictures import picture_among, pictures_of
from mlcd.run.run import AnyRun, EpochRun, SearchRun


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


def picture_of(run: AnyRun, name: str = "speed", *, width: float = WIDE) -> str:
    return picture_among(pictures_of(shown(run)), name, where="there is").draw(width)


def picture_names(run: AnyRun) -> tuple[str, ...]:
    return tuple(picture.name for picture in pictures_of(shown(run)))


def plot_of(run: SearchRun) -> tuple[str, ...]:
    return text_plot.text_plot(shown(run))


def batch_notes_of(run: SearchRun) -> list[str]:
    return batches.batch_notes(shown(run))
