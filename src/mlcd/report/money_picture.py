"""Money over time: spent, reserved for what must still be paid, free, and the limit. For runs of every kind."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from mlcd.report.clock_axis import ClockAxis, clock_axis, end_of
from mlcd.report.frame import empty, left_margin, legend, origin_mark
from mlcd.report.labels import Box
from mlcd.report.picture import Picture, PictureTable, table_of
from mlcd.report.step_words import outcome_text, place_text, role_text
from mlcd.report.svg import Drawing
from mlcd.report.thinning import drawn_text, thinned
from mlcd.report.ticks import Scale, money_ticks
from mlcd.run.findings import AccountStep, Receipt
from mlcd.run.kind import Kind
from mlcd.run.run import AnyRun
from mlcd.run.step import Role, Step
from mlcd.trial.epoch import FailedEpoch
from mlcd.trial.trial import Failure
from mlcd.units import ZERO, Usd, format_seconds

_FAR_CAP_FACTOR = 4.0  # a limit this many times above the spending would flatten the picture
_CSS = {Role.TRIAL: "spent", Role.EPOCH: "spent", Role.TRAINING: "run", Role.VERIFICATION: "run"}
_NAMES = {
    Kind.TRAIN: ("spent on trials", "training"),
    Kind.SERVE: ("spent on load tests", "verification"),
    Kind.SERVERLESS: ("spent on epochs", ""),
}

_UNLIMITED = "What was spent, and what was reserved so that the run could still be finished. There is no budget."
_SEARCH = (
    "What was spent, and what was reserved so that the run could still be finished: both together never pass the limit."
    " What is between them and the limit is free for more trials."
)
_EPOCHS = "What the epochs cost: it never passes the limit. What is between them is left for more epochs."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Point:
    """The account when a step had ended: `spent` with it, `before` without it."""

    step: Step
    seconds: float
    before: Usd
    spent: Usd
    reserved: Usd
    best: str


def money(record: AnyRun) -> Picture:
    """Money over time. A long run is thinned, in the table too."""
    points = _points(record)
    drawn = thinned(points)
    table = _table(record, drawn, len(points))
    return Picture(
        name="money",
        title="The money",
        description=_described(record),
        table=table,
        draw=partial(_svg, record, drawn, table),
    )


def _described(record: AnyRun) -> str:
    if record.kind is Kind.SERVERLESS:
        return _EPOCHS
    return _UNLIMITED if record.problem.goal.budget is None else _SEARCH


def _points(record: AnyRun) -> list[_Point]:
    found = record.findings.train if record.findings else None
    account: dict[int, AccountStep] = {step.trial: step for step in found.account} if found else {}
    spent, points = ZERO, []
    ended = sorted(record.ended, key=lambda step: (end_of(step), step.number))
    for at, step in enumerate(ended):
        before, spent = spent, spent + (step.outcome.usd if step.outcome else ZERO)
        entry = account.get(step.number)
        follows = ended[at + 1] if at + 1 < len(ended) else None
        reserved = entry.reserved if entry else ZERO
        if step.role is not Role.TRIAL and follows is not None and follows.role is not Role.EPOCH:
            reserved = follows.authorised_usd
        best = str(entry.incumbent.config) if entry and entry.incumbent else ""
        points.append(_Point(step=step, seconds=end_of(step), before=before, spent=spent, reserved=reserved, best=best))
    return points


def _table(record: AnyRun, points: Sequence[_Point], count: int) -> PictureTable:
    cap = record.problem.goal.budget
    rows = [
        [
            str(p.step.number),
            f"{role_text(p.step)} of {place_text(p.step)}",
            outcome_text(record, p.step),
            format_seconds(p.seconds),
            str(p.spent - p.before),
            str(p.spent),
            str(p.reserved),
            "" if cap is None else str(cap - p.spent - p.reserved),
            p.best,
        ]
        for p in points
    ]
    for step in record.in_flight:
        what = f"{role_text(step)} of {place_text(step)}"
        most = f"at most {step.authorised_usd}"
        rows.append([str(step.number), what, "running", format_seconds(step.started_seconds), most, "", "", "", ""])
    paid = _predicted(record)
    if paid is not None and paid.run_usd is not None:
        text = f"{paid.run_usd} predicted"
        rows.append(["", "the run to come", "not started", "", text, f"{paid.total_usd} in all", "", "", ""])
    heads = ">step|what|outcome|>ended after|>cost|>spent|>reserved|>free|best so far"
    return table_of(heads, rows, note=drawn_text(len(points), count, "steps"))


def _predicted(record: AnyRun) -> Receipt | None:
    """The receipt, if the training is still to come."""
    found = record.findings.train if record.findings else None
    paid = found.receipt if found else None
    return paid if paid is not None and paid.run_is_predicted and paid.run_usd is not None else None


def _svg(record: AnyRun, points: Sequence[_Point], table: PictureTable, width: float) -> str:
    height = 360.0
    cap, total = record.problem.goal.budget, record.spent
    drawing = Drawing(
        width=width,
        height=height,
        title="Money spent and reserved over time",
        description=f"{total} spent" + (f" of {cap}." if cap is not None else "; there is no limit."),
    )
    if not points and not record.in_flight:
        empty(drawing, width, height, "Nothing was paid.")
        return drawing.render()
    paid = _predicted(record)
    last = points[-1].seconds if points else 0.0
    ends = [last, *(end_of(step) for step in record.in_flight)]
    tops = [(p.spent + p.reserved).dollars for p in points]
    tops += [(total + sum((s.authorised_usd for s in record.in_flight), ZERO)).dollars, 1e-6]
    if paid is not None and paid.run_seconds is not None:
        ends.append(last + paid.run_seconds)
        tops.append(paid.total_usd.dollars)
    highest = max(tops)
    far = cap is not None and cap.dollars > _FAR_CAP_FACTOR * highest
    if cap is not None and not far:
        highest = max(highest, cap.dollars)
    top = legend(drawing, _items(record, points, far=far), width) + 24
    up = Scale(low=0.0, high=highest * 1.08, start=height - 52, end=top)
    ticks = money_ticks(up, 6)
    plot = Box(left_margin(ticks), top, width - 16, height - 52)
    axis = clock_axis(record, max(ends), plot.left, plot.right)
    axis.draw(drawing, plot, up=(up, ticks, "US dollars"))
    _areas(drawing, points, axis, up)
    _to_come(drawing, record, table, points, (axis, up))
    axis.draw_gap(drawing, plot)
    if cap is not None and not far:
        drawing.line([(plot.left, up(cap.dollars)), (plot.right, up(cap.dollars))], "limit")
    left = plot.left
    for at, point in enumerate(points):
        right = axis(point.seconds)
        drawing.rect(Box(left, plot.top, max(right, left + 1), plot.bottom), "touch", table.hover(at))
        if isinstance(point.step.outcome, Failure | FailedEpoch):
            drawing.cross(right, plot.top - 9, "x-other", table.hover(at), radius=3.5)
        left = right
    origin_mark(drawing, record, height, left_out=table.note)
    return drawing.render()


def _items(record: AnyRun, points: Sequence[_Point], *, far: bool) -> list[tuple[str, str, int | str]]:
    searching, running = _NAMES[record.kind]
    items: list[tuple[str, str, int | str]] = [(searching, "spent", "box")]
    if any(_CSS[point.step.role] == "run" for point in points):
        items.append((running, "run", "box"))
    if any(point.reserved.micros for point in points):
        items.append(("reserved", "kept", "box"))
    if record.in_flight:
        items.append(("running: at most", "open", "box"))
    if _predicted(record) is not None:
        items.append(("training to come, predicted", "run-predicted", "box"))
    if (cap := record.problem.goal.budget) is not None:
        items.append((f"limit {cap}{', far above' if far else ''}", "limit", "line"))
    if any(isinstance(point.step.outcome, Failure | FailedEpoch) for point in points):
        items.append(("failed", "x-other", "cross"))
    return items


def _areas(drawing: Drawing, points: Sequence[_Point], axis: ClockAxis, up: Scale) -> None:
    """The reserve on top of what was spent; then what was spent, in the colour of what it was spent on."""
    if not points:
        return
    base, start = up(0.0), axis(points[0].step.started_seconds)
    tops = [(axis(point.seconds), up((point.spent + point.reserved).dollars)) for point in points]
    outline = [(start, base), *tops]
    drawing.area([*outline, (outline[-1][0], base)], "kept")
    part: list[tuple[float, float]] = [(start, up(points[0].before.dollars))]
    for at, point in enumerate(points):
        css = _CSS[point.step.role]
        part.append((axis(point.seconds), up(point.spent.dollars)))
        if at + 1 == len(points) or _CSS[points[at + 1].step.role] != css:
            drawing.area([(part[0][0], base), *part, (part[-1][0], base)], css)
            part = [part[-1]]


def _to_come(
    drawing: Drawing,
    record: AnyRun,
    table: PictureTable,
    ended: Sequence[_Point],
    scales: tuple[ClockAxis, Scale],
) -> None:
    """Steps in flight at their most, and a training that has not begun."""
    (axis, up), paid, at = scales, _predicted(record), len(ended)
    last = ended[-1].seconds if ended else 0.0
    spent = record.spent
    for step in record.in_flight:
        left, right = axis(step.started_seconds), axis(end_of(step))
        upper = spent + step.authorised_usd
        drawing.rect(Box(left, up(upper.dollars), max(right, left + 2), up(spent.dollars)), "open", table.hover(at))
        spent, at = upper, at + 1
    if paid is not None and paid.run_seconds is not None:
        x, y = axis(last + 1e-6), up(record.spent.dollars)
        right, top = axis(last + paid.run_seconds), up(paid.total_usd.dollars)
        corners = [(x, up(0.0)), (x, y), (right, top), (right, up(0.0))]
        drawing.area(corners, "run-predicted", table.hover(at))
