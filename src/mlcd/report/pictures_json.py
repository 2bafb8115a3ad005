"""The pictures' tables and the decisions of a run, for programs."""

from collections.abc import Sequence
from typing import Any, TypedDict

from mlcd.report.decisions import decisions
from mlcd.report.picture import Picture
from mlcd.run.run import Run


class PictureJson(TypedDict):
    """A picture without its drawing: a row of `rows` for each mark."""

    name: str
    title: str
    description: str
    columns: list[str]
    rows: list[list[str]]
    note: str


class DecisionJson(TypedDict):
    """A decision, or what came of one; `seconds` on the run's clock."""

    seconds: float
    what: str
    text: str
    step: int | None


class PicturesJson(TypedDict):
    """What `mlcd report --format json` writes."""

    run_id: str
    kind: str
    status: str
    pictures: list[PictureJson]
    decisions: list[DecisionJson]


def picture_json(picture: Picture) -> PictureJson:
    """One picture."""
    return PictureJson(
        name=picture.name,
        title=picture.title,
        description=picture.description,
        columns=list(picture.table.columns),
        rows=[list(row) for row in picture.table.rows],
        note=picture.table.note,
    )


def pictures_json(run: Run[Any], pictures: Sequence[Picture]) -> PicturesJson:
    """All of them, of a run with findings."""
    return PicturesJson(
        run_id=run.run_id,
        kind=str(run.kind),
        status=str(run.status),
        pictures=[picture_json(picture) for picture in pictures],
        decisions=[
            DecisionJson(seconds=line.seconds, what=line.what, text=line.text, step=line.step)
            for line in decisions(run)
        ],
    )
