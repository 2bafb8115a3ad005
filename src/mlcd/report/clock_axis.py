"""The time of a run across a picture: from its first start to its end, search and what follows it side by side."""

from dataclasses import dataclass

from mlcd.report.frame import axes
from mlcd.report.labels import Box, text_width
from mlcd.report.svg import Drawing
from mlcd.report.ticks import Scale, Tick, time_ticks
from mlcd.run.run import AnyRun
from mlcd.run.step import Role, Step

_LEAST_SHARE = 0.3  # of the time: a shorter search, or rest, gets a scale of its own
_WIDTH_SHARE = 0.5  # of the width, for such a search
_GAP = 14.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockAxis:
    """Seconds of the run's clock to coordinates. `after` is the scale of what follows the search, if it has its own."""

    search: Scale
    after: Scale | None = None

    def __call__(self, seconds: float) -> float:
        """The coordinate."""
        scale = self.search if self.after is None or seconds <= self.after.low else self.after
        return min(max(scale(seconds), scale.start), scale.end)

    def draw(self, drawing: Drawing, plot: Box, *, up: tuple[Scale, tuple[Tick, ...], str]) -> None:
        """Grid, ticks and names below the plot."""
        scales = [self.search] if self.after is None else [self.search, self.after]
        axes(drawing, plot, across=(self.search, (), ""), up=up)
        for at, scale in enumerate(scales):
            room = scale.end - scale.start
            ticks = [tick for tick in time_ticks(scale, max(2, int(room / 90))) if not (at and tick[0] == scale.low)]
            last = scale.start - 30 if not at else scale.start - 4
            for value, label in ticks:
                x, half = scale(value), text_width(label, 11) / 2
                drawing.line([(x, plot.bottom), (x, plot.bottom + 4)], "axis")
                if x - half > last + 6 and x + half <= plot.right + 14:
                    drawing.text(x, plot.bottom + 17, label, "muted", anchor="middle", size=11)
                    last = x + half
        if self.after is None:
            names = [("time since the first start", plot.left, plot.right)]
        else:
            middle = self.search.end
            names = [("search", plot.left, middle), ("after it, another scale", middle + _GAP, plot.right)]
        for name, left, right in names:
            drawing.text((left + right) / 2, plot.bottom + 36, name, "muted", anchor="middle", size=11)

    def draw_gap(self, drawing: Drawing, plot: Box) -> None:
        """The gap where the scale changes, over what was drawn."""
        if self.after is None:
            return
        x = self.search.end
        drawing.rect(Box(x, plot.top - 1, x + _GAP, plot.bottom + 1), "paper")
        for side in (x, x + _GAP):
            drawing.line([(side, plot.top), (side, plot.bottom + 4)], "walk")


def clock_axis(run: AnyRun, end_seconds: float, left: float, right: float) -> ClockAxis:
    """The axis of a run whose last mark ends then."""
    end = max(end_seconds, 1e-3) * 1.01
    split = run.verdict.search_seconds if run.verdict is not None else 0.0
    follows = any(step.role in (Role.TRAINING, Role.VERIFICATION) for step in run.steps) or end_seconds > split * 1.02
    if not follows or not 0 < split < end * _LEAST_SHARE:
        return ClockAxis(search=Scale(low=0.0, high=end, start=left, end=right))
    middle = left + (right - left) * _WIDTH_SHARE
    return ClockAxis(
        search=Scale(low=0.0, high=split, start=left, end=middle - _GAP / 2),
        after=Scale(low=split, high=end, start=middle + _GAP / 2, end=right),
    )


def end_of(step: Step) -> float:
    """When a step ended on the run's clock; of one in flight, when it ends at the latest."""
    seconds = step.shown_authorised_seconds if step.outcome is None else step.outcome.seconds
    return step.started_seconds + seconds
