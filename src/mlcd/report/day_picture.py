"""Traffic that changes, in a picture: the requests of every hour, and what the replicas of that hour hold."""

from mlcd.report.frame import axes, left_margin, legend, origin_mark
from mlcd.report.labels import Box
from mlcd.report.svg import Drawing
from mlcd.report.ticks import Scale, number_ticks, plain_number
from mlcd.report.wording import plural, speed_text
from mlcd.run.findings import DayPlan
from mlcd.run.run import SearchRun

DAY_PICTURE = "day"


def day_picture(record: SearchRun, day: DayPlan, width: float) -> str:
    """The SVG: a bar for each hour as high as its replicas hold, the traffic as a line, broken limits as crosses."""
    height = 340.0
    drawing = Drawing(
        key=f"day-{width:.0f}",
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
        title = f"Hour {hour}: {speed_text(rate)} requests/s, {plural(replicas, 'replica')}"
        drawing.rect(Box(left, up(replicas * day.replica_requests_per_second), right - 1, base), "kept", title)
        line += [(left, up(rate)), (right, up(rate))]
        if hour in broken:
            drawing.cross(left, plot.top - 6, "x-other", f"Hour {hour}: a limit is broken", radius=3.5)
    drawing.line(line, "front")
    drawing.line([(plot.left, up(most)), (plot.right, up(most))], "limit")
    origin_mark(drawing, record, height, left_out="computed from what was measured of one replica")
    return drawing.render()
