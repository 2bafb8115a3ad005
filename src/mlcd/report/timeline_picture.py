"""What ran where and when: lanes on a time line, with failures, moves, checkpoints and looks. For every kind of run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

from mlcd.report.clock_axis import ClockAxis, clock_axis, end_of
from mlcd.report.frame import empty, legend, legend_bottom, origin_mark, types_of_the_job
from mlcd.report.labels import Box, text_width
from mlcd.report.palette import SERIES
from mlcd.report.picture import Picture, PictureTable, table_of
from mlcd.report.step_words import outcome_text, place_text, role_text
from mlcd.report.svg import Drawing
from mlcd.report.thinning import drawn_text, thinned
from mlcd.report.ticks import Scale
from mlcd.report.wording import plural
from mlcd.run.attempt import Attempt, Ending
from mlcd.run.kind import Kind
from mlcd.run.run import AnyRun, SearchRun
from mlcd.run.step import Role, Step
from mlcd.trial.epoch import FailedEpoch
from mlcd.trial.trial import Failure
from mlcd.units import format_seconds

_MOST_LANES = 12  # lanes beyond share the last one
_LANE = 34.0
_NAMES = {Role.TRIAL: "trials", Role.TRAINING: "training", Role.VERIFICATION: "verify", Role.EPOCH: "epochs"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bar:
    """A step and its lane, from 0."""

    step: Step
    lane: int

    @property
    def has_failed(self) -> bool:
        """Whether it ended without what it was for."""
        outcome = self.step.outcome
        if isinstance(outcome, Attempt):
            return outcome.ending not in (Ending.DONE, Ending.CONTINUED, Ending.MOVED)
        return isinstance(outcome, Failure | FailedEpoch)

    @property
    def saved(self) -> float:
        """The training's progress in its checkpoint, in samples; 0 if it saved none."""
        return float(getattr(self.step.outcome, "reached_samples", 0.0))


def timeline(record: AnyRun) -> Picture:
    """Steps over time. A long run is thinned, in the table too."""
    bars, lanes = _bars(thinned(record.steps))
    table = _table(record, bars)
    return Picture(
        name="timeline",
        title="The time line",
        description="What ran when, and on what. Steps below each other ran at the same time. Crosses are failures,"
        " flags are checkpoints, arrows are moves to another place, and a tick in a bar is a look at its speed.",
        table=table,
        draw=partial(_svg, record, bars, lanes, table),
    )


def _bars(steps: Sequence[Step]) -> tuple[list[_Bar], list[str]]:
    """Each step in the first lane of its role that is free when it starts, and the names of the lanes."""
    roles = [role for role in (Role.TRAINING, Role.VERIFICATION, Role.EPOCH, Role.TRIAL) if _has(steps, role)]
    names: list[str] = []
    bars: list[_Bar] = []
    for role in roles:
        first, free_at = len(names), list[float]()
        for step in sorted((s for s in steps if s.role is role), key=lambda s: (s.started_seconds, s.number)):
            lane = next((at for at, end in enumerate(free_at) if end <= step.started_seconds + 1e-6), len(free_at))
            if lane == len(free_at):
                lane = min(lane, _MOST_LANES - 1)
                free_at += [0.0] * (lane == len(free_at))
            free_at[lane] = max(free_at[lane], end_of(step))
            bars.append(_Bar(step=step, lane=first + lane))
        names += [_NAMES[role], *[""] * (len(free_at) - 1)]
    return bars, names


def _has(steps: Sequence[Step], role: Role) -> bool:
    return any(step.role is role for step in steps)


def _table(record: AnyRun, bars: Sequence[_Bar]) -> PictureTable:
    work = getattr(record.problem, "work_samples", 0.0)
    rows = []
    for bar in bars:
        step = bar.step
        took = "" if step.outcome is None else format_seconds(step.outcome.seconds)
        saved = f"{min(bar.saved / work, 1.0):.0%} of the work" if bar.saved > 0 and work > 0 else ""
        look = "" if step.watch is None else f"after {format_seconds(step.watch.seconds)}"
        usd = f"at most {step.authorised_usd}" if step.outcome is None else str(step.outcome.usd)
        begins = format_seconds(step.started_seconds)
        what = [str(step.number), role_text(step), place_text(step)]
        rows.append([*what, begins, took, usd, outcome_text(record, step), saved, look])
    heads = ">step|what|where|>began after|>took|>cost|what came of it|checkpoint|look"
    return table_of(heads, rows, note=drawn_text(len(bars), len(record.steps), "steps"))


