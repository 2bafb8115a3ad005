"""HTML pages from the templates in this package: their parts, and how they are filled. Autoescape is on."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from mlcd.report.palette import page_style
from mlcd.untrusted import printable

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


WIDE, NARROW = 860.0, 380.0
"""Widths of a picture for wide screens, and for narrow ones."""
MOST_NARROW_COLUMNS = 3
"""A table with more columns does not fit a screen of 380 pixels."""
_MOST_TEXT = 4_000
"""Characters of one text on a page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The values of the base template, for every page.

    origin_word, origin_text  if time or money is not real: one word for it, and what it means; else ""
    asked, answer             the goal, and the result
    leads                     sentences below the answer, in red where `leads_are_bad`
    """

    name: str
    run_id: str
    created: str
    asked: str
    answer: str
    footer: str
    origin_word: str = ""
    origin_text: str = ""
    leads: Sequence[str] = ()
    leads_are_bad: bool = False


@dataclass(frozen=True, slots=True)
class PagePart:
    """A piece of text; `css` is its class, `below` puts it on a new line."""

    text: str
    css: str = ""
    below: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A table's cell; `label` names its column if a narrow screen stacks the cells."""

    parts: tuple[PagePart, ...]
    css: str = ""
    label: str = ""
    heads_row: bool = False

    @classmethod
    def of(cls, text: str, css: str = "", label: str = "") -> "Cell":
        """A cell with one piece of text."""
        return cls(parts=(PagePart(text),), css=css, label=label)

    @classmethod
    def head(cls, *parts: PagePart) -> "Cell":
        """The cell that names its row."""
        return cls(parts=parts, heads_row=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """A table's row."""

    cells: Sequence[Cell]
    css: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """A column's name; numbers are aligned to the right."""

    name: str
    is_number: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A section with one table.

    stacks  whether a narrow screen shows a row's cells one below the other
    after   sentences below the table
    """

    title: str
    columns: Sequence[Column]
    rows: Sequence[TableRow]
    note: str = ""
    stacks: bool = False
    after: Sequence[str] = ()


def plain_table(title: str, heads: str, rows: Sequence[Sequence[str | Cell]], *, after: Sequence[str] = ()) -> Table:
    """A table of texts. `heads` has the column names, separated by `|`; a name that starts with `>` is for numbers.

    A row with a cell of class `what` is a failure: that cell has the reason. Tables with more columns than a narrow
    screen has room for stack their cells there: texts on lines of their own, numbers with their column's name.
    """
    columns = [Column(name.lstrip(">"), name.startswith(">")) for name in heads.split("|")]
    stacks = len(columns) > MOST_NARROW_COLUMNS
    first = next((at for at, column in enumerate(columns) if not column.is_number), None)
    made = []
    for row in rows:
        cells = []
        for at, (column, cell) in enumerate(zip(columns, row, strict=True)):
            css = "n" if column.is_number else "" if not stacks else "c" if at == first else "why"
            label = column.name if stacks else ""
            cells.append(cell if isinstance(cell, Cell) else Cell.of(cell, css, label))
        made.append(TableRow(cells=cells, css="failed" if any(cell.css == "what" for cell in cells) else ""))
    return Table(title=title, columns=columns, rows=made, after=after, stacks=stacks)


def render(template: str, page: Page, *, whole: bool = True, **values: object) -> str:
    """The page: no script, nothing loaded from elsewhere, every value escaped except pictures.

    whole  False: without head and body, to be shown inside another page

    Raises jinja2.UndefinedError if the template needs a value that is missing.
    """
    text = environment().get_template(template).render(page=page, whole=whole, **values)
    return text.strip() + "\n"


def picture_style() -> str:
    """The style of pictures, and of tables that a narrow screen stacks, below an element of class `mlcd`."""
    return page_style() + _css("tables.css")


def stylesheet() -> str:
    """The style of everything below an element of class `mlcd`: colours, pictures, and the parts of a page."""
    return page_style() + _css("report.css") + _css("tables.css")


def _css(name: str) -> str:
    return (files("mlcd.report") / "templates" / name).read_text(encoding="utf-8")


def drawn(svg: str) -> "Markup":
    """A picture from report.svg, or the style, marked as safe for templates. Nothing else may be marked as safe."""
    from markupsafe import Markup  # noqa: PLC0415 - only a page needs it

    return Markup(svg)  # noqa: S704 - Drawing escapes all text that it is given


def _without_controls(value: object) -> object:
    """A text of a page without control characters, cut where no page needs more; pictures and the rest as they are."""
    from markupsafe import Markup  # noqa: PLC0415 - only a page needs it

    if isinstance(value, str) and not isinstance(value, Markup):
        return printable(value, most_characters=_MOST_TEXT)
    return value


@cache
def environment() -> "Environment":
    """The templates of this package: autoescape is on, and what is missing is an error."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined  # noqa: PLC0415 - only a page needs it

    folder = files("mlcd.report") / "templates"
    made = Environment(
        loader=FunctionLoader(lambda name: (folder / name).read_text(encoding="utf-8")),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_without_controls,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals.update(drawn=drawn, stylesheet=drawn(stylesheet()))
    return made
