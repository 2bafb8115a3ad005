"""Traffic that changes, in a picture: the requests of every hour, and what the replicas of that hour hold."""

from functools import partial

from mlcd.report.frame import axes, left_margin, legend, origin_mark
from mlcd.report.labels import Box
from mlcd.report.picture import Picture, PictureTable, table_of
from mlcd.report.serving import day_lines
from mlcd.report.svg import Drawing
from mlcd.report.thinning import MOST_ROWS
from mlcd.report.ticks import Scale, number_ticks, plain_number
from mlcd.report.wording import plural, speed_text
from mlcd.run.findings import DayPlan
from mlcd.run.run import SearchRun


def day(record: SearchRun) -> Picture | None:
    """Replicas by the hour; None without a profile of the traffic, or without a choice."""
    plan = record.serve_findings.day
    if plan is None:
        return None
    table = _table(plan)
    return Picture(
        name="day",
        title="Replicas by the hour",
        description=" ".join(day_lines(plan)),
        table=table,
        draw=partial(_svg, record, plan, table),
    )


def _table(day: DayPlan) -> PictureTable:
    broken = {change.hour: ", ".join(change.broken) for change in day.broken}
    hours = range(min(len(day.rates), MOST_ROWS))
    rows = [
        [str(hour), speed_text(day.rates[hour]), str(day.replicas[hour]), broken.get(hour, "kept")] for hour in hours
    ]
    return table_of(">hour|>requests/s|>replicas|limits when it begins", rows)


def _svg(record: SearchRun, day: DayPlan, table: PictureTable, width: float) -> str:
    """A bar for each hour as high as its replicas hold, the traffic as a line, broken limits as crosses."""
    height = 340.0
    drawing = Drawing(
        width=width,
        height=height,
        title="Requests per second of every hour, and what its replicas hold",
        description=f"{min(day.replicas)} to {plural(max(day.replicas), 'replica')}; {day.usd_per_day} a day"
        f" against {day.fixed_usd_per_day} with {day.fixed_replicas} all the time",
    )
    broken = {change.hour for change in day.broken}
    items: list[tuple[str, str, int | str]] = [
        ("what the replicas hold", "kept", "box"),
        ("traffic", "front", "line"),
        (f"{day.fixed_replicas} replicas all the time", "limit", "line"),
    ]
    if broken:
        items.append(("a limit is broken", "x-other", "cross"))
    top = legend(drawing, items, width) + 24
    most = day.fixed_replicas * day.replica_requests_per_second
    up = Scale(low=0.0, high=max(most, *day.rates) * 1.08, start=height - 48, end=top)
    ticks = number_ticks(up, 6)
    plot = Box(left_margin(ticks), top, width - 12, height - 48)
    hours = len(day.rates)
    across = Scale(low=0.0, high=float(hours), start=plot.left, end=plot.right)
    every = 3 if hours <= 24 else 24
    below = [
        (float(hour), plain_number(hour)) for hour in range(0, hours + 1, max(every, hours // 12 // every * every))
    ]
    axes(drawing, plot, across=(across, below, "hour"), up=(up, ticks, "requests per second"))
    base, line = up(0.0), []
    for hour, (rate, replicas) in enumerate(zip(day.rates, day.replicas, strict=True)):
        left, right = across(hour), across(hour + 1)
        title = table.hover(hour) if hour < len(table.rows) else ""
        drawing.rect(Box(left, up(replicas * day.replica_requests_per_second), right - 1, base), "kept", title)
        line += [(left, up(rate)), (right, up(rate))]
        if hour in broken:
            drawing.cross(left, plot.top - 6, "x-other", title, radius=3.5)
    drawing.line(line, "front")
    drawing.line([(plot.left, up(most)), (plot.right, up(most))], "limit")
    origin_mark(drawing, record, height, left_out="computed from what was measured of one replica")
    return drawing.render()
