"""SVG drawing: collects shapes into one self-contained, accessible picture, light and dark."""

import math
from collections.abc import Sequence
from html import escape as escape_marks

from mlcd.report.labels import Box
from mlcd.untrusted import printable

SERIES = 6
_MOST_TEXT = 4_000  # characters of a text or a title
_LIGHT = ("#0b6bcb", "#c2410c", "#15803d", "#7c3aed", "#0e7490", "#a16207")
_DARK = ("#6cb2ff", "#ff9f66", "#5fd38a", "#b79bff", "#4fd0e0", "#e6c44c")
_FONT = "system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif"


_PALETTES = {
    "light": {
        "ink": "#16202c",
        "muted": "#5b6775",
        "grid": "#e4e9ef",
        "paper": "#ffffff",
        "other": "#5b6775",
        "accent": "#d61f69",
        "bad": "#c81e1e",
        "spent": "#0b6bcb",
        "kept": "#a9d0f5",
        **{f"s{at}": colour for at, colour in enumerate(_LIGHT)},
    },
    "dark": {
        "ink": "#e8edf3",
        "muted": "#9aa7b5",
        "grid": "#2a3542",
        "paper": "#151c25",
        "other": "#9aa7b5",
        "accent": "#ff6fa5",
        "bad": "#ff7b7b",
        "spent": "#6cb2ff",
        "kept": "#2c5680",
        **{f"s{at}": colour for at, colour in enumerate(_DARK)},
    },
}


def _palette(name: str) -> str:
    return "".join(f"--p-{role}:{colour};" for role, colour in _PALETTES[name].items())


STYLE = (
    f".mlcd-picture{{{_palette('light')}font-family:{_FONT};font-size:12px}}"
    f"@media (prefers-color-scheme:dark){{.mlcd-picture{{{_palette('dark')}}}}}"
    ".mlcd-picture text{fill:var(--p-ink)}"
    ".mlcd-picture .paper{fill:var(--p-paper)}"
    ".mlcd-picture .muted{fill:var(--p-muted)}"
    ".mlcd-picture .grid{stroke:var(--p-grid);stroke-width:1;fill:none}"
    ".mlcd-picture .axis{stroke:var(--p-muted);stroke-width:1;fill:none}"
    ".mlcd-picture .walk{stroke:var(--p-muted);stroke-width:1.1;stroke-dasharray:2 4;fill:none;stroke-linecap:round}"
    ".mlcd-picture .ring{stroke:var(--p-accent);stroke-width:2.4;fill:none}"
    ".mlcd-picture .chosen{fill:var(--p-accent);font-weight:650}"
    ".mlcd-picture .halo{stroke:var(--p-paper);stroke-width:3.5px;paint-order:stroke;stroke-linejoin:round}"
    ".mlcd-picture .limit{stroke:var(--p-bad);stroke-width:1.5;stroke-dasharray:6 4;fill:none}"
    ".mlcd-picture .bad{fill:var(--p-bad)}"
    ".mlcd-picture .shade{fill:var(--p-bad);opacity:.09}"
    ".mlcd-picture .spent{fill:var(--p-spent)}.mlcd-picture .kept{fill:var(--p-kept)}"
    ".mlcd-picture .run{fill:var(--p-accent)}.mlcd-picture .run-predicted{fill:var(--p-accent);opacity:.4}"
    ".mlcd-picture .front{stroke:var(--p-ink);stroke-width:1.6;fill:none;opacity:.75}"
    ".mlcd-picture .touch{fill:transparent}.mlcd-picture .touch:hover{fill:var(--p-ink);opacity:.07}"
    ".mlcd-picture .mark{stroke:var(--p-paper);stroke-width:1.2}"
    ".mlcd-picture .hollow{fill:var(--p-paper);stroke:var(--p-muted);stroke-width:1.6}"
    + "".join(
        f".mlcd-picture .f-{name}{{fill:var(--p-{name})}}"
        f".mlcd-picture .l-{name}{{stroke:var(--p-{name});stroke-width:2;fill:none}}"
        f".mlcd-picture .w-{name}{{stroke:var(--p-{name});stroke-width:1.3;opacity:.65;fill:none}}"
        f".mlcd-picture .x-{name}{{stroke:var(--p-{name});stroke-width:2.4;stroke-linecap:round;fill:none}}"
        for name in (*(f"s{i}" for i in range(SERIES)), "other")
    )
)


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

    def __init__(self, *, key: str, width: float, height: float, title: str, description: str) -> None:
        self._parts: list[str] = []
        size, name = f"{number(width)} {number(height)}", escape(key)
        self._open = (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="mlcd-picture" viewBox="0 0 {size}" width="100%" role="img"'
            f' aria-labelledby="{name}-t {name}-d"><title id="{name}-t">{escape(title)}</title>'
            f'<desc id="{name}-d">{escape(description)}</desc><style>{STYLE}</style>'
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

    def area(self, points: Sequence[tuple[float, float]], css: str) -> None:
        """A filled polygon."""
        places = " ".join(f"{number(x)},{number(y)}" for x, y in points)
        self._parts.append(f'<polygon class="{css}" points="{places}"/>')

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

    def render(self) -> str:
        """The whole picture."""
        return self._open + "".join(self._parts) + "</svg>"


def _titled(opening: str, name: str, title: str) -> str:
    return f"{opening}><title>{escape(title)}</title></{name}>" if title else f"{opening}/>"
