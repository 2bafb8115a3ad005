"""SVG drawing: collects shapes into one self-contained, accessible picture, light and dark."""

import math
from collections.abc import Sequence
from html import escape as escape_marks

from mlcd.report.labels import Box
from mlcd.report.palette import SERIES, STYLE, themed_style
from mlcd.untrusted import printable

_MOST_TEXT = 4_000  # characters of a text or a title
_STYLE_TAG = f"<style>{STYLE}</style>"


def escape(text: str) -> str:
    """The text as XML may contain it: escaped, without control characters, which no XML reader accepts."""
    return escape_marks(printable(text, most_characters=_MOST_TEXT))


def number(value: float) -> str:
    """A coordinate with one decimal. Raises ValueError if it is not finite: no picture contains NaN."""
    if not math.isfinite(value):
        raise ValueError("a coordinate must be finite")
    text = f"{value:.1f}"
    return text[:-2] if text.endswith(".0") else text


class Drawing:
    """A page of `width` x `height` units. All text given to it is escaped."""

    def __init__(self, *, width: float, height: float, title: str, description: str) -> None:
        self._parts: list[str] = []
        size = f"{number(width)} {number(height)}"
        self._open = (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="mlcd-picture" viewBox="0 0 {size}" width="100%" role="img"'
            f' aria-label="{escape(f"{title}. {description}")}"><title>{escape(title)}</title>'
            f"<desc>{escape(description)}</desc>{_STYLE_TAG}"
            f'<rect class="paper" width="{number(width)}" height="{number(height)}"/>'
        )

    def rect(self, box: Box, css: str, title: str = "") -> None:
        """A filled rectangle; nothing if it has no area."""
        if box.right > box.left and box.bottom > box.top:
            shape = (
                f'<rect class="{css}" x="{number(box.left)}" y="{number(box.top)}"'
                f' width="{number(box.right - box.left)}" height="{number(box.bottom - box.top)}"'
            )
            self._parts.append(_titled(shape, "rect", title))

    def line(self, points: Sequence[tuple[float, float]], css: str) -> None:
        """A line through the points."""
        places = " ".join(f"{number(x)},{number(y)}" for x, y in points)
        self._parts.append(f'<polyline class="{css}" points="{places}"/>')

    def area(self, points: Sequence[tuple[float, float]], css: str, title: str = "") -> None:
        """A filled polygon."""
        places = " ".join(f"{number(x)},{number(y)}" for x, y in points)
        self._parts.append(_titled(f'<polygon class="{css}" points="{places}"', "polygon", title))

    def text(self, x: float, y: float, text: str, css: str = "", *, anchor: str = "start", size: float = 12.0) -> None:
        """One line of text on the baseline y."""
        self._parts.append(
            f'<text class="{css}" x="{number(x)}" y="{number(y)}" text-anchor="{anchor}"'
            f' font-size="{number(size)}">{escape(text)}</text>'
        )

    def circle(self, x: float, y: float, radius: float, css: str, title: str = "") -> None:
        """A disc or ring."""
        shape = f'<circle class="{css}" cx="{number(x)}" cy="{number(y)}" r="{number(radius)}"'
        self._parts.append(_titled(shape, "circle", title))

    def mark(self, shape: int, x: float, y: float, css: str, title: str = "", *, radius: float = 5.0) -> None:
        """A point: circle, square, triangle, diamond, triangle down or pentagon, distinguishable without colour."""
        if shape % SERIES == 0:
            self.circle(x, y, radius, css, title)
            return
        corners, turn, grow = ((4, 45, 1.2), (3, -90, 1.35), (4, 0, 1.25), (3, 90, 1.35), (5, -90, 1.2))[
            shape % SERIES - 1
        ]
        angles = [math.radians(turn + 360 * k / corners) for k in range(corners)]
        points = " ".join(
            f"{number(x + radius * grow * math.cos(a))},{number(y + radius * grow * math.sin(a))}" for a in angles
        )
        self._parts.append(_titled(f'<polygon class="{css}" points="{points}"', "polygon", title))

    def cross(self, x: float, y: float, css: str, title: str = "", *, radius: float = 4.5) -> None:
        """A cross: a trial that gave no speed."""
        a, b, c, d = (number(v) for v in (x - radius, x + radius, y - radius, y + radius))
        self._parts.append(_titled(f'<path class="{css}" d="M{a},{c}L{b},{d}M{a},{d}L{b},{c}"', "path", title))

    def hatch(self, box: Box, css: str, *, gap: float = 6.0) -> None:
        """Diagonal lines across a rectangle."""
        width, height = box.right - box.left, box.bottom - box.top
        path = ""
        for step in range(1, int((width + height) / gap) + 1):
            along = step * gap
            x1, y1 = box.left + min(along, width), box.top + max(along - width, 0.0)
            x2, y2 = box.left + max(along - height, 0.0), box.top + min(along, height)
            path += f"M{number(x1)},{number(y1)}L{number(x2)},{number(y2)}"
        if path:
            self._parts.append(f'<path class="{css}" d="{path}"/>')

    def render(self) -> str:
        """The whole picture."""
        return self._open + "".join(self._parts) + "</svg>"


def embedded(svg: str) -> str:
    """A drawing for a page that has the rules of `palette.page_style`: without its own style."""
    return svg.replace(_STYLE_TAG, "", 1)


def themed(svg: str, theme: str) -> str:
    """A drawing with the fixed colours of one theme, for programs that know no variables and no media queries."""
    return svg.replace(_STYLE_TAG, f"<style>{themed_style(theme)}</style>", 1)


def _titled(opening: str, name: str, title: str) -> str:
    return f"{opening}><title>{escape(title)}</title></{name}>" if title else f"{opening}/>"
