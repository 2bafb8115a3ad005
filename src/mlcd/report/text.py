"""Text output: styled lines and tables, laid out by rich for a width, with or without colour."""

import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from textwrap import wrap
from typing import TYPE_CHECKING

from mlcd.untrusted import on_one_line

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

WIDTH = 100
"""Wrapped lines are at most this wide even without a terminal limit."""

_LEAST_TEXT = 10  # least width of a wrapped column; below, of the last one
_LEAST_LAST = 24
_LEAST_GAP = 2
_MOST_LINE = 20_000  # characters of a line; a cell has fewer (mlcd.untrusted.text)


_UNIT = re.compile(r"(?<![0-9A-Za-z.-])([0-9][0-9.,]*) (?=(?:ms|s|min|h|d|x|of|MB|GiB|requests/s)\b)")
"""A number before its unit: `12 h` is not broken. `4 x p4d` may be broken after the x."""
_DURATION = re.compile("(?<=[0-9]\N{NO-BREAK SPACE})(d|h|min) (?=[0-9]+\N{NO-BREAK SPACE}(?:h|min|s)\\b)")
"""Between the parts of a duration: `12 h 14 min` is not broken where lines have room for it."""
_ROOM_FOR_DURATION = 24
_PATH = re.compile(r"(?:^| )~?/\S{20}")
"""A path is copied: one that is longer than a line is left whole, and the terminal breaks it."""
_LAST_STYLE = re.compile(r"\x1b\[[0-9;]*m$")


class Style(StrEnum):
    """The role of a line; the value is its style in rich."""

    PLAIN = ""
    HEADING = "bold"
    ANSWER = "bold green"
    NOTE = "yellow"
    GOOD = "green"
    BAD = "red"
    DIM = "dim"


@dataclass(frozen=True, slots=True)
class Line:
    """One line, wrapped if it is too long for the terminal.

    hang      extra indent of the lines after the first
    is_wrapped  whether it is wrapped at WIDTH even without a terminal limit
    is_drawn  whether it is part of a drawing, which must not be wrapped
    """

    text: str = ""
    style: Style = Style.PLAIN
    hang: int = 0
    is_wrapped: bool = False
    is_drawn: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A table. If it is too wide, text is wrapped in its column; if that is not enough, rows become blocks.

    align         `<` or `>` for each column; right-aligned columns are never wrapped
    has_heads     whether the first row has the columns' names
    is_wrapped    whether its last column is wrapped at WIDTH even without a terminal limit
    marks         the styles of the first cells, one per row
    notes         a remark per row, "" for none: below its row, or beside it if `notes_beside` and all fit
    notes_indent  of a remark below its row
    titles        how many first cells name a row if rows become blocks
    """

    rows: Sequence[Sequence[str]]
    align: str
    indent: int = 0
    gap: int = 3
    has_heads: bool = True
    is_wrapped: bool = False
    marks: Sequence[Style] = ()
    notes: Sequence[str] = ()
    notes_indent: int = 4
    notes_beside: bool = False
    titles: int = 1


Item = Line | Rows


def texts(items: Sequence[Item]) -> list[str]:
    """The lines, and the tables' rows as sentences."""
    made = []
    for item in items:
        made += [item.text] if isinstance(item, Line) else [" ".join(" ".join(row).split()) for row in item.rows]
    return made


def paragraphs(parts: Sequence[Sequence[Item]]) -> list[Item]:
    """The parts with an empty line between them; empty parts are omitted."""
    made: list[Item] = []
    for part in parts:
        if part and made:
            made.append(Line())
        made += part
    return made


def rendered(items: Sequence[Item], *, width: int | None = None, colour: bool = False) -> str:
    """The text without a newline at its end; no line is longer than `width`, but one with a path that is.

    width  None: no limit, as in a file
    """
    console = _console(colour)
    for item in map(_printable, items):
        for part in _lines(item, width) if isinstance(item, Line) else _table(item, width):
            console.print(part, soft_wrap=True)
    text = console.file.getvalue()  # type: ignore[attr-defined]  # the StringIO of _console
    return "\n".join(_stripped(line) for line in text.split("\n")[:-1])


def _stripped(line: str) -> str:
    """The line without trailing spaces, also those before the last change of style."""
    body, styles = line.rstrip(" "), ""
    while found := _LAST_STYLE.search(body):
        styles, body = found[0] + styles, body[: found.start()].rstrip(" ")
    return body + styles if body else ""


