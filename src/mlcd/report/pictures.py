"""The pictures of a run of any kind, in the order in which a page shows them: one row for each picture and kind."""

from collections.abc import Mapping, Sequence
from typing import Any

from mlcd.errors import BadInput, nearest
from mlcd.report.batches import batches, repriced
from mlcd.report.day_picture import day
from mlcd.report.map_picture import deployments, fleets
from mlcd.report.money_picture import money
from mlcd.report.operator_picture import operators
from mlcd.report.pace_picture import rates, tokens
from mlcd.report.picture import Maker, Picture
from mlcd.report.roofline_picture import roofline
from mlcd.report.serverless_picture import epochs
from mlcd.report.serving_picture import latency
from mlcd.report.speed_picture import speed
from mlcd.report.timeline_picture import timeline
from mlcd.report.tradeoff_picture import tradeoff
from mlcd.run.kind import Kind
from mlcd.run.run import Run

MAKERS: Mapping[Kind, tuple[Maker, ...]] = {
    Kind.TRAIN: (batches, repriced, speed, deployments, tradeoff, money, timeline),
    Kind.SERVE: (latency, tokens, rates, roofline, deployments, operators, day, money, timeline),
    Kind.SERVERLESS: (epochs, fleets, money, timeline),
}


def pictures_of(run: Run[Any]) -> tuple[Picture, ...]:
    """The pictures of a run with findings (`mlcd.findings.shown`), most informative first; never none."""
    made = (make(run) for make in MAKERS[run.kind])
    return tuple(picture for picture in made if picture is not None)


def picture_among(pictures: Sequence[Picture], name: str, *, where: str) -> Picture:
    """The one with this name. Raises BadInput with the names that there are, after `where`, such as `RUN has`."""
    found = {picture.name: picture for picture in pictures}
    if name in found:
        return found[name]
    near = nearest(name, list(found))
    hint = f"; did you mean {near!r}?" if near else ""
    raise BadInput(f"{where} no picture {name!r}; allowed: {', '.join(found)}{hint}")
