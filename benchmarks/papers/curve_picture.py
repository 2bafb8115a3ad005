"""Lines over a number, one per method: accuracy over trials, or over a setting."""

from collections.abc import Sequence
from dataclasses import dataclass

from mlcd.report.frame import axes, left_margin, legend
from mlcd.report.labels import Box
from mlcd.report.palette import SERIES
from mlcd.report.svg import Drawing
from mlcd.report.ticks import Scale, number_ticks


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A method's points, in order. `joined=False` draws marks without lines."""

    name: str
    points: tuple[tuple[float, float], ...]
    joined: bool = True


def curve_picture(
    curves: Sequence[Curve],
    *,
    title: str,
    across: str,
    up: str,
    origin: str = "",
    good: float | None = None,
    span: tuple[float, float] = (0.0, 1.02),
    log: bool = False,
    width: float = 860.0,
) -> str:
    """The SVG. `up` covers `span`; `good` draws a line at the value that is good enough; `log`: across is logarithmic.

    Raises ValueError where there are no points.
    """
    every = [point for curve in curves for point in curve.points]
    if not every:
        raise ValueError("a picture needs a point")
    height = 420.0
    drawing = Drawing(width=width, height=height, title=title, description=_say(curves))
    looks = {curve.name: (f"s{at}", at) if at < SERIES else ("other", 0) for at, curve in enumerate(curves)}
    items: list[tuple[str, str, int | str]] = [
        (curve.name, f"mark f-{looks[curve.name][0]}", looks[curve.name][1]) for curve in curves
    ]
    top = legend(drawing, items, width) + 24
    rising = Scale(low=span[0], high=span[1], start=height - 48, end=top)
    ticks = number_ticks(rising, 5)
    plot = Box(left_margin(ticks), top, width - 16, height - 48)
    low, high = min(x for x, _ in every), max(x for x, _ in every)
    air = (high - low) * 0.03 or 1.0
    ends = (low / 1.1, high * 1.1) if log else (low - air, high + air)
    sideways = Scale(low=ends[0], high=ends[1], start=plot.left, end=plot.right, log=log)
    axes(drawing, plot, across=(sideways, number_ticks(sideways, 8), across), up=(rising, ticks, up))
    if good is not None:
        drawing.line([(plot.left, rising(good)), (plot.right, rising(good))], "limit")
    for curve in curves:
        css, shape = looks[curve.name]
        places = [(sideways(x), rising(y)) for x, y in curve.points]
        if curve.joined and len(places) > 1:
            drawing.line(places, f"l-{css}")
        for (x, y), place in zip(curve.points, places, strict=True):
            drawing.mark(shape, *place, f"mark f-{css}", f"{curve.name}: {x:g}, {y:.3f}", radius=4.0)
    if origin:
        drawing.text(4, height - 8, origin, "muted", size=10)
    return drawing.render()


def _say(curves: Sequence[Curve]) -> str:
    ends = [f"{curve.name} ends at {curve.points[-1][1]:.3f}" for curve in curves if curve.points]
    return "; ".join(ends)
