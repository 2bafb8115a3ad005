"""The pictures of a run, by name."""

from enum import StrEnum

from mlcd.report.money_picture import money_picture
from mlcd.report.speed_picture import speed_picture
from mlcd.report.tradeoff_picture import tradeoff_picture
from mlcd.trial.record import RunRecord

WIDE, NARROW = 860.0, 380.0


class PictureKind(StrEnum):
    """What a picture shows."""

    SPEED = "speed"
    MONEY = "money"
    TRADEOFF = "tradeoff"


def picture(record: RunRecord, kind: PictureKind | str = PictureKind.SPEED, *, width: float = WIDE) -> str:
    """One self-contained SVG, `width` units wide and as large as its place; light and dark by the reader's setting.

    Raises ValueError for an unknown kind.
    """
    draw = {
        PictureKind.SPEED: speed_picture,
        PictureKind.MONEY: money_picture,
        PictureKind.TRADEOFF: tradeoff_picture,
    }[PictureKind(kind)]
    return draw(record, width)
