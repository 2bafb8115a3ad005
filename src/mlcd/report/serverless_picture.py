"""A training on functions in pictures: functions and memory of each epoch; loss against time, and against money."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from mlcd.report.frame import axes, empty, left_margin, legend, origin_mark
from mlcd.report.labels import Box
from mlcd.report.picture import Picture, PictureTable, table_of
from mlcd.report.svg import Drawing
from mlcd.report.thinning import drawn_text, thinned
from mlcd.report.ticks import Scale, Tick, fitted_scale, money_ticks, number_ticks, time_ticks
from mlcd.run.run import EpochRun
from mlcd.trial.epoch import Epoch
from mlcd.units import format_seconds

_GAP, _BELOW = 70.0, 52.0


def epochs(record: EpochRun) -> Picture:
    """Fleets and loss of each epoch. A long run is thinned, in the table too."""
    drawn = _drawn(record)
    table = _table(record, drawn)
    return Picture(
        name="epochs",
        title="Epochs",
        description="Above, the functions and the memory of each epoch; below, the loss over time and over money, which"
        " failed epochs took too. The dashed line is the target.",
        table=table,
        draw=partial(_svg, record, drawn, table),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Done:
    """An epoch that completed: which part of the passes it was, and what all up to it took."""

    epoch: Epoch
    begins: float
    seconds: float
    usd: float

    @property
    def ends(self) -> float:
        """Passes over the samples when it was over."""
        return self.begins + self.epoch.fleet.share


def _drawn(record: EpochRun) -> list[_Done]:
    passes, found = 0.0, []
    for row, total in zip(record.epoch_steps, record.serverless_findings.totals, strict=True):
        if isinstance(row.epoch, Epoch):
            usd = max(total.usd.dollars, 1e-9)
            found.append(_Done(epoch=row.epoch, begins=passes, seconds=total.seconds, usd=usd))
            passes += row.epoch.fleet.share
    return thinned(found)


def _table(record: EpochRun, drawn: Sequence[_Done]) -> PictureTable:
    rows = [
        [
            str(done.epoch.number),
            str(done.epoch.fleet.functions),
            f"{done.epoch.fleet.memory_mb:,} MB",
            f"{done.epoch.fleet.share:.0%}",
            f"{done.epoch.loss:.4f}",
            format_seconds(done.epoch.seconds),
            str(done.epoch.usd),
            format_seconds(done.seconds),
            f"${done.usd:.4f}",
        ]
        for done in drawn
    ]
    heads = ">epoch|>functions|>memory|>samples|>loss|>took|>cost|>time so far|>money so far"
    return table_of(heads, rows, note=drawn_text(len(rows), len(record.epochs), "epochs"))


def _svg(record: EpochRun, drawn: Sequence[_Done], table: PictureTable, width: float) -> str:
    """Above, the fleets; below, the loss over time and over money, below each other if narrow."""
    is_narrow = width <= 560
    height = 900.0 if is_narrow else 620.0
    drawing = Drawing(
        width=width,
        height=height,
        title="Functions and memory of each epoch; loss against time and against money",
        description=_say(record),
    )
    if not drawn:
        empty(drawing, width, height, "No epoch was completed.")
        return drawing.render()
    items: list[tuple[str, str, int | str]] = [
        ("functions", "spent", "box"),
        ("memory", "mark f-s1", 1),
        ("loss", "mark f-s0", 0),
        (f"target loss {record.problem.target_loss:.4g}", "limit", "line"),
    ]
    top = legend(drawing, items, width) + 24
    middle = top + (height - top) * (0.28 if is_narrow else 0.40)
    count = len(record.epochs)
    across = "passes over the samples" + (f": {count} epochs or parts" if drawn[-1].ends < count - 1e-9 else "")
    _fleets(
        drawing, drawn, table, across, Box(44 if is_narrow else 58, top, width - (52 if is_narrow else 70), middle - 12)
    )
    y = middle + _GAP
    if is_narrow:
        part = (height - y) / 2
        _losses(drawing, record, drawn, table, Box(0, y, width - 14, y + part - _BELOW - _GAP / 2), over="time")
        _losses(drawing, record, drawn, table, Box(0, y + part + _GAP / 2, width - 14, height - _BELOW), over="money")
    else:
        half = (width - 40) / 2
        _losses(drawing, record, drawn, table, Box(0, y, half, height - _BELOW), over="time")
        _losses(drawing, record, drawn, table, Box(half + 30, y, width - 14, height - _BELOW), over="money")
    origin_mark(drawing, record, height, left_out=table.note)
    return drawing.render()


def _fleets(drawing: Drawing, drawn: Sequence[_Done], table: PictureTable, name: str, plot: Box) -> None:
    most = max(done.epoch.fleet.functions for done in drawn)
    up = Scale(low=0.0, high=most * 1.1, start=plot.bottom, end=plot.top)
    across = Scale(low=0.0, high=drawn[-1].ends, start=plot.left, end=plot.right)
    axes(
        drawing,
        plot,
        across=(across, number_ticks(across, 8), name),
        up=(up, _whole(number_ticks(up, 4)), "functions"),
    )
    sizes = [float(done.epoch.fleet.memory_mb) for done in drawn]
    memory = Scale(low=0.0, high=max(sizes) * 1.1, start=plot.bottom, end=plot.top)
    for value, label in number_ticks(memory, 4):
        drawing.text(plot.right + 7, memory(value) + 4, label, "muted", size=11)
    drawing.text(plot.right - 30, plot.top - 12, "memory, MB", "muted", size=11)
    points = []
    for at, done in enumerate(drawn):
        left, right = across(done.begins), across(done.ends)
        bar = Box(left + 0.5, up(done.epoch.fleet.functions), max(right - 0.5, left + 1.0), plot.bottom)
        drawing.rect(bar, "spent", table.hover(at))
        points.append(((left + right) / 2, memory(done.epoch.fleet.memory_mb)))
    drawing.line(points, "l-s1")
    for at, (x, y) in enumerate(points):
        drawing.mark(1, x, y, "mark f-s1", table.hover(at), radius=4)


def _losses(
    drawing: Drawing, record: EpochRun, drawn: Sequence[_Done], table: PictureTable, area: Box, *, over: str
) -> None:
    target = record.problem.target_loss
    shown = [done.epoch.loss for done in drawn]
    if target > 0:
        shown.append(target)
    up = fitted_scale(shown, area.bottom, area.top, spread_for_log=20.0, floor=False)
    ticks = number_ticks(up, 5)
    plot = Box(area.left + left_margin(ticks), area.top, area.right, area.bottom)
    places = [done.seconds if over == "time" else done.usd for done in drawn]
    across = Scale(low=0.0, high=max(*places, 1e-9) * 1.05, start=plot.left, end=plot.right)
    marks: Sequence[Tick] = time_ticks(across, 4) if over == "time" else money_ticks(across, 4)
    axes(drawing, plot, across=(across, marks, over), up=(up, (), ""))
    for value, label in ticks:
        drawing.line([(plot.left, up(value)), (plot.right, up(value))], "grid")
        drawing.text(plot.left - 7, up(value) + 4, label, "muted", anchor="end", size=11)
    name = "loss (logarithmic)" if up.log else "loss"
    drawing.text(plot.left - 30 if plot.left > 60 else 4, plot.top - 12, name, "muted", size=11)
    if target > 0:
        drawing.line([(plot.left, up(target)), (plot.right, up(target))], "limit")
    points = [(across(x), up(done.epoch.loss)) for x, done in zip(places, drawn, strict=True)]
    drawing.line(points, "l-s0")
    for at, (x, y) in enumerate(points):
        drawing.mark(0, x, y, "mark f-s0", table.hover(at), radius=4)


def _whole(ticks: tuple[Tick, ...]) -> tuple[Tick, ...]:
    return tuple(tick for tick in ticks if tick[0] == int(tick[0]))


def _say(record: EpochRun) -> str:
    if not record.epochs:
        return "Nothing was trained."
    first, last = record.epochs[0], record.epochs[-1]
    fleets = f"from {first.fleet} to {last.fleet}"
    passes = sum(epoch.fleet.share for epoch in record.epochs)
    return f"{passes:.3g} passes over the samples, {fleets}; the loss fell from {first.loss:.4g} to {last.loss:.4g}."
