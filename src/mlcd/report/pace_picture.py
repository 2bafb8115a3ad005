"""A language model's load tests in pictures: what each configuration did at every pace that was tried."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mlcd.report.frame import axes, empty, left_margin, legend, origin_mark
from mlcd.report.labels import Box
from mlcd.report.svg import SERIES, Drawing
from mlcd.report.thinning import MOST_LABELS, drawn_text
from mlcd.report.ticks import fitted_scale, number_ticks
from mlcd.report.wording import plural, speed_text
from mlcd.run.run import SearchRun
from mlcd.trial.trial import Measurement, TokenPoint
from mlcd.units import latency_text

TOKENS_PICTURE, RATES_PICTURE = "tokens", "rates"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axes:
    """What is drawn against what: the time across in seconds, and what is above."""

    title: str
    across: str
    up: str
    seconds: Callable[[TokenPoint], float]
    value: Callable[[TokenPoint], float]
    metric: str


_PICTURES: Mapping[str, _Axes] = {
    TOKENS_PICTURE: _Axes(
        title="Output tokens per second against time to first token",
        across="time to first token p95, ms",
        up="output tokens per second",
        seconds=lambda point: point.ttft_p95,
        value=lambda point: point.output_tokens_per_second,
        metric="ttft",
    ),
    RATES_PICTURE: _Axes(
        title="Requests per second against the whole request",
        across="whole request p95, ms",
        up="requests per second",
        seconds=lambda point: point.e2e_p95,
        value=lambda point: point.requests_per_second,
        metric="e2e",
    ),
}


def has_paces(record: SearchRun, kind: str = TOKENS_PICTURE) -> bool:
    """Whether a load test of the run has paces to draw in this picture; older runs lack some of the figures."""
    return bool(_curves(record, _PICTURES[kind]))


def pace_picture(record: SearchRun, kind: str, width: float) -> str:
    """The SVG: a line for each configuration through its paces; hollow where a limit was broken. Up and left is better.

    Raises KeyError for an unknown kind.
    """
    shown = _PICTURES[kind]
    height = 420.0 if width > 560 else 380.0
    every = _curves(record, shown)
    choice = record.serve_findings.choice
    chosen = str(choice.config) if choice is not None else ""
    names = sorted(every, key=lambda name: (name != chosen, -max(shown.value(point) for point in every[name])))
    curves = {name: every[name] for name in names[:MOST_LABELS]}
    drawing = Drawing(
        key=f"{kind}-{width:.0f}",
        width=width,
        height=height,
        title=shown.title,
        description=f"{plural(len(every), 'configuration')} at several paces each",
    )
    if not curves:
        empty(drawing, width, height, "No load test measured several paces.")
        return drawing.render()
    limit = next((x for x in record.problem.goal.token_limits if x.metric == shown.metric), None)
    items: list[tuple[str, str, int | str]] = [
        (f"chosen: {name}" if name == chosen else name, f"mark f-{_css(at)}", at % SERIES)
        for at, name in enumerate(curves)
    ]
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
    for at, (name, of) in enumerate(curves.items()):
        places = [(across(shown.seconds(point) * 1000), up(shown.value(point))) for point in of]
        if len(places) > 1:
            drawing.line(places, f"l-{_css(at)}" if name == chosen else f"w-{_css(at)}")
        for point, (x, y) in zip(of, places, strict=True):
            if point.kept:
                drawing.mark(at % SERIES, x, y, f"mark f-{_css(at)}", _title(name, point))
            else:
                drawing.circle(x, y, 4, "hollow", _title(name, point))
    origin_mark(drawing, record, height, left_out=drawn_text(len(curves), len(every), "configurations"))
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


def _title(name: str, point: TokenPoint) -> str:
    return (
        f"{name}\n{point.concurrency:.0f} in flight: {speed_text(point.output_tokens_per_second)} output tokens/s\n"
        f"ttft p95 {latency_text(point.ttft_p95)}, tpot p95 {latency_text(point.tpot_p95)}"
        + ("" if point.kept else "; a limit was broken")
    )


def _css(at: int) -> str:
    return f"s{at}" if at < SERIES else "other"
