"""Time against cost over cluster sizes, one curve per global batch: predictions, measurements, front and knee."""

from collections.abc import Sequence

from mlcd.report.frame import Plane, axes, empty, left_margin, legend
from mlcd.report.labels import Box, Label, place
from mlcd.report.palette import SERIES
from mlcd.report.picture import PictureTable, table_of
from mlcd.report.svg import Drawing
from mlcd.report.thinning import MOST_LABELS, MOST_MARKS, drawn_text, listed, thinned
from mlcd.report.ticks import fitted_scale, money_ticks, time_ticks
from mlcd.run.findings import BatchPoint, BatchTradeoff
from mlcd.units import Usd, format_seconds


def batch_table(tradeoff: BatchTradeoff) -> PictureTable:
    """Its points, as many as are drawn."""
    front, rows = set(tradeoff.front), []
    for measured, batch, point in _drawn(tradeoff):
        words = ["measured" if measured else "predicted"]
        words += ["on the front"] * ((point.workers, batch) in front)
        words += ["the ring"] * ((point.workers, batch) == tradeoff.preferred)
        seconds, usd = format_seconds(point.seconds), str(Usd.of(round(point.usd, 6)))
        rows.append([str(point.workers), f"{batch:,}", seconds, usd, ", ".join(words)])
    note = drawn_text(len(rows), len(tradeoff.points), "points")
    return table_of(">K (nodes)|>B (global batch)|>time|>cost|what it is", rows, note=note)


def _drawn(tradeoff: BatchTradeoff) -> list[tuple[bool, int, BatchPoint]]:
    """(measured, batch, point) of the marks, the ringed one among them."""
    each = max(2, MOST_MARKS // max(1, len(tradeoff.curves)))
    found: list[tuple[bool, int, BatchPoint]] = []
    for curve in tradeoff.curves:
        for is_measured, points in ((False, curve.unmeasured), (True, curve.measured)):
            kept = thinned(points, each, keep=lambda p, b=curve.batch: (p.workers, b) == tradeoff.preferred)  # type: ignore[misc]
            found += [(is_measured, curve.batch, point) for point in kept]
    return found


def batch_picture(
    tradeoff: BatchTradeoff,
    *,
    title: str,
    origin: str = "",
    width: float = 860.0,
) -> str:
    """The SVG; the ring is the preferred point.

    origin  SIMULATED or REPLAYED if no machine was rented: a picture may be shared on its own
    """
    height = 440.0 if width > 560 else 400.0
    curves, named = tradeoff.curves, tradeoff.points
    by_place = {(point.workers, batch): (batch, point) for batch, point in named}
    best = [by_place[pair] for pair in tradeoff.front]
    drawing = Drawing(
        width=width,
        height=height,
        title=title,
        description=f"{len(curves)} batch sizes; on the Pareto front: "
        + listed([_say(b, p) for b, p in best], separator="; "),
    )
    if tradeoff.preferred is None:
        empty(drawing, width, height, "Nothing was measured or predicted.")
        return drawing.render()
    looks = {curve.batch: _look(at) for at, curve in enumerate(curves)}
    items: list[tuple[str, str, int | str]] = [
        (f"B = {batch:,}", f"mark f-{css}", shape) for batch, (css, shape) in looks.items()
    ]
    each = max(2, MOST_MARKS // len(curves))  # marks of one curve
    if any(curve.predicted for curve in curves):
        items.append(("predicted", "w-other", "line"))
    if any(curve.unmeasured for curve in curves):
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
        drawing.line([(across(p.seconds), up(p.usd)) for _, p in thinned(best)], "front")
    for curve in curves:
        css, _ = looks[curve.batch]
        line = [(across(p.seconds), up(p.usd)) for p in thinned(curve.predicted, each)]
        if len(line) > 1:
            drawing.line(line, f"w-{css}")
    table, (batch, point) = batch_table(tradeoff), by_place[tradeoff.preferred]
    for at, (is_measured, b, p) in enumerate(_drawn(tradeoff)):
        css, shape = looks[b]
        if is_measured:
            drawing.mark(shape, across(p.seconds), up(p.usd), f"mark f-{css}", table.hover(at))
        else:
            drawing.circle(across(p.seconds), up(p.usd), 4, "hollow", table.hover(at))
        if (p.workers, b) == tradeoff.preferred:
            drawing.circle(across(p.seconds), up(p.usd), 10, "ring", table.hover(at))
    _labels(drawing, named, (batch, point), Plane(plot=plot, across=across, up=up))
    if origin:
        drawing.text(4, height - 8, origin, "muted", size=10)
    return drawing.render()


def _look(at: int) -> tuple[str, int]:
    return (f"s{at}", at) if at < SERIES else ("other", 0)


def _say(batch: int, point: BatchPoint) -> str:
    return f"K = {point.workers}, B = {batch:,}: {format_seconds(point.seconds)}, {Usd.of(round(point.usd, 6))}"


def _labels(
    drawing: Drawing,
    named: Sequence[tuple[int, BatchPoint]],
    ringed: tuple[int, BatchPoint],
    plane: Plane,
) -> None:
    """K next to each point; the chosen one first, with K and B."""
    plot, across, up = plane.plot, plane.across, plane.up
    labels = []
    named = thinned(named, keep=lambda n: n == ringed)
    for batch, point in sorted(thinned(named, MOST_LABELS, keep=lambda n: n == ringed), key=lambda n: n != ringed):
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
