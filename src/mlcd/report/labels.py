"""Label placement: next to their points, clear of other labels and points, inside the picture."""

from collections.abc import Sequence
from dataclasses import dataclass

_COVER = 30.0  # area of marks that a label may cover: a third of a point


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
        best: tuple[float, Box] | None = None
        for box in _candidates(label):
            if not box.inside(bounds) or any(box.overlap(other) > 0 for other in taken):
                continue
            covered = sum(box.overlap(other) for other in obstacles)
            if best is None or covered < best[0] - 1e-9:
                best = (covered, box)
            if covered == 0:
                break
        if best is not None and (label.must or best[0] <= _COVER):
            box = best[1]
            taken.append(box)
            placed.append(
                PlacedLabel(label=label, x=(box.left + box.right) / 2, y=box.bottom - label.size * 0.22, box=box)
            )
    return tuple(placed)


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
