"""A language model's load tests in pictures: what each configuration did at every pace that was tried."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from mlcd.report.frame import axes, left_margin, legend, origin_mark
from mlcd.report.labels import Box
from mlcd.report.palette import SERIES
from mlcd.report.picture import Picture, PictureTable, table_of
from mlcd.report.svg import Drawing
from mlcd.report.thinning import MOST_LABELS, MOST_MARKS, drawn_text, thinned
from mlcd.report.ticks import fitted_scale, number_ticks
from mlcd.report.wording import plural, speed_text
from mlcd.run.run import SearchRun
from mlcd.trial.trial import Measurement, TokenPoint
from mlcd.units import latency_text

TOKENS_PICTURE, RATES_PICTURE = "tokens", "rates"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axes:
    """What is drawn against what: the time across in seconds, and what is above."""

    heading: str
    title: str
    across: str
    up: str
    seconds: Callable[[TokenPoint], float]
    value: Callable[[TokenPoint], float]
    metric: str


_PICTURES: Mapping[str, _Axes] = {
    TOKENS_PICTURE: _Axes(
        heading="Tokens against the first token",
        title="Output tokens per second against time to first token",
        across="time to first token p95, ms",
        up="output tokens per second",
        seconds=lambda point: point.ttft_p95,
        value=lambda point: point.output_tokens_per_second,
        metric="ttft",
    ),
    RATES_PICTURE: _Axes(
        heading="Rate against latency",
        title="Requests per second against the whole request",
        across="whole request p95, ms",
        up="requests per second",
        seconds=lambda point: point.e2e_p95,
        value=lambda point: point.requests_per_second,
        metric="e2e",
    ),
}


def tokens(record: SearchRun) -> Picture | None:
    """Output tokens against the first token; None where no load test has paces."""
    return _picture(record, TOKENS_PICTURE)


def rates(record: SearchRun) -> Picture | None:
    """Requests against the whole request; None where no load test has paces, or a version that did not store them."""
    return _picture(record, RATES_PICTURE)


def _picture(record: SearchRun, name: str) -> Picture | None:
    shown = _PICTURES[name]
    every = _curves(record, shown)
    if not every:
        return None
    choice = record.serve_findings.choice
    chosen = str(choice.config) if choice is not None else ""
    names = sorted(every, key=lambda name: (name != chosen, -max(shown.value(point) for point in every[name])))
    each = max(2, MOST_MARKS // min(len(names), MOST_LABELS))
    curves = {name: thinned(every[name], each) for name in names[:MOST_LABELS]}
    table = _table(curves, chosen, drawn_text(len(curves), len(every), "configurations"))
    return Picture(
        name=name,
        title=shown.heading,
        description="Each line is a configuration with more and more requests in flight; up and to the left is better."
        " Hollow marks broke a limit.",
        table=table,
        draw=partial(_svg, record, shown, curves, table),
    )


def _table(curves: Mapping[str, Sequence[TokenPoint]], chosen: str, note: str) -> PictureTable:
    rows = [
        [
            f"{name}, chosen" if name == chosen else name,
            f"{point.concurrency:.0f}",
            speed_text(point.output_tokens_per_second),
            speed_text(point.requests_per_second),
            latency_text(point.ttft_p95),
            latency_text(point.tpot_p95),
            latency_text(point.e2e_p95),
            "kept" if point.kept else "broken",
        ]
        for name, points in curves.items()
        for point in points
    ]
    heads = "configuration|>in flight|>output tokens/s|>requests/s|>ttft p95|>tpot p95|>whole request p95|limits"
    return table_of(heads, rows, note=note)


def _svg(
    record: SearchRun, shown: _Axes, curves: Mapping[str, Sequence[TokenPoint]], table: PictureTable, width: float
) -> str:
    """A line for each configuration through its paces; hollow where a limit was broken."""
    height = 420.0 if width > 560 else 380.0
    choice = record.serve_findings.choice
    chosen = str(choice.config) if choice is not None else ""
    drawing = Drawing(
        width=width,
        height=height,
        title=shown.title,
        description=f"{plural(len(curves), 'configuration')} at several paces each",
    )
    limit = next((x for x in record.problem.goal.token_limits if x.metric == shown.metric), None)
    items: list[tuple[str, str, int | str]] = [
        (f"chosen: {name}" if name == chosen else name, f"mark f-{_css(at)}", at % SERIES)
        for at, name in enumerate(curves)
        if at < SERIES
    ]
    if len(curves) > SERIES:
        items.append((f"{len(curves) - SERIES} more", "mark f-other", 0))
    items.append(("a limit was broken", "hollow", 0))
    if limit is not None:
        items.append((f"{limit.name.replace('_', ' ')} limit of {latency_text(limit.seconds)}", "limit", "line"))
    top = legend(drawing, items, width) + 24
    points = [point for of in curves.values() for point in of]
    up = fitted_scale([shown.value(p) for p in points], height - 48, top, spread_for_log=50, floor=True)
    ticks = number_ticks(up, 6)
    plot = Box(left_margin(ticks), top, width - 16, height - 48)
    times = [shown.seconds(point) * 1000 for point in points]
    if limit is not None and limit.seconds * 1000 < 4 * max(times):
        times.append(limit.seconds * 1000)
    across = fitted_scale(times, plot.left, plot.right, spread_for_log=12, floor=True)
    suffix = " (logarithmic)"
    axes(
        drawing,
        plot,
        across=(across, number_ticks(across, 6 if width > 560 else 4), shown.across + suffix * across.log),
        up=(up, ticks, shown.up + suffix * up.log),
    )
    if limit is not None and (x := across(limit.seconds * 1000)) < plot.right:
        drawing.rect(Box(x, plot.top, plot.right, plot.bottom), "shade")
        drawing.line([(x, plot.top), (x, plot.bottom)], "limit")
    row = 0
    for at, (name, of) in enumerate(curves.items()):
        places = [(across(shown.seconds(point) * 1000), up(shown.value(point))) for point in of]
        if len(places) > 1:
            drawing.line(places, f"l-{_css(at)}" if name == chosen else f"w-{_css(at)}")
        for point, (x, y) in zip(of, places, strict=True):
            if point.kept:
                drawing.mark(at if at < SERIES else 0, x, y, f"mark f-{_css(at)}", table.hover(row))
            else:
                drawing.circle(x, y, 4, "hollow", table.hover(row))
            row += 1
    origin_mark(drawing, record, height, left_out=table.note)
    return drawing.render()


def _curves(record: SearchRun, shown: _Axes) -> dict[str, Sequence[TokenPoint]]:
    """The paces of each configuration's last load test, by requests in flight; without those of earlier versions."""
    found: dict[str, Sequence[TokenPoint]] = {}
    for step in record.trials:
        trial = step.trial
        if isinstance(trial, Measurement) and trial.load is not None and trial.load.tokens is not None:
            points = [p for p in trial.load.tokens.front if shown.seconds(p) > 0 and shown.value(p) > 0]
            if points:
                found[str(trial.config)] = sorted(points, key=lambda point: point.concurrency)
    return found


def _css(at: int) -> str:
    return f"s{at}" if at < SERIES else "other"
