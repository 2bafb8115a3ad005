"""A serving run in a picture: throughput against latency of every load test, the front, the limit and the choice."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from mlcd.goal import Goal
from mlcd.report.frame import Plane, axes, empty, left_margin, legend, origin_mark
from mlcd.report.labels import Box, Label, place
from mlcd.report.palette import SERIES
from mlcd.report.picture import Picture, PictureTable, table_of
from mlcd.report.svg import Drawing
from mlcd.report.thinning import MOST_LABELS, drawn_text, listed, thinned
from mlcd.report.ticks import Scale, Tick, fitted_scale, number_ticks
from mlcd.report.wording import plural, speed_text
from mlcd.run.run import SearchRun
from mlcd.space import Config
from mlcd.trial.trial import Load, Measurement
from mlcd.units import latency_text

_FAR_LIMIT_FACTOR = 4.0  # a limit this many times beyond all load tests is named but not drawn


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """The time that is drawn: the one that the goal limits."""

    name: str
    short: str
    limit_ms: float | None
    milliseconds: Callable[[Load], float]


def _shown(goal: Goal) -> _Shown:
    if goal.token_limits:
        first = goal.token_limits[0]
        name = f"{first.metric} p{first.percentile}"
        seen = lambda load: load.tokens.seen(first) * 1000 if load.tokens is not None else load.p99_seconds * 1000  # noqa: E731
        return _Shown(name=name, short=name, limit_ms=first.seconds * 1000, milliseconds=seen)
    percentile = goal.slo.percentile if goal.slo else 99
    field = f"p{percentile}_seconds"
    return _Shown(
        name=f"p{percentile} latency",
        short=f"p{percentile}",
        limit_ms=goal.slo.seconds * 1000 if goal.slo else None,
        milliseconds=lambda load: float(getattr(load, field)) * 1000,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Point:
    """A load test that measured: `milliseconds` at the goal's percentile."""

    name: str
    number: int
    config: Config
    rate: float
    milliseconds: float
    load: Load

    @property
    def curve(self) -> str:
        """Its colour: the precision where that is chosen, else the batch; of other servers, the first knob."""
        values = self.config.as_dict()
        if not {"precision", "batch"} & values.keys():
            name, value = next(iter(values.items()))
            return f"{name} {value}"
        return str(values.get("precision", f"batch {values.get('batch', 1)}"))

    @property
    def cells(self) -> list[str]:
        """Its row of the table."""
        latencies = (self.load.p50_seconds, self.load.p95_seconds, self.load.p99_seconds)
        memory = "" if self.load.memory_gib is None else f"{self.load.memory_gib:.2f} GiB"
        return [
            self.name,
            str(self.config),
            speed_text(self.rate),
            *(latency_text(seconds) for seconds in latencies),
            f"{self.load.errors:,}",
            memory,
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What is drawn: the load tests, a part of them on the front, and the verification."""

    shown: _Shown
    count: int
    points: list[_Point]
    front: list[_Point]
    verified: list[_Point]
    table: PictureTable


def latency(record: SearchRun) -> Picture:
    """Throughput against latency. A long run is thinned, in the table too."""
    seen = _seen(record)
    return Picture(
        name="latency",
        title="Throughput against latency",
        description="Each mark is a load test: the rate that the server held, and the latency then. Up and to the left"
        " is better; the shaded area breaks the latency limit. The ring is the choice.",
        table=seen.table,
        draw=partial(_svg, record, seen),
    )


def _seen(record: SearchRun) -> _Seen:
    shown = _shown(record.problem.goal)
    every = _points(record, shown)
    front, verified = _front(every), _verified(record, shown)
    choice = record.serve_findings.choice
    kept = {point.number for point in (*front, *(p for p in every if choice and p.config == choice.config))}
    points = thinned(every, keep=lambda point: point.number in kept)
    on_front = {point.number for point in front}
    rows = []
    for point in (*points, *verified):
        words = ["on the front"] * (point.number in on_front)
        words += ["chosen"] * (choice is not None and point.config == choice.config)
        rows.append([*point.cells, ", ".join(words)])
    heads = "what|configuration|>requests/s|>p50|>p95|>p99|>errors|>memory|which"
    table = table_of(heads, rows, note=drawn_text(len(points), len(every), "load tests"))
    return _Seen(shown=shown, count=len(every), points=points, front=front, verified=verified, table=table)


def _svg(record: SearchRun, seen: _Seen, width: float) -> str:
    """What is up and to the left is better; the shaded area breaks the latency limit."""
    height = 440.0 if width > 560 else 400.0
    shown, points, front, verified, table = seen.shown, seen.points, seen.front, seen.verified, seen.table
    choice = record.serve_findings.choice
    drawing = Drawing(
        width=width,
        height=height,
        title=f"Requests per second against {shown.name} of the load tests",
        description=f"{plural(seen.count, 'load test')}; {len(front)} on the front: "
        + listed([f"{p.config} {speed_text(p.rate)}/s {p.milliseconds:.3g} ms" for p in front], separator="; "),
    )
    if not points:
        empty(drawing, width, height, "No load test measured a rate.")
        return drawing.render()
    curves = {name: at for at, name in enumerate(dict.fromkeys(point.curve for point in points))}
    limit = shown.limit_ms
    named = f"{shown.short} limit of {latency_text(limit / 1000)}" if limit is not None else ""
    top = legend(drawing, _items(curves, front, verified, named), width) + 24
    plane, ticks = _plane([*points, *verified], limit, Box(0, top, width - 16, height - 48))
    across, up = plane.across, plane.up
    if limit is not None:
        _limit(drawing, plane, limit)
    suffix = " (logarithmic)"
    below = number_ticks(across, 6 if width > 560 else 4)
    axes(
        drawing,
        plane.plot,
        across=(across, below, f"{shown.name}, ms" + suffix * across.log),
        up=(up, ticks, "requests per second" + suffix * up.log),
    )
    if len(front) > 1:
        drawing.line(_steps(front, across, up), "front")
    for row, point in enumerate(points):
        at = curves[point.curve]
        shape = at if at < SERIES else 0
        drawing.mark(shape, across(point.milliseconds), up(point.rate), f"mark f-{_css(at)}", table.hover(row))
    chosen = next((point for point in points if choice and point.config == choice.config), None)
    if chosen:
        drawing.circle(across(chosen.milliseconds), up(chosen.rate), 10, "ring", table.hover(points.index(chosen)))
    for row, point in enumerate(verified, start=len(points)):
        x, y = across(point.milliseconds), up(point.rate)
        if chosen:
            drawing.line([(across(chosen.milliseconds), up(chosen.rate)), (x, y)], "walk")
        drawing.circle(x, y, 5, "hollow", table.hover(row))
    _labels(drawing, plane, points, front, chosen)
    origin_mark(drawing, record, height, left_out=table.note)
    return drawing.render()


def _items(
    curves: Mapping[str, int], front: Sequence[_Point], verified: Sequence[_Point], limit: str
) -> list[tuple[str, str, int | str]]:
    """The legend."""
    items: list[tuple[str, str, int | str]] = [
        (name, f"mark f-{_css(at)}", at) for name, at in curves.items() if at < SERIES
    ]
    if len(curves) > SERIES:
        items.append((f"{len(curves) - SERIES} more", "mark f-other", 0))
    if len(front) > 1:
        items.append(("front: none has more at no more latency", "front", "line"))
    if verified:
        items.append(("verified, at the promised rate", "hollow", 0))
    if limit:
        items.append((limit, "limit", "line"))
    return items


def _plane(shown: Sequence[_Point], limit: float | None, room: Box) -> tuple[Plane, tuple[Tick, ...]]:
    """The plot and its scales for these points, with the ticks of the left axis."""
    times = [point.milliseconds for point in shown]
    if limit is not None and limit < _FAR_LIMIT_FACTOR * max(times):
        times += [limit, limit * 1.1]
    up = fitted_scale([point.rate for point in shown], room.bottom, room.top, spread_for_log=50, floor=True)
    ticks = number_ticks(up, 6)
    plot = Box(left_margin(ticks), room.top, room.right, room.bottom)
    across = fitted_scale(times, plot.left, plot.right, spread_for_log=12, floor=True)
    return Plane(plot=plot, across=across, up=up), ticks


def _verified(record: SearchRun, shown: _Shown) -> list[_Point]:
    """The choice as its verification held it, if there was one."""
    choice = record.serve_findings.choice
    if choice is None or choice.verified_seconds is None:
        return []
    return [
        _Point(
            name=f"Verified for {choice.verified_seconds:g} s",
            number=0,
            config=choice.config,
            rate=choice.requests_per_second,
            milliseconds=max(shown.milliseconds(choice.load), 1e-3),
            load=choice.load,
        )
    ]


def _points(record: SearchRun, shown: _Shown) -> list[_Point]:
    found = []
    for step in record.trials:
        trial = step.trial
        if isinstance(trial, Measurement) and trial.load is not None:
            found.append(
                _Point(
                    name=f"Load test {step.number}",
                    number=step.number,
                    config=trial.config,
                    rate=trial.samples_per_second,
                    milliseconds=max(shown.milliseconds(trial.load), 1e-3),
                    load=trial.load,
                )
            )
    return found


def _front(points: list[_Point]) -> list[_Point]:
    """Those that no other beats in both, the quickest first."""
    front: list[_Point] = []
    for point in sorted(points, key=lambda point: (point.milliseconds, -point.rate)):
        if not front or point.rate > front[-1].rate:
            front.append(point)
    return front


def _steps(front: list[_Point], across: Scale, up: Scale) -> list[tuple[float, float]]:
    places: list[tuple[float, float]] = []
    for point in front:
        x, y = across(point.milliseconds), up(point.rate)
        if places:
            places.append((x, places[-1][1]))
        places.append((x, y))
    return places


def _limit(drawing: Drawing, plane: Plane, limit: float) -> None:
    plot = plane.plot
    x = min(plot.right, max(plot.left, plane.across(limit)))
    drawing.rect(Box(x, plot.top, plot.right, plot.bottom), "shade")
    if x < plot.right:
        drawing.line([(x, plot.top), (x, plot.bottom)], "limit")


def _labels(drawing: Drawing, plane: Plane, points: list[_Point], front: list[_Point], chosen: _Point | None) -> None:
    """Names of the choice and of the front. Pointing at a mark names it, and the table has all of them."""
    plot = plane.plot
    marks, labels = [], []
    for point in points:
        x, y = plane.across(point.milliseconds), plane.up(point.rate)
        marks.append(Box(x - 6, y - 6, x + 6, y + 6))
    numbers = {point.number for point in front}
    named = [point for point in points if point is chosen or point.number in numbers]
    for point in sorted(named, key=lambda point: point is not chosen)[:MOST_LABELS]:
        short = _short(point.config)
        x, y = plane.across(point.milliseconds), plane.up(point.rate)
        text, size, gap = (f"chosen: {short}", 12.5, 14.0) if point is chosen else (short, 11.0, 8.0)
        labels.append(Label(text=text, x=x, y=y, size=size, gap=gap, must=point is chosen))
    for placed in place(labels, Box(plot.left + 2, plot.top, plot.right + 10, plot.bottom), marks):
        css = "halo chosen" if placed.label.size > 12 else "halo"
        drawing.text(placed.x, placed.y, placed.label.text, css, anchor="middle", size=placed.label.size)


def _short(config: Config) -> str:
    """`batch 4, 2 x 1`: the batch, replicas and threads; the colour has the precision."""
    values = config.as_dict()
    shape = f", {values['replicas']} x {values['threads']}" if {"replicas", "threads"} <= values.keys() else ""
    return f"batch {values['batch']}{shape}" if "batch" in values else str(config)


def _css(at: int) -> str:
    return f"s{at}" if at < SERIES else "other"
