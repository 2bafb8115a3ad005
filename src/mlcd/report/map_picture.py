"""The map of what could be chosen: a cell for each configuration, what is known of it, why it was not chosen."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from mlcd.goal import Objective
from mlcd.report.frame import empty, legend, legend_bottom, origin_mark
from mlcd.report.labels import Box, text_width
from mlcd.report.picture import Picture, PictureTable, table_of
from mlcd.report.step_words import outcome_text
from mlcd.report.svg import Drawing
from mlcd.report.thinning import MOST_MARKS, drawn_text, thinned
from mlcd.report.wording import shortened, speed_text
from mlcd.run.findings import Receipt, RejectionReason, Untried, UntriedState
from mlcd.run.grid import column_knob, map_configs, row_key
from mlcd.run.kind import Kind
from mlcd.run.run import AnyRun, EpochRun, SearchRun
from mlcd.space import MARKET, Config
from mlcd.trial.epoch import Epoch, FailedEpoch
from mlcd.trial.trial import Measurement
from mlcd.units import Usd, format_seconds

_MOST_ROWS, _MOST_COLUMNS, _MOST_NARROW = 16, 24, 9
_CELL = 30.0


class _State(StrEnum):
    """What is known of a cell, in the words of its table and the legend."""

    CHOSEN = "chosen"
    MEASURED = "measured"
    MEASURED_OVER = "measured over a limit"
    FAILED = "failed"
    RUNNING = "running"
    PREDICTED = "predicted"
    OVER_LIMIT = "predicted over a limit"
    REFUSED = "refused: does not fit what is left"
    RULED_OUT = "ruled out"
    NOT_TRIED = "not tried"


_OF_UNTRIED = {
    UntriedState.PREDICTED: _State.PREDICTED,
    UntriedState.OVER_LIMIT: _State.OVER_LIMIT,
    UntriedState.REFUSED: _State.REFUSED,
    UntriedState.RULED_OUT: _State.RULED_OUT,
    UntriedState.NOT_TRIED: _State.NOT_TRIED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cell:
    """A cell: its row and column, its state, a short text inside it, and its row of the table."""

    row: str
    column: float | str
    state: _State
    short: str
    result: str
    why: str
    name: str

    @property
    def cells(self) -> list[str]:
        return [self.name, str(self.state), self.result, self.why]


def deployments(record: SearchRun) -> Picture:
    """The map of a search: instance types x nodes, K x B, or the settings of a server."""
    across = column_knob(record.problem.space)
    return _picture(record, _search_cells(record, across), _Axis(name=_name(across), noun="configuration"))


def fleets(record: EpochRun) -> Picture:
    """The map of a training on functions: functions x memory."""
    return _picture(record, _fleet_cells(record), _Axis(name="functions", noun="fleet"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axis:
    """What is across, and what a cell is."""

    name: str
    noun: str


def _name(knob: str) -> str:
    return {"nodes": "nodes", "batch": "batch"}.get(knob, knob)


def _picture(record: AnyRun, cells: Sequence[_Cell], axis: _Axis) -> Picture:
    kept = thinned(cells, MOST_MARKS, keep=lambda cell: cell.state in _IMPORTANT)
    table = table_of(
        f"{axis.noun}|state|result|why",
        [cell.cells for cell in kept],
        note=drawn_text(len(kept), _count(record), f"{axis.noun}s"),
    )
    return Picture(
        name="map",
        title="The map",
        description=f"A cell for each {axis.noun}: {_named(cells, has_amounts=record.kind is Kind.TRAIN)}. Point at a"
        " cell, or open the table, for the reason.",
        table=table,
        draw=partial(_svg, record, kept, axis, table),
    )


def _named(cells: Sequence[_Cell], *, has_amounts: bool) -> str:
    """The states that there are, as the legend names them."""
    names = [str(state).replace(": ", " because it ") for state in _State if any(c.state is state for c in cells)]
    shown = f"{', '.join(names[:-1])} or {names[-1]}" if len(names) > 1 else "".join(names)
    over = has_amounts and any(cell.state in _OVER and cell.short for cell in cells)
    return f"{shown}. A cell over a limit has what breaks it: time or money" if over else shown


_OVER = (_State.OVER_LIMIT, _State.MEASURED_OVER)
_FORESEEN = (_State.PREDICTED, _State.OVER_LIMIT)
_IMPORTANT = (_State.CHOSEN, _State.MEASURED, _State.MEASURED_OVER, _State.FAILED, _State.RUNNING)


def _count(record: AnyRun) -> int:
    problem = record.problem
    return len(problem.space) if record.kind is not Kind.SERVERLESS else len(problem.functions) * len(problem.memory_mb)  # type: ignore[union-attr]


# ---- cells of a search


def _search_cells(record: SearchRun, across: str) -> list[_Cell]:
    found, cells = record.findings, []
    train, serve = (found.train, found.serve) if found else (None, None)
    untried = {each.config: each for each in (train.untried if train else serve.untried_configs if serve else ())}
    rejected = train.rejected if train else serve.rejected if serve else ()
    why = {entry.config: entry.text for entry in rejected if entry.config is not None}
    barred = {entry.config for entry in rejected if entry.reason in _BARRED}
    paid = train.receipt if train else None
    plans = {plan.config: plan for plan in train.ranked} if train else {}
    last = {step.config: step for step in record.trials}
    running = {step.config for step in record.in_flight}
    chosen = _chosen(record)
    is_cost = record.problem.goal.minimize is Objective.COST
    reused = {each.trial.config: each for each in record.header.reused}
    space = record.problem.space
    varied = {knob.name for knob in space.knobs if len({config[knob.name] for config in space}) > 1}
    for config in sorted(map_configs(record), key=lambda config: space.index[config]):
        step, plan = last.get(config), plans.get(config)
        short = result = ""
        reason = why.get(config, "")
        if step is not None:
            result = outcome_text(record, step)
            state = _State.MEASURED if isinstance(step.trial, Measurement) else _State.FAILED
            if isinstance(step.trial, Measurement) and plan is None:
                short = speed_text(step.trial.samples_per_second)
            reason = reason or (f"trial {step.number}: {step.reason}" if step.reason else f"trial {step.number}")
        elif config in reused:
            state, result = _State.MEASURED, f"measured in {reused[config].run_id}"
        else:
            each = untried.get(config, Untried(config=config, state=UntriedState.NOT_TRIED, text="not tried"))
            state, reason = _OF_UNTRIED[each.state], each.text
            if each.seconds is not None and each.usd is not None and state in _FORESEEN:
                short = _amount(paid, each.seconds, each.usd, is_cost=is_cost)
        if plan is not None:
            over = paid.over_text(plan.seconds, plan.usd) if paid else ""
            short = _amount(paid, plan.seconds, plan.usd, is_cost=is_cost)
            result = f"{result}: {format_seconds(plan.seconds)} and {plan.usd} for the whole training{over}"
            state = _State.MEASURED_OVER if over else state
        if state is _State.MEASURED and config in barred:
            state = _State.MEASURED_OVER
        if config in running:
            state, reason = _State.RUNNING, "its trial runs now" if step is None else "runs now"
        if config == chosen:
            state, reason = _State.CHOSEN, "chosen"
        cells.append(
            _Cell(
                row=_row_name(config, across, varied),
                column=_number(config.as_dict().get(across, 1)),
                state=state,
                short=short,
                result=result,
                why=reason,
                name=str(config),
            )
        )
    return cells


_BARRED = (RejectionReason.BREAKS_SLO, RejectionReason.BELOW_RATE, RejectionReason.NOT_VERIFIED)
"""Why a load-tested configuration is not within the limits; for a training, its time and money say so."""


def _amount(paid: Receipt | None, seconds: float, usd: Usd, *, is_cost: bool) -> str:
    """What is minimised, or what breaks a limit."""
    if paid is not None and paid.over_text(seconds, usd):
        is_cost = paid.is_dear(usd)
    return _usd(usd.dollars) if is_cost else _brief(seconds)


def _chosen(record: SearchRun) -> Config | None:
    found = record.findings
    if found is not None and found.serve is not None:
        return found.serve.choice.config if found.serve.choice else None
    return record.choice.config if record.choice else None


def _row_name(config: Config, across: str, varied: Collection[str]) -> str:
    """What the row has that others have not."""
    parts = []
    for name, value in row_key(config, across):
        if name not in varied:
            continue
        if name in ("instance", MARKET):
            parts.append(str(value))
        elif name == "batch":
            parts.append(f"B = {value:,}" if isinstance(value, int) else f"B = {value}")
        else:
            parts.append(f"{name} {value}")
    return ", ".join(parts)


def _short_name(row: str) -> str:
    """`threads 1, precision fp32` as `t1 fp32`: the middle cut out would leave rows that look the same."""
    parts = []
    for part in row.split(", "):
        name, _, value = part.replace("= ", "").partition(" ")
        parts.append(f"{name[:1]}{value}" if value[:1].isdigit() else value or name)
    return " ".join(parts)


def _number(value: object) -> float | str:
    return float(value) if isinstance(value, int | float) else str(value)


def _brief(seconds: float) -> str:
    """`45s`, `25m`, `4.2h`, `8.5d`: a duration in at most five characters, for a cell."""
    for size, unit in ((86400.0 * 2, 86400.0), (3600.0, 3600.0), (60.0, 60.0)):
        if seconds >= size:
            value = seconds / unit
            letter = {86400.0: "d", 3600.0: "h", 60.0: "m"}[unit]
            return f"{value:.1f}{letter}" if value < 9.95 and unit > 60 else f"{value:.0f}{letter}"
    return f"{seconds:.0f}s"


def _usd(dollars: float) -> str:
    return f"${dollars:,.0f}" if dollars >= 10 else f"${dollars:.2g}"


# ---- cells of functions


def _fleet_cells(record: EpochRun) -> list[_Cell]:
    problem = record.problem
    used: dict[tuple[int, int], list[Epoch]] = {}
    for epoch in record.epochs:
        used.setdefault((epoch.fleet.functions, epoch.fleet.memory_mb), []).append(epoch)
    failed: dict[tuple[int, int], FailedEpoch] = {
        (epoch.fleet.functions, epoch.fleet.memory_mb): epoch for epoch in record.failed_epochs
    }
    running = {(step.fleet.functions, step.fleet.memory_mb) for step in record.in_flight}
    refused = set(record.serverless_findings.refused)
    seen = {*used, *failed, *running}
    functions = _some(problem.functions, {f for f, _ in seen}, _MOST_COLUMNS)
    memory = _some(problem.memory_mb, {m for _, m in seen}, _MOST_ROWS)
    cells = []
    for size in memory:
        for count in functions:
            key, short, result, why = (count, size), "", "", ""
            if key in running:
                state, why = _State.RUNNING, "its epoch runs now"
            elif key in used:
                of = used[key]
                state, short = _State.MEASURED, f"{len(of)}x"
                each = sum(epoch.seconds for epoch in of) / len(of)
                result = f"{len(of)} epochs or parts, {format_seconds(each)} each, to loss {of[-1].loss:.4g}"
            elif key in failed:
                state, result = _State.FAILED, f"failed: {failed[key].message}"
            elif key in refused:
                state, why = _State.REFUSED, "what is left does not pay for an epoch there"
            else:
                state, why = _State.NOT_TRIED, "the scheduler did not choose it"
            name = f"{count} x {size:,} MB"
            cells.append(
                _Cell(
                    row=f"{size:,} MB", column=float(count), state=state, short=short, result=result, why=why, name=name
                )
            )
    return cells


def _some(values: Sequence[int], seen: set[int], most: int) -> list[int]:
    return thinned(values, most, keep=lambda value: value in seen)


# ---- drawing


def _svg(record: AnyRun, cells: Sequence[_Cell], axis: _Axis, table: PictureTable, width: float) -> str:
    is_narrow = width <= 560
    important = {cell.row for cell in cells if cell.state in _IMPORTANT}
    rows = thinned(list(dict.fromkeys(cell.row for cell in cells)), _MOST_ROWS, keep=lambda row: row in important)
    kept = {cell.column for cell in cells if cell.state in _IMPORTANT}
    values = sorted({cell.column for cell in cells}, key=lambda value: (isinstance(value, str), value))
    columns = thinned(values, _MOST_NARROW if is_narrow else _MOST_COLUMNS, keep=lambda value: value in kept)
    states = [state for state in _State if any(cell.state is state for cell in cells)]
    most = max(90.0, width * 0.28)
    left = min(most, 16 + max(text_width(name, 11) for name in (axis.name, *rows)))
    items = [(str(state), *_LOOKS[state]) for state in states]
    top = legend_bottom(items, width) + 22
    height = top + _CELL * max(len(rows), 1) + 26
    shown = [(at, cell) for at, cell in enumerate(cells) if cell.row in rows and cell.column in columns]
    counts = {state: sum(cell.state is state for _, cell in shown) for state in states}
    drawing = Drawing(
        width=width,
        height=height,
        title=f"What could be chosen, and what is known of it: {len(shown)} {axis.noun}s",
        description=", ".join(f"{count} {state}" for state, count in counts.items()) + ".",
    )
    if not cells:
        empty(drawing, width, height, "There is nothing to choose.")
        return drawing.render()
    legend(drawing, items, width)
    each = (width - 12 - left) / len(columns)
    at_row = {row: top + _CELL * at for at, row in enumerate(rows)}
    at_column = {value: left + each * at for at, value in enumerate(columns)}
    for row, y in at_row.items():
        name = row if text_width(row, 11) <= left - 14 else _short_name(row)
        if text_width(name, 11) > left - 14:
            name = shortened(name, max(6, int((left - 14) / 6.4)))
        drawing.text(left - 8, y + _CELL / 2 + 4, name, "muted", anchor="end", size=11)
    last = -1e9
    for value, x in at_column.items():
        label = f"{value:g}" if isinstance(value, float) else str(value)
        half, middle = text_width(label, 11) / 2, x + each / 2
        if middle - half > last + 4:
            drawing.text(middle, top - 6, label, "muted", anchor="middle", size=11)
            last = middle + half
    drawing.text(left - 8, top - 6, axis.name, "muted", anchor="end", size=11)
    for at, cell in shown:
        x, y = at_column[cell.column], at_row[cell.row]
        _cell(drawing, Box(x + 1.5, y + 1.5, x + each - 1.5, y + _CELL - 1.5), cell, table.hover(at))
    origin_mark(drawing, record, height, left_out=drawn_text(len(shown), _count(record), f"{axis.noun}s"))
    return drawing.render()


_LOOKS: Mapping[_State, tuple[str, int | str]] = {
    _State.CHOSEN: ("ring", "box"),
    _State.MEASURED: ("c-s0", "box"),
    _State.MEASURED_OVER: ("measured-over", "box"),
    _State.FAILED: ("x-other", "cross"),
    _State.RUNNING: ("open", "box"),
    _State.PREDICTED: ("foreseen", "box"),
    _State.OVER_LIMIT: ("over-limit", "box"),
    _State.REFUSED: ("hatch", "hatch"),
    _State.RULED_OUT: ("x-other", "line"),
    _State.NOT_TRIED: ("blank", "box"),
}


def _cell(drawing: Drawing, box: Box, cell: _Cell, title: str) -> None:
    middle, y = (box.left + box.right) / 2, (box.top + box.bottom) / 2
    state = cell.state
    css = {
        _State.CHOSEN: "c-s0",
        _State.MEASURED: "c-s0",
        _State.MEASURED_OVER: "measured-over",
        _State.RUNNING: "open",
        _State.PREDICTED: "foreseen",
        _State.OVER_LIMIT: "over-limit",
    }.get(state, "blank")
    drawing.rect(box, css, title)
    if state is _State.CHOSEN:
        drawing.rect(Box(box.left - 1, box.top - 1, box.right + 1, box.bottom + 1), "ring", title)
    elif state is _State.FAILED:
        drawing.cross(middle, y, "x-other", title, radius=4)
    elif state is _State.REFUSED:
        drawing.hatch(box, "hatch")
    elif state is _State.RULED_OUT:
        drawing.line([(middle - 4, y), (middle + 4, y)], "x-other")
    if cell.short and text_width(cell.short, 10) <= box.right - box.left + 4:
        css = "chosen" if state is _State.CHOSEN else "muted" if state in _FORESEEN else ""
        drawing.text(middle, y + 3.5, cell.short, css, anchor="middle", size=10)
