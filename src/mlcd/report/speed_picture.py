"""Speed or job time over nodes, one curve per type, with the search's path: like the paper's Figs. 9a and 15."""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby, pairwise

from mlcd.report.frame import (
    Plane,
    Series,
    axes,
    curve_of,
    empty,
    left_margin,
    legend,
    legend_items,
    origin_mark,
    series,
)
from mlcd.report.labels import Box, Label, place, text_width
from mlcd.report.picture import Picture, PictureTable, table_of
from mlcd.report.svg import Drawing
from mlcd.report.thinning import MOST_LABELS, drawn_text, thinned
from mlcd.report.ticks import Scale, doubling_ticks, fitted_scale
from mlcd.report.wording import plural
from mlcd.report.yardstick import Yardstick, yardstick
from mlcd.run.run import SearchRun
from mlcd.run.step import Step
from mlcd.trial.trial import Failure, Measurement
from mlcd.units import format_seconds

_STRIP = 26.0
_MOST_BANDS = 2
"""Bands that can be told apart: of more curves, the choice's is shaded and the others have a line each."""


def speed(record: SearchRun) -> Picture:
    """Speed over nodes. A long run is thinned, in the table too."""
    table = _table(record)
    first, *others = _bands(record, series(record)) or [""]
    foreseen = " Shaded: what the model expects of numbers of nodes that were not tried, at 95%" if first else ""
    if len(others) + 1 > _MOST_BANDS:
        foreseen += f", of {first}; dashed: what it expects of the others"
    return Picture(
        name="speed",
        title="The search",
        description=f"Measured {yardstick(record).title} over nodes, one curve per type. Numbers and the dotted path"
        " show the order of the trials; bars are 95% intervals; crosses are failed trials."
        + (f"{foreseen}; the map has the figures." if foreseen else ""),
        table=table,
        draw=partial(_svg, record, table),
    )


def _table(record: SearchRun) -> PictureTable:
    rows, shown = _drawn(record), yardstick(record)
    return table_of(
        ">trial|deployment|result|95% interval|>took|>cost|why it was tried",
        [_cells(record, row, shown) for row in rows],
        note=drawn_text(len(rows), len(record.trials), "trials"),
    )


def _cells(record: SearchRun, row: Step, shown: Yardstick) -> list[str]:
    trial = row.trial
    if isinstance(trial, Failure):
        result, spread = f"{trial.kind}: {trial.message}" if trial.message else str(trial.kind), ""
    else:
        result, spread = shown.result(trial), shown.spread(trial)
        if record.choice and trial.config == record.choice.config:
            result += ", chosen"
    return [
        str(row.number),
        str(trial.config),
        result,
        spread,
        format_seconds(trial.seconds),
        str(trial.usd),
        row.reason,
    ]


def _svg(record: SearchRun, table: PictureTable, width: float) -> str:
    """Failures are crosses in a strip below the plot; numbers are the trials' order."""
    height = 440.0 if width > 560 else 400.0
    measured, failed = record.history.measured, record.history.failures
    shown = yardstick(record)
    best = max(measured, key=lambda t: t.samples_per_second, default=None)
    drawing = Drawing(
        width=width,
        height=height,
        title=f"Training {shown.title} over the number of nodes, by instance type",
        description=f"{plural(len(measured), 'deployment')} measured, {plural(len(failed), 'trial')} failed."
        + (f" Fastest: {best.config}, {shown.result(best)}." if best else "")
        + (f" Chosen: {record.choice.config}." if record.choice else ""),
    )
    if not record.trials:
        empty(drawing, width, height, "No trial was run.")
        return drawing.render()
    looks = series(record)
    items: list[tuple[str, str, int | str]] = [
        (text, f"mark f-{look.css}", look.shape) for text, look in legend_items(looks) if look
    ]
    items.append(("search path", "walk", "line"))
    if failed:
        items.append(("failed", "x-other", "cross"))
    bands = _bands(record, looks)
    if len(bands) > _MOST_BANDS:
        first = next(iter(bands))
        items.append((f"predicted, 95%: {first}", f"b-{looks[first].css}", "box"))
        items.append(("predicted, others", "w-other dash", "line"))
    elif bands:
        items.append(("predicted, 95%", "b-other", "box"))
    top = legend(drawing, items, width) + 24
    bottom = height - 46 - (_STRIP if failed else 0)
    rows = _drawn(record)
    values = [v for row in rows if isinstance(row.trial, Measurement) for v in shown.interval(row.trial)] or [1.0]
    up = fitted_scale(values, bottom, top, spread_for_log=25, floor=True)
    ticks = shown.ticks(up, 6)
    plot = Box(max(left_margin(ticks), 50.0 if failed else 0.0), top, width - 16, bottom)
    highest = max(2, *(row.trial.config.nodes for row in rows), *(nodes for band in bands.values() for nodes in band))
    across = Scale(low=0.88, high=highest * 1.14, start=plot.left, end=plot.right, log=True)
    frame = Box(plot.left, plot.top, plot.right, plot.bottom + (_STRIP if failed else 0))
    _axes(drawing, shown, Plane(plot=plot, across=across, up=up), frame)
    places = _places(shown, rows, Plane(plot=plot, across=across, up=up), strip=plot.bottom + _STRIP / 2)
    _draw_bands(drawing, bands, looks, shown, Plane(plot=plot, across=across, up=up))
    drawing.line([places[row.number] for row in rows], "walk")
    _curves(drawing, record, looks, places)
    _points(drawing, record, table, places, up)
    _labels(drawing, record, places, frame)
    origin_mark(drawing, record, height, left_out=drawn_text(len(rows), len(record.trials), "trials"))
    return drawing.render()


