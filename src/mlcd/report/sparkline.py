"""A sparkline of the best so far, for lists of runs."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from mlcd.report.svg import Drawing
from mlcd.report.ticks import Scale
from mlcd.run.kind import Kind
from mlcd.run.run import Run
from mlcd.trial.epoch import Epoch
from mlcd.trial.trial import Measurement

WIDTH, HEIGHT = 120.0, 28.0
_MOST_POINTS = 60


def best_so_far(run: Run[Any]) -> tuple[float, ...]:
    """The best speed, rate or loss after each step that measured one. Only a loss is better if it is lower."""
    if run.kind is Kind.SERVERLESS:
        return tuple(accumulate((step.outcome.loss for step in run.steps if isinstance(step.outcome, Epoch)), min))
    speeds = (s.outcome.samples_per_second for s in run.steps if isinstance(s.outcome, Measurement))
    return tuple(accumulate(speeds, max))


def sparkline(values: Sequence[float], *, title: str = "best so far") -> str:
    """A line through the values and a dot at the last; empty text without values."""
    if not values:
        return ""
    every = max(1, -(-len(values) // _MOST_POINTS))
    shown = [*values[::every]] if (len(values) - 1) % every == 0 else [*values[::every], values[-1]]
    drawing = Drawing(width=WIDTH, height=HEIGHT, title=title, description=f"from {values[0]:.4g} to {values[-1]:.4g}")
    low, high = min(shown), max(shown)
    up = Scale(low=low, high=high if high > low else low + 1.0, start=HEIGHT - 5, end=5.0)
    across = Scale(low=0.0, high=max(len(shown) - 1, 1), start=4.0, end=WIDTH - 6)
    places = [(across(at), up(value)) for at, value in enumerate(shown)]
    if len(places) > 1:
        drawing.line(places, "w-s0")
    drawing.circle(*places[-1], 2.6, "f-s0")
    return drawing.render()
