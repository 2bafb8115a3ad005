"""The page of a run, in parts: the numbers at once, each picture and table when the reader comes to it.

A part is drawn once for each state of the run, and for each width, however many clients there are.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from mlcd.errors import BadInput
from mlcd.kinds import kind_of
from mlcd.report.decisions import decisions, decisions_note
from mlcd.report.origin import origin
from mlcd.report.page import NARROW, WIDE, Table, drawn
from mlcd.report.picture import Picture
from mlcd.report.pictures import picture_among
from mlcd.report.svg import embedded
from mlcd.report.wording import sentence
from mlcd.run.kind import Kind
from mlcd.run.run import Run
from mlcd.untrusted import printable
from mlcd.web.records import NoSuchRun, Records

WIDTHS: Mapping[str, float] = {"narrow": NARROW, "half": 580.0, "wide": WIDE, "full": 1180.0}
"""Widths that a picture is drawn for: a phone, one of two columns, one column, both columns."""
BROAD = frozenset({"map", "timeline", "day"})
"""Pictures that take the whole width of the page: they have many columns."""
MOST_DECISIONS = 16
"""Decisions that are shown at once, the last ones; the earlier are one click away."""
MOST_PARTS = 40
"""Parts that one request may ask for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A section of the page.

    draw      its content for a width
    is_broad  whether it takes the whole width of the page
    """

    name: str
    title: str
    draw: Callable[[str], Markup]
    is_broad: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """A run in one state, and the parts of its page, which are not drawn yet."""

    run: Run[Any]
    goal: str
    origin_word: str
    origin_text: str
    pictures: tuple[Picture, ...]
    parts: tuple[Part, ...]


class RunPage:
    """The parts of the pages of all runs."""

    def __init__(self, records: Records, environment: Environment) -> None:
        self._records, self._environment = records, environment

    def outline(self, run_id: str) -> Outline:
        """What there is to show of a run. Raises NoSuchRun."""
        return self._records.made(run_id, "outline", self._outline)

    def content(self, run_id: str, asked: list[tuple[str, str]]) -> dict[str, Markup]:
        """The parts of these names, drawn for these widths; names that the run's page does not have are left out."""
        known = {part.name: part for part in self.outline(run_id).parts}

        def content(part: Part, width: str) -> Markup:
            return self._records.made(run_id, f"part {part.name} {width}", lambda _: part.draw(width))

        return {name: content(known[name], width) for name, width in asked[:MOST_PARTS] if name in known}

    def table(self, run_id: str, picture: str) -> Markup:
        """The table of a picture. Raises NoSuchRun where the run has no picture of this name."""
        shown = printable(picture, most_characters=60)
        try:
            found = picture_among(self.outline(run_id).pictures, shown, where=f"{run_id} has")
        except BadInput as error:
            raise NoSuchRun(str(error)) from error
        return self._records.made(
            run_id, f"table {found.name}", lambda _: self._table(found.table.on_page(found.title))
        )

    def _outline(self, run: Run[Any]) -> Outline:
        word, meaning = origin(run)
        row = kind_of(run.kind)
        pictures = row.pictures(run) if run.ended else ()
        tables = row.tables(run) if run.ended else []
        halves = sum(each.name not in BROAD for each in pictures)
        return Outline(
            run=run,
            goal=run.problem.goal.serving_text if run.kind is Kind.SERVE else str(run.problem.goal),
            origin_word=word,
            origin_text=sentence(meaning) if meaning else "",
            pictures=pictures,
            parts=(
                *(
                    Part(
                        name=each.fragment_id,
                        title=each.title,
                        draw=partial(self._picture, each),
                        is_broad=each.name in BROAD,
                    )
                    for each in pictures
                ),
                Part(
                    name="decisions",
                    title="Decisions",
                    draw=partial(self._decisions, run),
                    is_broad=halves % 2 == 0,  # else it is beside the last picture
                ),
                *(
                    Part(name=_table_name(each), title=each.title, draw=partial(self._drawn_table, each), is_broad=True)
                    for each in tables
                ),
            ),
        )

    def _picture(self, picture: Picture, width: str) -> Markup:
        svg = drawn(embedded(picture.draw(WIDTHS[width])))
        return self._part("picture", picture=picture, svg=svg)

    def _decisions(self, run: Run[Any], _: str) -> Markup:
        return self._part("decisions", lines=decisions(run), note=decisions_note(run), most_decisions=MOST_DECISIONS)

    def _drawn_table(self, table: Table, _: str) -> Markup:
        return self._part("table", table=table)

    def _table(self, table: Table) -> Markup:
        return self._part("data", table=table)

    def _part(self, macro: str, **values: object) -> Markup:
        made: Markup = getattr(self._environment.get_template("run_parts.html.j2").module, macro)(**values)
        return made


def _table_name(table: Table) -> str:
    return "table-" + re.sub(r"[^a-z0-9]+", "-", table.title.lower()).strip("-")[:60]
