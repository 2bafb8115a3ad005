"""Speed (or job time) over nodes in characters: braille curves between the measured points, one mark per type."""

import math
from collections.abc import Callable
from itertools import pairwise

from mlcd.report.frame import curve_of
from mlcd.report.ticks import Scale, doubling_ticks, fitted_scale
from mlcd.report.yardstick import yardstick
from mlcd.run.run import SearchRun
from mlcd.trial.trial import Measurement

_MARKS = "●■▲◆▼○"
_PLAIN_MARKS = "o+xsvd"
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


def text_plot(record: SearchRun, *, width: int = 72, height: int = 11, plain: bool = False) -> tuple[str, ...]:
    """At most `height` + 4 lines; empty if only one number of nodes was tried. `plain` uses only ASCII.

    The x axis is log2 of the nodes. The choice is a star; failures are crosses on the line below the plot.
    """
    measured = record.history.measured
    if not measured or len({trial.config.nodes for trial in record.history}) == 1:
        return ()
    shown = yardstick(record)
    values = [shown.value(trial) for trial in measured]
    up = fitted_scale(values, height * 4 - 1, 0, spread_for_log=25, floor=True)
    gutter = max(7 if record.history.failures else 0, *(len(shown.text(v)) + 1 for v in values), 4)
    columns = width - gutter - 2
    highest = max(trial.config.nodes for trial in record.history)
    across = Scale(low=0.93, high=highest * 1.08, start=0, end=columns * 2 - 1, log=True)
    types = [*{curve_of(record, plan.config): None for plan in record.train_findings.ranked}]
    marks = dict(zip(_named(types, width), _PLAIN_MARKS if plain else _MARKS, strict=False))
    cells = [[" "] * columns for _ in range(height)]
    if not plain:
        _curves(record, list(marks), lambda trial: (across(trial.config.nodes), up(shown.value(trial))), cells)
    for trial in sorted(measured, key=lambda t: record.choice is not None and t.config == record.choice.config):
        x, y = int(across(trial.config.nodes)) // 2, int(up(shown.value(trial))) // 4
        chosen = record.choice is not None and trial.config == record.choice.config
        star = "*" if plain else "★"
        cells[y][x] = star if chosen else marks.get(curve_of(record, trial.config), ".")
    lines = []
    middle = math.sqrt(min(values) * max(values)) if up.log else max(values) / 2
    labelled = {int(up(v)) // 4: shown.text(v) for v in (middle, min(values), max(values))}
    for at, row in enumerate(cells):
        lines.append(f"{labelled.get(at, ''):>{gutter}} {'|' if plain else '│'}{''.join(row)}".rstrip())
    lines += _feet(record, across, columns, gutter, plain=plain)
    legend = [f"{mark} {instance}" for instance, mark in marks.items()]
    if len(types) > len(marks):
        legend.append(f". {len(types) - len(marks)} more")
    if record.choice is not None:
        legend.append(f"{'*' if plain else '★'} chosen")
    if record.history.failures:
        legend.append(f"{'X' if plain else '✗'} failed")
    lines.append(" " * (gutter + 2) + "   ".join(legend))
    return tuple(lines)


def _named(types: list[str], width: int) -> list[str]:
    """As many of the first types as fit a one-line legend."""
    room = width - 30
    named: list[str] = []
    for instance in types:
        room -= len(instance) + 5
        if named and room < 0:
            break
        named.append(instance)
    return named


def _curves(
    record: SearchRun, types: list[str], spot: Callable[[Measurement], tuple[float, float]], cells: list[list[str]]
) -> None:
    bits: dict[tuple[int, int], int] = {}
    for instance in types:
        points = sorted(spot(trial) for trial in record.history.measured if curve_of(record, trial.config) == instance)
        for (x0, y0), (x1, y1) in pairwise(points):
            steps = max(1, int(max(abs(x1 - x0), abs(y1 - y0)) / 2))
            for k in range(steps + 1):
                x, y = int(x0 + (x1 - x0) * k / steps), int(y0 + (y1 - y0) * k / steps)
                cell = (y // 4, x // 2)
                bits[cell] = bits.get(cell, 0) | _DOTS[y % 4][x % 2]
    for (row, column), dots in bits.items():
        cells[row][column] = chr(0x2800 + dots)


def _feet(record: SearchRun, across: Scale, columns: int, gutter: int, *, plain: bool) -> list[str]:
    lines = []
    if record.history.failures:
        failed = [" "] * columns
        for failure in record.history.failures:
            failed[int(across(failure.config.nodes)) // 2] = "X" if plain else "✗"
        lines.append(f"{'failed':>{gutter}} {'|' if plain else '│'}{''.join(failed)}".rstrip())
    axis, names = ["-" if plain else "─"] * columns, [" "] * (columns + 8)
    for value, label in doubling_ticks(across.high):
        x = int(across(value)) // 2
        axis[x] = "+" if plain else "┴"
        names[x : x + len(label)] = label
    lines.append(" " * (gutter + 1) + ("+" if plain else "└") + "".join(axis))
    lines.append(" " * (gutter + 2) + "".join(names).rstrip() + " nodes")
    return lines
