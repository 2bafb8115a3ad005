"""Time against cost over cluster sizes, a curve a global batch: predicted lines, measured points, front and knee."""

from collections.abc import Sequence
from dataclasses import dataclass

from mlcd.models.tradeoff import front, knee
from mlcd.report.frame import Plane, axes, empty, left_margin, legend
from mlcd.report.labels import Box, Label, place
from mlcd.report.svg import SERIES, Drawing
from mlcd.report.ticks import fitted_scale, money_ticks, time_ticks
from mlcd.units import Usd, format_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPoint:
    """A training on K workers."""

    workers: int
    seconds: float
    usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCurve:
    """One global batch: what was measured, and what was predicted, in the order of K. Either may be empty."""

    batch: int
    measured: tuple[BatchPoint, ...]
    predicted: tuple[BatchPoint, ...]


def batch_picture(
    curves: Sequence[BatchCurve],
    *,
    key: str,
    title: str,
    origin: str = "",
    chosen: tuple[int, int] | None = None,
    width: float = 860.0,
) -> str:
    """The SVG.

    key     begins the identifiers inside: several pictures may share a page
    origin  SIMULATED or REPLAYED where no machine was rented: a picture travels alone
    chosen  (K, B) that gets the ring; without it the knee of all points, each as measured or else as predicted
    """
    height = 440.0 if width > 560 else 400.0
    named = [(c.batch, p) for c in curves for p in (*c.measured, *_unmeasured(c))]
    best = [named[at] for at in front([(p.seconds, p.usd) for _, p in named])]
    drawing = Drawing(
        key=f"{key}-{width:.0f}",
        width=width,
        height=height,
        title=title,
        description=f"{len(curves)} batch sizes; on the Pareto front: " + "; ".join(_say(b, p) for b, p in best),
    )
    if not named:
        empty(drawing, width, height, "Nothing was measured or predicted.")
        return drawing.render()
    looks = {curve.batch: _look(at) for at, curve in enumerate(curves)}
    items: list[tuple[str, str, int | str]] = [
        (f"B = {batch:,}", f"mark f-{css}", shape) for batch, (css, shape) in looks.items()
    ]
    if any(curve.predicted for curve in curves):
        items.append(("predicted", "w-other", "line"))
    if any(_unmeasured(curve) for curve in curves):
        items.append(("not measured", "hollow", 0))
    items.append(("Pareto front", "front", "line"))
    top = legend(drawing, items, width) + 24
    every = [p for c in curves for p in (*c.measured, *c.predicted)]
    up = fitted_scale([p.usd for p in every], height - 48, top, spread_for_log=8, floor=False)
    ticks = money_ticks(up, 6)
    plot = Box(left_margin(ticks), top, width - 16, height - 48)
    across = fitted_scale([p.seconds for p in every], plot.left, plot.right, spread_for_log=8, floor=False)
    suffix = " (logarithmic)"
    axes(
        drawing,
        plot,
        across=(across, time_ticks(across, 6 if width > 560 else 4), "training time" + suffix * across.log),
        up=(up, ticks, "training cost" + suffix * up.log),
    )
    if len(best) > 1:
        drawing.line([(across(p.seconds), up(p.usd)) for _, p in best], "front")
    for curve in curves:
        css, shape = looks[curve.batch]
        line = [(across(p.seconds), up(p.usd)) for p in curve.predicted]
        if len(line) > 1:
            drawing.line(line, f"w-{css}")
        for p in _unmeasured(curve):
            drawing.circle(across(p.seconds), up(p.usd), 4, "hollow", "Predicted: " + _say(curve.batch, p))
        for p in curve.measured:
            drawing.mark(shape, across(p.seconds), up(p.usd), f"mark f-{css}", _say(curve.batch, p))
    batch, point = _ringed(named, chosen)
    drawing.circle(across(point.seconds), up(point.usd), 10, "ring", _say(batch, point))
    _labels(drawing, named, (batch, point), Plane(plot=plot, across=across, up=up))
    if origin:
        drawing.text(4, height - 8, origin, "muted", size=10)
    return drawing.render()


def _unmeasured(curve: BatchCurve) -> list[BatchPoint]:
    """The predicted points of cluster sizes that were not measured."""
    known = {point.workers for point in curve.measured}
    return [point for point in curve.predicted if point.workers not in known]


def _look(at: int) -> tuple[str, int]:
    return (f"s{at}", at) if at < SERIES else ("other", 0)


def _say(batch: int, point: BatchPoint) -> str:
    return f"K = {point.workers}, B = {batch:,}: {format_seconds(point.seconds)}, {Usd.of(round(point.usd, 6))}"


def _ringed(named: Sequence[tuple[int, BatchPoint]], chosen: tuple[int, int] | None) -> tuple[int, BatchPoint]:
    for batch, point in named:
        if chosen == (point.workers, batch):
            return batch, point
    return named[knee([(p.seconds, p.usd) for _, p in named])]


def _labels(
    drawing: Drawing,
    named: Sequence[tuple[int, BatchPoint]],
    ringed: tuple[int, BatchPoint],
    plane: Plane,
) -> None:
    """K beside its point, the chosen one in full first."""
    plot, across, up = plane.plot, plane.across, plane.up
    labels = []
    for batch, point in sorted(named, key=lambda n: n != ringed):
        x, y = across(point.seconds), up(point.usd)
        if (batch, point) == ringed:
            text = f"K = {point.workers}, B = {batch:,}"
            labels.append(Label(text=text, x=x, y=y, size=12.5, gap=14.0, must=True))
        else:
            labels.append(Label(text=str(point.workers), x=x, y=y, size=10.0, gap=7.0))
    marks = [Box(across(p.seconds) - 5, up(p.usd) - 5, across(p.seconds) + 5, up(p.usd) + 5) for _, p in named]
    for placed in place(labels, Box(plot.left + 2, plot.top, plot.right + 10, plot.bottom), marks):
        css = "halo chosen" if placed.label.must else "halo"
        drawing.text(placed.x, placed.y, placed.label.text, css, anchor="middle", size=placed.label.size)