def _colours(record: AnyRun, bars: Sequence[_Bar]) -> dict[str, str]:
    """The class of each place: the instance type, or the memory of functions, in the order they were used.

    Of a training, types have the colours of the other pictures (`frame.series`).
    """
    order = list(dict.fromkeys(_place(bar.step) for bar in bars))
    if record.kind is Kind.TRAIN and all("instance" in bar.step.config.as_dict() for bar in bars):
        fixed = types_of_the_job(cast(SearchRun, record))
        if len(fixed) <= SERIES and set(order) <= set(fixed):
            return {name: f"s{fixed.index(name)}" for name in order}
    room = SERIES if len(order) <= SERIES else SERIES - 1
    return {name: f"s{at}" if at < room else "other" for at, name in enumerate(order)}


def _place(step: Step) -> str:
    choice = step.authorisation.choice
    if step.role is Role.EPOCH:
        return f"{step.fleet.memory_mb:,} MB"
    values = step.config.as_dict()
    if "instance" in values:
        return str(values["instance"])
    return next((f"{name} {value}" for name, value in values.items()), str(choice))


def _items(record: AnyRun, bars: Sequence[_Bar], colours: Mapping[str, str]) -> list[tuple[str, str, int | str]]:
    """The legend."""
    items: list[tuple[str, str, int | str]] = [
        (name, f"c-{css}", "box") for name, css in colours.items() if css != "other"
    ]
    if others := sum(css == "other" for css in colours.values()):
        items.append((f"{others} more", "c-other", "box"))
    if record.in_flight:
        items.append(("running, until at most", "open", "box"))
    if any(bar.has_failed for bar in bars):
        items.append(("failed", "x-other", "cross"))
    return items


def _svg(record: AnyRun, bars: Sequence[_Bar], lanes: Sequence[str], table: PictureTable, width: float) -> str:
    colours = _colours(record, bars)
    items = _items(record, bars, colours)
    top = legend_bottom(items, width) + 8
    height = top + _LANE * max(len(lanes), 1) + 62
    drawing = Drawing(
        width=width,
        height=height,
        title="What ran when",
        description=f"{plural(len(record.ended), 'step')} ended, {len(record.in_flight)} running; "
        f"{format_seconds(record.step_seconds)} from the first start to the last end.",
    )
    if not bars:
        empty(drawing, width, height, "Nothing has started.")
        return drawing.render()
    legend(drawing, items, width)
    plot = Box(62.0, top, width - 16, top + _LANE * len(lanes))
    axis = clock_axis(record, max(end_of(bar.step) for bar in bars), plot.left, plot.right)
    up = Scale(low=0.0, high=1.0, start=plot.bottom, end=plot.top)
    axis.draw(drawing, plot, up=(up, (), ""))
    for at, name in enumerate(lanes):
        y = plot.top + _LANE * at
        drawing.line([(plot.left, y), (plot.right, y)], "grid")
        if name:
            drawing.text(plot.left - 8, y + _LANE / 2 + 4, name, "muted", anchor="end", size=11)
    for row, bar in enumerate(bars):
        _bar(drawing, (bar, colours[_place(bar.step)]), axis, plot, table.hover(row))
    axis.draw_gap(drawing, plot)
    if record.verdict is not None and axis.after is None and 0 < record.verdict.search_seconds < axis.search.high:
        x = axis(record.verdict.search_seconds)
        drawing.line([(x, plot.top), (x, plot.bottom)], "walk")
    origin_mark(drawing, record, height, left_out=table.note)
    return drawing.render()


def _bar(drawing: Drawing, what: tuple[_Bar, str], axis: ClockAxis, plot: Box, title: str) -> None:
    """A bar in its colour, with its marks."""
    bar, colour = what
    step = bar.step
    left, right = axis(step.started_seconds), axis(end_of(step))
    y = plot.top + _LANE * bar.lane
    box = Box(left + 0.4, y + 6, max(right - 0.4, left + 2), y + _LANE - 6)
    is_open = step.outcome is None
    drawing.rect(box, f"o-{colour}" if is_open else f"c-{colour}", title)
    room, whole = box.right - box.left - 6, place_text(step)
    text = whole if text_width(whole, 10) <= room else str(step.number)
    if text_width(text, 10) <= room:
        middle = (box.left + box.right) / 2
        drawing.text(middle, (box.top + box.bottom) / 2 + 3.5, text, anchor="middle", size=10)
    if bar.has_failed:
        drawing.cross(max(box.right - 6, box.left), (box.top + box.bottom) / 2, "x-other", title, radius=4)
    if step.watch is not None and step.started_seconds + step.watch.seconds < end_of(step):
        x = axis(step.started_seconds + step.watch.seconds)
        drawing.line([(x, box.top - 4), (x, box.bottom + 4)], "front")
    if bar.saved > 0:
        flag = [(box.right, box.top), (box.right, box.top - 5), (box.right - 6, box.top - 3), (box.right, box.top - 1)]
        drawing.area(flag, "f-other", title)
    if isinstance(step.outcome, Attempt) and step.outcome.ending is Ending.MOVED:
        arrow = [(box.right, box.top + 4), (box.right + 7, (box.top + box.bottom) / 2), (box.right, box.bottom - 4)]
        drawing.line(arrow, "front")