def _printable(item: Item) -> Item:
    """The item without characters that would move the cursor or change the colours of a terminal."""
    if isinstance(item, Line):
        return replace(item, text=on_one_line(item.text, most_characters=_MOST_LINE))
    rows = [[on_one_line(cell) for cell in row] for row in item.rows]
    return replace(item, rows=rows, notes=[on_one_line(note) for note in item.notes])


def _console(colour: bool) -> "Console":
    from rich.console import Console  # noqa: PLC0415 - only what prints needs it

    return Console(
        file=io.StringIO(),
        width=100_000,
        color_system="standard" if colour else None,
        force_terminal=colour,
        no_color=False,
        markup=False,
        emoji=False,
        highlight=False,
        legacy_windows=False,
        _environ={},  # report.terminal alone reads it: rich fails on an odd COLUMNS or LINES
    )


def _lines(line: Line, width: int | None) -> Iterator["RenderableType"]:
    from rich.text import Text  # noqa: PLC0415 - only what prints needs it

    limit = _limit(width, line.is_wrapped)
    if limit is None or line.is_drawn or len(line.text) <= limit:
        yield Text(line.text, str(line.style))
        return
    indent = len(line.text) - len(line.text.lstrip())
    hang = line.hang if line.is_wrapped or line.hang else 2
    for part in _wrapped(line.text.strip(), limit, indent, indent + hang, cuts=not _PATH.search(line.text)):
        yield Text(part, str(line.style))


def _limit(width: int | None, is_wrapped: bool) -> int | None:
    if is_wrapped:
        return min(WIDTH, width or WIDTH)
    return width


def _wrapped(text: str, width: int, indent: int = 0, hang: int = 0, *, cuts: bool = True) -> list[str]:
    """The text in lines, the first indented by `indent` and the others by `hang`; `cuts`: words that are too long."""
    most = max(width, hang + 8)
    first, rest = " " * indent, " " * hang
    joined = _UNIT.sub("\\1\N{NO-BREAK SPACE}", text)
    if most - hang >= _ROOM_FOR_DURATION:
        joined = _DURATION.sub("\\1\N{NO-BREAK SPACE}", joined)
    lines = wrap(
        joined, most, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False, break_long_words=cuts
    )
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines] or [""]


def _table(table: Rows, width: int | None) -> Iterator["RenderableType"]:
    if not table.rows:
        return
    natural = [max(len(row[at]) for row in table.rows) for at in range(len(table.align))]
    limit = _limit(width, table.is_wrapped)
    gaps = table.indent + table.gap * (len(natural) - 1)
    if limit is None or gaps + sum(natural) <= limit:
        yield from _grid(table, natural, limit or WIDTH)
        return
    if width is None:  # the last column shrinks; the others only where that is not enough
        last = limit - gaps - sum(natural[:-1])
        narrow = _squeezed(table, natural, limit - gaps) if last < _LEAST_LAST else []
        yield from _grid(table, narrow or [*natural[:-1], max(_LEAST_LAST, last)], limit)
        return
    rooms = {gap: limit - table.indent - gap * (len(natural) - 1) for gap in (table.gap, _LEAST_GAP)}
    if sum(natural) <= rooms[_LEAST_GAP]:  # columns closer together are better than wrapped ones
        rooms = {_LEAST_GAP: rooms[_LEAST_GAP]}
    fitting = [(gap, widths) for gap, room in rooms.items() if (widths := _squeezed(table, natural, room))]
    if not fitting:
        yield from _blocks(table, limit)
        return
    # Columns closer together are better than names that are wrapped, too.
    whole = (each for each in fitting if each[1][:-1] == natural[:-1])
    gap, widths = next(whole, fitting[0])
    yield from _grid(replace(table, gap=gap), widths, limit)


def _squeezed(table: Rows, natural: Sequence[int], room: int) -> list[int]:
    """Widths that fit in `room`, the widest columns narrowed first; empty if their words do not fit."""
    least = [_least(table, at, wide) for at, wide in enumerate(natural)]
    if sum(least) > room:
        return []
    widths = list(natural)
    while sum(widths) > room:
        widest = max((wide, at) for at, wide in enumerate(widths) if wide > least[at])[1]
        widths[widest] -= 1
    return widths


