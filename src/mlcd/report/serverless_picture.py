"""A training on functions in pictures: functions and memory of each epoch; loss against time, and against money."""

import itertools
from collections.abc import Sequence

from mlcd.report.frame import axes, empty, left_margin, legend
from mlcd.report.labels import Box
from mlcd.report.origin import origin
from mlcd.report.svg import Drawing
from mlcd.report.thinning import MOST_MARKS, drawn_text, thinned
from mlcd.report.ticks import Scale, Tick, fitted_scale, money_ticks, number_ticks, time_ticks
from mlcd.run.run import EpochRun
from mlcd.trial.epoch import Epoch
from mlcd.units import format_seconds

_GAP, _BELOW = 70.0, 52.0


def serverless_picture(record: EpochRun, *, width: float = 860.0) -> str:
    """One self-contained SVG: above, the fleets; below, the loss over time and over money, below each other if narrow.

    A long run is thinned.
    """
    epochs = record.epochs
    is_narrow = width <= 560
    height = 900.0 if is_narrow else 620.0
    drawing = Drawing(
        key=f"functions-{width:.0f}",
        width=width,
        height=height,
        title="Functions and memory of each epoch; loss against time and against money",
        description=_say(record),
    )
    if not epochs:
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
    _fleets(drawing, epochs, Box(44 if is_narrow else 58, top, width - (52 if is_narrow else 70), middle - 12))
    y = middle + _GAP
    if is_narrow:
        part = (height - y) / 2
        _losses(drawing, record, Box(0, y, width - 14, y + part - _BELOW - _GAP / 2), over="time")
        _losses(drawing, record, Box(0, y + part + _GAP / 2, width - 14, height - _BELOW), over="money")
    else:
        half = (width - 40) / 2
        _losses(drawing, record, Box(0, y, half, height - _BELOW), over="time")
        _losses(drawing, record, Box(half + 30, y, width - 14, height - _BELOW), over="money")
    left_out = drawn_text(min(MOST_MARKS, len(epochs)), len(epochs), "epochs")
    if text := "; ".join(filter(None, (origin(record)[0], left_out))):
        drawing.text(4, height - 6, text, "muted", size=10)
    return drawing.render()


def _fleets(drawing: Drawing, epochs: tuple[Epoch, ...], plot: Box) -> None:
    most = max(epoch.fleet.functions for epoch in epochs)
    up = Scale(low=0.0, high=most * 1.1, start=plot.bottom, end=plot.top)
    passes = [0.0, *itertools.accumulate(epoch.fleet.share for epoch in epochs)]
    across = Scale(low=0.0, high=passes[-1], start=plot.left, end=plot.right)
    axes(
        drawing,
        plot,
        across=(across, number_ticks(across, 8), "epochs"),
        up=(up, _whole(number_ticks(up, 4)), "functions"),
    )
    sizes = [float(epoch.fleet.memory_mb) for epoch in epochs]
    memory = Scale(low=0.0, high=max(sizes) * 1.1, start=plot.bottom, end=plot.top)
    for value, label in number_ticks(memory, 4):
        drawing.text(plot.right + 7, memory(value) + 4, label, "muted", size=11)
    drawing.text(plot.right - 30, plot.top - 12, "memory, MB", "muted", size=11)
    points = []
    drawn = thinned(list(zip(passes, epochs, strict=False)))
    for at, epoch in drawn:
        title = f"Epoch {epoch.number}: {epoch.fleet}\nloss {epoch.loss:.4f}, {epoch.seconds:.1f} s, {epoch.usd}"
        end = at + epoch.fleet.share
        bar = Box(across(at) + 0.5, up(epoch.fleet.functions), max(across(end) - 0.5, across(at) + 1.0), plot.bottom)
        drawing.rect(bar, "spent", title)
        points.append((across((at + end) / 2), memory(epoch.fleet.memory_mb)))
    drawing.line(points, "l-s1")
    for (x, y), (_, epoch) in zip(points, drawn, strict=True):
        drawing.mark(1, x, y, "mark f-s1", f"Epoch {epoch.number}: {epoch.fleet.memory_mb:,} MB", radius=4)


def _losses(drawing: Drawing, record: EpochRun, area: Box, *, over: str) -> None:
    points = _loss_points(record, over)
    target = record.problem.target_loss
    values = [loss for _, loss, _ in points]
    shown = [*values, target] if target > 0 else values
    up = fitted_scale(shown, area.bottom, area.top, spread_for_log=20.0, floor=False)
    ticks = number_ticks(up, 5)
    plot = Box(area.left + left_margin(ticks), area.top, area.right, area.bottom)
    across = Scale(low=0.0, high=max(x for x, _, _ in points) * 1.05, start=plot.left, end=plot.right)
    marks: Sequence[Tick] = time_ticks(across, 4) if over == "time" else money_ticks(across, 4)
    axes(drawing, plot, across=(across, marks, over), up=(up, (), ""))
    for value, label in ticks:
        drawing.line([(plot.left, up(value)), (plot.right, up(value))], "grid")
        drawing.text(plot.left - 7, up(value) + 4, label, "muted", anchor="end", size=11)
    drawing.text(plot.left - 30 if plot.left > 60 else 4, plot.top - 12, "loss", "muted", size=11)
    if target > 0:
        drawing.line([(plot.left, up(target)), (plot.right, up(target))], "limit")
    drawing.line([(across(x), up(loss)) for x, loss, _ in points], "l-s0")
    for x, loss, title in points:
        drawing.mark(0, across(x), up(loss), "mark f-s0", title, radius=4)


def _loss_points(record: EpochRun, over: str) -> list[tuple[float, float, str]]:
    """(time or money so far, loss, text) after each epoch; time and money of failed epochs count."""
    points = []
    for row, total in zip(record.epoch_steps, record.serverless_findings.totals, strict=True):
        done, seconds, dollars = row.epoch, total.seconds, total.usd.dollars
        if isinstance(done, Epoch):
            title = f"After epoch {done.number}: loss {done.loss:.4f}\n{format_seconds(seconds)}, ${dollars:.4f}"
            points.append((seconds if over == "time" else max(dollars, 1e-9), done.loss, title))
    return thinned(points)


def _whole(ticks: tuple[Tick, ...]) -> tuple[Tick, ...]:
    return tuple(tick for tick in ticks if tick[0] == int(tick[0]))


def _say(record: EpochRun) -> str:
    if not record.epochs:
        return "Nothing was trained."
    first, last = record.epochs[0], record.epochs[-1]
    fleets = f"from {first.fleet} to {last.fleet}"
    passes = sum(epoch.fleet.share for epoch in record.epochs)
    return f"{passes:.3g} epochs, {fleets}; the loss fell from {first.loss:.4g} to {last.loss:.4g}."
