"""A picture of a run as every surface shows it: the page, the files of `mlcd report`, notebooks, the web page."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mlcd.report.page import NARROW, WIDE, Table, plain_table
from mlcd.report.svg import embedded, themed


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureTable:
    """What a picture shows, as a table: a row for each mark, whose text is what pointing at the mark shows.

    heads  names of the columns, as in `plain_table`
    note   what the table leaves out
    """

    heads: str
    rows: tuple[tuple[str, ...], ...]
    note: str = ""

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(name.lstrip(">") for name in self.heads.split("|"))

    def hover(self, at: int) -> str:
        """What pointing at the mark of a row shows: its cells, each with its column's name."""
        return "\n".join(f"{name}: {cell}" for name, cell in zip(self.columns, self.rows[at], strict=True) if cell)

    def on_page(self, title: str) -> Table:
        """The table as a page shows it."""
        return plain_table(title, self.heads, self.rows, after=[self.note] if self.note else [])


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A picture, its words and its table.

    name         `speed`: for `--picture`, and in names of files
    title        a heading
    description  how to read it: a sentence or two
    draw         the SVG of a width
    """

    name: str
    title: str
    description: str
    table: PictureTable
    draw: Callable[[float], str]

    @property
    def fragment_id(self) -> str:
        """Its place on a page."""
        return f"picture-{self.name}"

    @property
    def svg(self) -> str:
        """One self-contained SVG, scaled to its container; light or dark by the reader's setting."""
        return self.draw(WIDE)

    @property
    def wide(self) -> str:
        """For a page that has the rules of `palette.page_style`, on a wide screen."""
        return embedded(self.draw(WIDE))

    @property
    def narrow(self) -> str:
        """The same for a narrow screen."""
        return embedded(self.draw(NARROW))

    def in_theme(self, theme: str) -> str:
        """The SVG in the fixed colours of `light` or `dark`."""
        return themed(self.draw(WIDE), theme)


Maker = Callable[..., Picture | None]
"""Makes one picture of a run with findings; None if the run has nothing to show there."""


def table_of(heads: str, rows: Sequence[Sequence[str]], *, note: str = "") -> PictureTable:
    """A picture's table."""
    return PictureTable(heads=heads, rows=tuple(tuple(row) for row in rows), note=note)