def _drawn(record: SearchRun) -> list[Step]:
    """The trials in the picture, the choice's among them."""
    chosen = record.choice.config if record.choice else None
    return thinned(record.trials, keep=lambda row: row.trial.config == chosen)


def _bands(record: SearchRun, looks: Mapping[str, Series]) -> dict[str, dict[int, tuple[float, float]]]:
    """(low, high) of the speed by number of nodes, for each curve with untried ones that the model was asked about.

    In the order of `looks`: the choice's is first.
    """
    found: dict[str, dict[int, tuple[float, float]]] = {}
    for each in record.train_findings.untried:
        name, interval = curve_of(record, each.config), each.speed_interval
        if interval is not None and name in looks:
            found.setdefault(name, {})[each.config.nodes] = interval
    for trial in record.history.measured:
        name = curve_of(record, trial.config)
        if name in found:
            found[name][trial.config.nodes] = trial.speed_interval()
    return {name: found[name] for name in looks if len(found.get(name, ())) > 1}


def _draw_bands(
    drawing: Drawing,
    bands: Mapping[str, Mapping[int, tuple[float, float]]],
    looks: Mapping[str, Series],
    shown: Yardstick,
    plane: Plane,
) -> None:
    """Each band within the plot: far from all trials, the model's interval may be thousands of times its middle.

    Of more than _MOST_BANDS, only the first is an area; the others are lines through what is expected.
    """
    cut: list[tuple[float, float]] = []
    for at, (name, band) in enumerate(bands.items()):
        nodes = sorted(band)
        if at and len(bands) > _MOST_BANDS:
            for points in _within(plane, [(n, shown.of_speed(math.sqrt(math.prod(band[n])))) for n in nodes]):
                drawing.line(points, f"w-{looks[name].css} dash")
            continue
        edges = [
            [(plane.across(count), plane.up(shown.of_speed(band[count][end]))) for count in nodes] for end in (0, 1)
        ]
        lower, upper = (_cut(edge, plane.plot) for edge in edges)
        drawing.area([*lower, *reversed(upper)], f"b-{looks[name].css}")
        cut += [
            (max(map(shown.of_speed, band[count])), plane.across(count))
            for at_node, count in enumerate(nodes)
            if min(edge[at_node][1] for edge in edges) < plane.plot.top - 1
        ]
    _name_cut(drawing, cut, shown, plane)


def _cut(edge: Sequence[tuple[float, float]], plot: Box) -> list[tuple[float, float]]:
    """The points of an edge with those where it leaves the plot; what is outside is moved to the plot's edge."""
    points = [*edge[:1]]
    for (x, y), (next_x, next_y) in pairwise(edge):
        crossed = [(end - y) / (next_y - y) for end in (plot.top, plot.bottom) if (y - end) * (next_y - end) < 0]
        points += [(x + (next_x - x) * share, y + (next_y - y) * share) for share in sorted(crossed)]
        points.append((next_x, next_y))
    return [(x, min(max(y, plot.top), plot.bottom)) for x, y in points]


def _name_cut(drawing: Drawing, cut: Sequence[tuple[float, float]], shown: Yardstick, plane: Plane) -> None:
    """How far bands go on above the plot, if they do: a flat edge would look like their own.

    cut  the upper end of each interval that is cut, and where it is
    """
    if not cut:
        return
    highest, at = max(cut)
    text = f"goes on to {f'{shown.text(highest)} {shown.unit}'.strip()}"
    half = text_width(text, 10) / 2
    left, right = min(x for _, x in cut), max(x for _, x in cut)
    drawing.line([(left, plane.plot.top), (right, plane.plot.top)], "walk")
    x = min(max(at, plane.plot.left + half + 60), plane.plot.right - half)
    drawing.text(x, plane.plot.top - 4, text, "muted", anchor="middle", size=10)


