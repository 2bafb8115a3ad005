"""Draws the pictures of docs/concepts: `.venv/bin/python scripts/concept_pictures.py`. They show ideas, not results."""

import math
from pathlib import Path

from mlcd.report.labels import Box
from mlcd.report.svg import Drawing

IMAGES = Path(__file__).parents[1] / "docs" / "images"
WIDTH = 480.0
"""Narrow, so that the words can be read on a screen of 380 pixels."""


def ledger() -> str:
    """A budget as a bar, after three trials."""
    drawing = Drawing(
        width=WIDTH,
        height=310,
        title="What a budget is made of",
        description="Four bars, one after each trial: spent, committed, reserved and free parts of a budget of $100.",
    )
    rows = [
        ("before", 0, 0, 0, "nothing is known: the first trial must be cheap"),
        ("trial 1 runs", 0, 6, 0, "its worst case is committed before it starts"),
        ("after trial 1", 3, 0, 62, "its choice would cost $62 at most: reserved"),
        ("trial 4 runs", 12, 8, 48, "a better choice needs less, so more is free"),
        ("the training", 18, 44, 0, "the reserve becomes the training's commitment"),
    ]
    for at, (name, spent, committed, reserved, words) in enumerate(rows):
        y = 62.0 + at * 52
        drawing.text(8, y - 6, name)
        drawing.text(112, y - 6, words, "muted")
        x = 8.0
        for amount, css in ((spent, "spent"), (committed, "run"), (reserved, "kept")):
            drawing.rect(Box(x, y, x + amount * 4.6, y + 20), css, f"${amount}")
            x += amount * 4.6
        drawing.line([(8, y), (468, y), (468, y + 20), (8, y + 20), (8, y)], "axis")
    x = 112.0
    for text, css in (("spent", "spent"), ("committed", "run"), ("reserved", "kept"), ("free", "hollow")):
        drawing.rect(Box(x, 12, x + 12, 24), css)
        drawing.text(x + 18, 22, text)
        x += 96
    drawing.text(8, 22, "$100 budget", "chosen")
    return drawing.render()


def trial() -> str:
    """Samples over time in one trial, with the interval of its speed."""
    drawing = Drawing(
        width=WIDTH,
        height=270,
        title="A trial over its ten minutes",
        description="Start-up without samples, then a speed whose interval narrows until it is narrow enough.",
    )
    left, right, top, bottom = 20.0, 468.0, 50.0, 210.0
    drawing.rect(Box(left, top, left + 118, bottom), "shade")
    drawing.text(left + 59, top + 20, "start-up", "muted", anchor="middle")
    drawing.text(left + 59, top + 36, "paid, not measured", "muted", anchor="middle", size=11)
    steps = [left + 118 + 6.8 * k for k in range(48)]
    speed = [110 + 16 * math.exp(-k / 6) * math.cos(k) for k in range(48)]
    upper = [(x, y - 60 / math.sqrt(k + 1.5)) for k, (x, y) in enumerate(zip(steps, speed, strict=True))]
    lower = [(x, y + 60 / math.sqrt(k + 1.5)) for k, (x, y) in enumerate(zip(steps, speed, strict=True))]
    drawing.area([*upper, *reversed(lower)], "kept")
    drawing.line(list(zip(steps, speed, strict=True)), "l-s0")
    drawing.line([(left, bottom), (right, bottom)], "axis")
    drawing.line([(left, top), (left, bottom)], "axis")
    drawing.text(8, 30, "samples per second", "muted")
    drawing.text(right, bottom + 20, "10 min", "muted", anchor="end")
    drawing.text(left, bottom + 20, "ordered", "muted")
    drawing.text(left + 118, bottom + 20, "first sample", "muted", anchor="middle")
    drawing.text(330, 76, "speed, with its 95% interval", "halo", anchor="middle")
    drawing.text(
        left,
        bottom + 44,
        "Narrow enough: the trial ends. Still uncertain: half as long again, at most.",
        "muted",
        size=11.5,
    )
    return drawing.render()


def strategy() -> str:
    """A model over nodes: three measured points, the band of what is expected, the next trial."""
    drawing = Drawing(
        width=WIDTH,
        height=300,
        title="What a strategy expects, and where it looks next",
        description="Expected speed over nodes with its uncertainty, three measured points, and the next trial.",
    )
    left, right, top, bottom = 20.0, 468.0, 40.0, 240.0
    measured = (1, 4, 12)

    def place(nodes: float) -> float:
        return left + (right - left) * nodes / 17

    def expected(nodes: float) -> float:
        return bottom - 30 - 150 * (1 - math.exp(-nodes / 3.5)) + 2.2 * max(0.0, nodes - 6)

    def doubt(nodes: float) -> float:
        return 4 + 9 * math.pow(min(abs(nodes - other) for other in measured), 0.8)

    grid = [0.5 + 0.25 * k for k in range(64)]
    drawing.area(
        [
            *((place(n), expected(n) - doubt(n)) for n in grid),
            *((place(n), expected(n) + doubt(n)) for n in reversed(grid)),
        ],
        "kept",
    )
    drawing.line([(place(n), expected(n)) for n in grid], "l-s0")
    drawing.rect(Box(place(14.2), top, right, bottom), "shade")
    drawing.text(place(14.3), top + 16, "over budget", "bad", size=11)
    for number, nodes in enumerate(measured, start=1):
        drawing.mark(0, place(nodes), expected(nodes), "mark f-s0", f"trial {number}: {nodes} nodes")
        drawing.text(place(nodes), expected(nodes) + 24, f"trial {number}", "halo", anchor="middle", size=11)
    drawing.circle(place(7.5), expected(7.5), 10, "ring", "the next trial")
    drawing.text(place(7.5), expected(7.5) - 34, "next: most saving for its price", "halo chosen", anchor="middle")
    drawing.line([(left, bottom), (right, bottom)], "axis")
    drawing.line([(left, top), (left, bottom)], "axis")
    drawing.text(8, 24, "speed: expected, and how uncertain", "muted")
    for nodes in (1, 4, 8, 12, 16):
        drawing.text(place(nodes), bottom + 18, str(nodes), "muted", anchor="middle", size=11)
    drawing.text((left + right) / 2, bottom + 38, "nodes of one type", "muted", anchor="middle")
    return drawing.render()


PICTURES = {"concept-ledger.svg": ledger, "concept-trial.svg": trial, "concept-strategy.svg": strategy}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (IMAGES / name).write_text(draw(), encoding="utf-8")
