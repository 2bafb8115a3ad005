"""The pictures of a run, by name."""

from enum import StrEnum

from mlcd.report.batches import batches_picture, repriced_picture
from mlcd.report.money_picture import money_picture
from mlcd.report.page import WIDE
from mlcd.report.speed_picture import speed_picture
from mlcd.report.tradeoff_picture import tradeoff_picture
from mlcd.run.run import SearchRun


class PictureKind(StrEnum):
    """What a picture shows."""

    SPEED = "speed"
    MONEY = "money"
    TRADEOFF = "tradeoff"
    BATCHES = "batches"
    """For a run whose batch was chosen: time against cost at its own prices, one curve per batch."""
    REPRICED = "batches-repriced"
    """The same under the other price policy."""

    @property
    def is_of_batches(self) -> bool:
        """Whether only runs whose batch was chosen have it."""
        return self in (PictureKind.BATCHES, PictureKind.REPRICED)


def kinds_of(record: SearchRun) -> tuple[PictureKind, ...]:
    """The pictures that make sense for this run, most informative first."""
    if record.problem.batching is None:
        return tuple(kind for kind in PictureKind if not kind.is_of_batches)
    return tuple(sorted(PictureKind, key=lambda kind: not kind.is_of_batches))


def picture(record: SearchRun, kind: PictureKind | str = PictureKind.SPEED, *, width: float = WIDE) -> str:
    """One self-contained SVG, `width` units wide, scaled to its container; light or dark by the reader's setting.

    Raises ValueError for an unknown kind.
    """
    draw = {
        PictureKind.SPEED: speed_picture,
        PictureKind.MONEY: money_picture,
        PictureKind.TRADEOFF: tradeoff_picture,
        PictureKind.BATCHES: batches_picture,
        PictureKind.REPRICED: repriced_picture,
    }[PictureKind(kind)]
    return draw(record, width)