def _within(plane: Plane, values: Sequence[tuple[int, float]]) -> Iterator[list[tuple[float, float]]]:
    """The points of a line, in pieces that are within the plot."""
    points = [(plane.across(nodes), plane.up(value)) for nodes, value in values]
    for inside, piece in groupby(points, lambda point: plane.plot.top <= point[1] <= plane.plot.bottom):
        if inside and len(found := list(piece)) > 1:
            yield found


def _axes(drawing: Drawing, shown: Yardstick, plane: Plane, frame: Box) -> None:
    plot, across, up = plane.plot, plane.across, plane.up
    name = shown.name + " (logarithmic)" * up.log
    axes(
        drawing,
        frame,
        across=(across, doubling_ticks(across.high), "nodes"),
        up=(up, shown.ticks(up, 6), name),
    )
    if frame.bottom > plot.bottom:
        drawing.line([(plot.left, plot.bottom), (plot.right, plot.bottom)], "axis")
        drawing.text(plot.left - 7, (plot.bottom + frame.bottom) / 2 + 4, "failed", "muted", anchor="end", size=11)


def _places(shown: Yardstick, rows: Sequence[Step], plane: Plane, *, strip: float) -> dict[int, tuple[float, float]]:
    across = plane.across
    places: dict[int, tuple[float, float]] = {}
    crosses: list[float] = []
    for row in rows:
        x = across(row.trial.config.nodes)
        if isinstance(row.trial, Measurement):
            places[row.number] = (x, plane.up(shown.value(row.trial)))
        else:
            while x < across.end and any(abs(x - other) < 5 for other in crosses):
                x += 5
            crosses.append(x)
            places[row.number] = (min(x, across.end - 6), strip)
    return places


def _curves(
    drawing: Drawing, record: SearchRun, looks: Mapping[str, Series], places: Mapping[int, tuple[float, float]]
) -> None:
    for instance, look in looks.items():
        last = {
            row.trial.config.nodes: row.number
            for row in record.trials
            if row.number in places
            and curve_of(record, row.trial.config) == instance
            and isinstance(row.trial, Measurement)
        }
        if len(last) > 1:
            drawing.line([places[last[nodes]] for nodes in sorted(last)], f"l-{look.css}")


def _points(
    drawing: Drawing, record: SearchRun, table: PictureTable, places: Mapping[int, tuple[float, float]], up: Scale
) -> None:
    looks, shown = series(record), yardstick(record)
    for at, row in enumerate(_drawn(record)):
        (x, y), look = places[row.number], looks[curve_of(record, row.trial.config)]
        if isinstance(row.trial, Failure):
            drawing.cross(x, y, f"x-{look.css}", table.hover(at))
            continue
        low, high = shown.interval(row.trial)
        drawing.line([(x, up(low)), (x, up(high))], f"w-{look.css}")
        drawing.mark(look.shape, x, y, f"mark f-{look.css}", table.hover(at))
        if record.choice and row.trial.config == record.choice.config:
            drawing.circle(x, y, 10, "ring")


def _labels(drawing: Drawing, record: SearchRun, places: Mapping[int, tuple[float, float]], frame: Box) -> None:
    labels: list[Label] = []
    chosen = record.choice.config if record.choice else None
    rows = [row for row in record.trials if row.number in places]
    for row in thinned(rows, MOST_LABELS, keep=lambda row: row.trial.config == chosen):
        x, y = places[row.number]
        if record.choice and row.trial.config == record.choice.config and isinstance(row.trial, Measurement):
            text = f"{row.number}: chosen, {row.trial.config}"
            labels.insert(0, Label(text=text, x=x, y=y, size=12.5, gap=14, must=True))
        else:
            labels.append(Label(text=str(row.number), x=x, y=y))
    rings = {row.number for row in rows if row.trial.config == chosen}
    marks = [Box(x - r, y - r, x + r, y + r) for at, (x, y) in places.items() for r in (10 if at in rings else 5,)]
    bounds = Box(frame.left + 1, frame.top - 4, frame.right + 12, frame.bottom)
    for placed in place(labels, bounds, marks):
        css = "halo chosen" if placed.label.size > 12 else "halo"
        drawing.text(placed.x, placed.y, placed.label.text, css, anchor="middle", size=placed.label.size)
