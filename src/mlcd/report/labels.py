"""Label placement: next to their points, clear of other labels and points, inside the picture."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

_COVER = 30.0  # area of marks that a label may cover: a third of a point
_CLOSE = 1e-9  # areas that differ by less count as equal: the earlier place is taken


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle on the page."""

    left: float
    top: float
    right: float
    bottom: float

    def overlap(self, other: "Box") -> float:
        """The shared area."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.bottom, other.bottom) - max(self.top, other.top)
        return width * height if width > 0 and height > 0 else 0.0

    def inside(self, other: "Box") -> bool:
        """Whether it lies within `other`."""
        return (
            self.left >= other.left
            and self.right <= other.right
            and self.top >= other.top
            and self.bottom <= other.bottom
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """A text to place near (x, y), at least `gap` from it.

    must  whether it may cover marks instead of being omitted
    """

    text: str
    x: float
    y: float
    size: float = 11.0
    gap: float = 7.0
    must: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedLabel:
    """A placed label: the middle of its baseline, and its box."""

    label: Label
    x: float
    y: float
    box: Box


def text_width(text: str, size: float) -> float:
    """Approximate width of `text` in a system font, rather too wide."""
    narrow = sum(character in " .,:;ijlt'|()[]1" for character in text)
    return size * (0.62 * (len(text) - narrow) + 0.36 * narrow)


def place(labels: Sequence[Label], bounds: Box, obstacles: Sequence[Box] = ()) -> tuple[PlacedLabel, ...]:
    """The labels that fit, in order of priority; one that would cover a label or much of a mark is omitted."""
    taken: list[Box] = []
    placed: list[PlacedLabel] = []
    for label in labels:
        best, limit = None, math.inf if label.must else _COVER + _CLOSE
        candidates = [box for box in _candidates(label) if box.inside(bounds)]
        near = _near(candidates, obstacles)
        for box in candidates:
            if any(box.overlap(other) > 0 for other in taken):
                continue
            covered = _covered(box, near, limit)
            if covered < limit:
                best, limit = box, covered - _CLOSE
            if covered == 0:
                break
        if best is not None:
            taken.append(best)
            placed.append(
                PlacedLabel(label=label, x=(best.left + best.right) / 2, y=best.bottom - label.size * 0.22, box=best)
            )
    return tuple(placed)


def _near(boxes: Sequence[Box], others: Sequence[Box]) -> list[Box]:
    """Those of the others that any of the boxes could overlap: a long run has hundreds of marks, few near a label."""
    if not boxes:
        return []
    left, right = min(box.left for box in boxes), max(box.right for box in boxes)
    top, bottom = min(box.top for box in boxes), max(box.bottom for box in boxes)
    return [
        other
        for other in others
        if other.left < right and other.right > left and other.top < bottom and other.bottom > top
    ]


def _covered(box: Box, others: Sequence[Box], most: float) -> float:
    """The area of the others that the box covers; where it is more than `most`, some value above that."""
    covered = 0.0
    for other in others:
        if other.left < box.right and other.right > box.left and other.top < box.bottom and other.bottom > box.top:
            covered += box.overlap(other)
            if covered > most:
                break
    return covered


def _candidates(label: Label) -> list[Box]:
    half, height = text_width(label.text, label.size) / 2, label.size
    boxes = []
    for gap in (label.gap, label.gap + 9, label.gap + 20):
        diagonal = gap * 0.72
        for dx, dy in (
            (0.0, -gap - height / 2),
            (diagonal + half, -diagonal - height / 2 + 2),
            (-diagonal - half, -diagonal - height / 2 + 2),
            (gap + half, 0.0),
            (-gap - half, 0.0),
            (0.0, gap + height / 2),
            (diagonal + half, diagonal + height / 2 - 2),
            (-diagonal - half, diagonal + height / 2 - 2),
        ):
            x, y = label.x + dx, label.y + dy
            boxes.append(Box(x - half, y - height / 2, x + half, y + height / 2))
    return boxes