def _least(table: Rows, at: int, natural: int) -> int:
    """The least width of a column."""
    body = table.rows[1:] if table.has_heads else table.rows
    head = max(map(len, table.rows[0][at].split()), default=0) if table.has_heads else 0
    if table.align[at] == ">":
        return max([head, *(len(row[at]) for row in body)])
    words = [len(row[at]) - len(row[at].lstrip()) + len(word) for row in body for word in row[at].split()]
    floor = _LEAST_LAST if at == len(table.align) - 1 else _LEAST_TEXT
    return min(natural, max([head, floor, *words]))


def _grid(table: Rows, widths: Sequence[int], limit: int) -> Iterator["RenderableType"]:
    """Columns side by side; remarks split the table into pieces of the same widths."""
    from rich.text import Text  # noqa: PLC0415 - only what prints needs it

    if not any(table.notes):
        yield _drawn(table, widths, range(len(table.rows)))
        return
    used = table.indent + table.gap * len(widths) + sum(widths)
    # All remarks beside their rows, or all below: a mixture is hard to read.
    is_beside = table.notes_beside and all(used + len(note) <= limit for note in table.notes)
    for at, note in enumerate(table.notes):
        yield _drawn(table, widths, range(at, at + 1), beside=note if is_beside else "")
        if note and not is_beside:
            for line in _wrapped(note, limit, table.notes_indent, table.notes_indent):
                yield Text(line)


def _drawn(table: Rows, widths: Sequence[int], which: range, beside: str = "") -> "RenderableType":
    from rich.padding import Padding  # noqa: PLC0415 - only what prints needs it
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    grid = Table(box=None, show_header=False, pad_edge=False, padding=(0, table.gap, 0, 0))
    for side, wide in zip(table.align, widths, strict=True):
        grid.add_column(justify="right" if side == ">" else "left", width=wide, no_wrap=True, overflow="crop")
    if beside:
        grid.add_column(width=len(beside), no_wrap=True)
    for at in which:
        cells = []
        for column, (cell, wide) in enumerate(zip(table.rows[at], widths, strict=True)):
            indent = len(cell) - len(cell.lstrip())
            lines = [cell] if len(cell) <= wide else _wrapped(cell.strip(), wide, indent, indent)
            style = table.marks[at] if table.marks and column == 0 else Style.PLAIN
            cells.append(Text("\n".join(lines), str(style)))
        if beside:
            cells.append(Text(beside))
        grid.add_row(*cells, style=str(Style.HEADING) if table.has_heads and at == 0 else "")
    return Padding(grid, (0, 0, 0, table.indent), expand=False)


def _blocks(table: Rows, limit: int) -> Iterator["RenderableType"]:
    """One block per row: its first cell, then the others with their column names, as many per line as fit."""
    from rich.text import Text  # noqa: PLC0415 - only what prints needs it

    heads, body = (table.rows[0], table.rows[1:]) if table.has_heads else ([""] * len(table.align), table.rows)
    if body and body[0][0].startswith(" ") and heads[0] and table.align[0] == "<":
        yield Text(heads[0], str(Style.HEADING))
    notes = table.notes[1:] if table.has_heads else table.notes
    for at, row in enumerate(body):
        indent = table.indent + len(row[0]) - len(row[0].lstrip())
        named = [cell.strip() for cell in row[: table.titles]]
        title = " ".join(named) if table.align[0] == "<" else f"{heads[0]} {named[0]}".strip()
        for line in _wrapped(title, limit, indent, indent + 2):
            yield Text(line, str(table.marks[at] if table.marks else Style.HEADING))
        pairs = [
            f"{head}{':' if head and side == '<' else ''} {cell}".strip()
            for head, cell, side in zip(*(x[table.titles :] for x in (heads, row, table.align)), strict=True)
            if cell.strip() not in ("", "-")
        ]
        pairs += [notes[at]] if at < len(notes) and notes[at] else []
        for line in _flowing(pairs, limit, indent + 2, table.gap):
            yield Text(line)


def _flowing(pairs: Sequence[str], limit: int, indent: int, gap: int) -> Iterator[str]:
    line = ""
    for pair in pairs:
        if line and indent + len(line) + gap + len(pair) > limit:
            yield " " * indent + line
            line = ""
        if indent + len(pair) > limit:
            yield from _wrapped(pair, limit, indent, indent + 2)
            continue
        line = f"{line}{' ' * gap}{pair}" if line else pair
    if line:
        yield " " * indent + line
