"""What the pictures share: the frame with its axes, the legend, and the colour of each type."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mlcd.report.labels import Box, text_width
from mlcd.report.origin import origin_word
from mlcd.report.palette import SERIES
from mlcd.report.svg import Drawing
from mlcd.report.ticks import Scale, Tick
from mlcd.report.wording import shortened
from mlcd.run.run import AnyRun, SearchRun
from mlcd.space import Config


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A curve's look, usually an instance type's: `css` ends class names, `shape` is its mark."""

    instance: str
    css: str
    shape: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plane:
    """Where a plot lies on the page, and its two scales."""

    plot: Box
    across: Scale
    up: Scale


def curve_of(record: SearchRun, config: Config) -> str:
    """The name of the curve of a configuration: its type, or its batch if the batch is chosen."""
    if record.problem.batching is None:
        return config.instance
    batch = f"B = {int(config['batch']):,}"
    several = len({c.instance for c in record.problem.space}) > 1
    return f"{config.instance}, {batch}" if several else batch


def series(record: SearchRun) -> Mapping[str, Series]:
    """The curves with a trial, best first; beyond the palette they share one look.

    Looks follow the order of the types in the job, so that a type has one look however the run goes on, and in runs of
    the same job. Of more types than the palette has, those that were tried have looks, by their first trial.
    """
    tried = {curve_of(record, trial.config): None for trial in record.history}
    chosen = {curve_of(record, record.choice.config): None} if record.choice else {}
    best_first = {curve_of(record, plan.config): None for plan in record.train_findings.ranked}
    order = [*{**chosen, **best_first, **tried}]
    room = SERIES if len(order) <= SERIES else SERIES - 1
    fixed = _curves_of_the_job(record)
    if len(order) > SERIES:
        fixed = order
    elif len(fixed) > SERIES:
        fixed = [*{**tried, **best_first, **chosen}]
    places = {instance: at for at, instance in enumerate(fixed)}
    found = {}
    for instance in order:
        at = places[instance]
        found[instance] = Series(
            instance=instance, css=f"s{at}" if at < room else "other", shape=at if at < room else 0
        )
    return found


def _curves_of_the_job(record: SearchRun) -> list[str]:
    """All that could be tried, in the job's order; no more than one more than the palette has."""
    return _in_order(curve_of(record, config) for config in record.problem.space)


def types_of_the_job(record: SearchRun) -> list[str]:
    """Its instance types, likewise."""
    return _in_order(config.instance for config in record.problem.space)


def _in_order(names: Iterable[str]) -> list[str]:
    found: dict[str, None] = {}
    for name in names:
        found[name] = None
        if len(found) > SERIES:
            break
    return [*found]


def legend_items(looks: Mapping[str, Series]) -> list[tuple[str, Series | None]]:
    """(text, look) for each named type, and one entry for all that share the last look."""
    named: list[tuple[str, Series | None]] = [(s.instance, s) for s in looks.values() if s.css != "other"]
    others = [s for s in looks.values() if s.css == "other"]
    if others:
        named.append((f"{len(others)} more", others[0]))
    return named


def legend(drawing: Drawing, items: Sequence[tuple[str, str, int | str]], width: float) -> float:
    """Items (text, css, mark) in rows at the top; the y below them.

    A mark is a shape, `line`, `box`, `hatch` or `cross`.
    """
    places = _legend_places(items, width)
    for (x, y, text), (_, css, mark) in zip(places, items, strict=True):
        if mark == "line":
            drawing.line([(x, y), (x + 13, y)], css)
        elif mark == "box":
            drawing.rect(Box(x + 1, y - 5, x + 12, y + 5), css)
        elif mark == "hatch":
            drawing.hatch(Box(x + 1, y - 5, x + 12, y + 5), css, gap=4)
        elif mark == "cross":
            drawing.cross(x + 6, y, css, radius=4)
        elif isinstance(mark, int):
            drawing.mark(mark, x + 6, y, css)
        drawing.text(x + 18, y + 4, text, "muted")
    return legend_bottom(items, width)


def legend_bottom(items: Sequence[tuple[str, str, int | str]], width: float) -> float:
    """The y below a legend."""
    return max((y for _, y, _ in _legend_places(items, width)), default=16.0) + 16


def _legend_places(items: Sequence[tuple[str, str, int | str]], width: float) -> list[tuple[float, float, str]]:
    """(x, y, text) of each item, in rows; a text that is wider than the picture is shortened."""
    left, right = 8.0, width - 8
    x, y, places = left, 16.0, []
    for whole, _, _ in items:
        room = (right - left - 18) / text_width(whole, 12) if whole else 1.0
        text = whole if room >= 1 else shortened(whole, max(8, int(len(whole) * room)))
        wide = 18 + text_width(text, 12) + 14
        if x > left and x + wide > right:
            x, y = left, y + 19
        places.append((x, y, text))
        x += wide
    return places


def axes(
    drawing: Drawing,
    plot: Box,
    *,
    across: tuple[Scale, Sequence[Tick], str],
    up: tuple[Scale, Sequence[Tick], str],
) -> None:
    """Draw grid, ticks and axis names: that of `up` above its axis, that of `across` below."""
    scale, ticks, name = up
    for value, label in ticks:
        y = scale(value)
        drawing.line([(plot.left, y), (plot.right, y)], "grid")
        drawing.text(plot.left - 7, y + 4, label, "muted", anchor="end", size=11)
    if name:
        drawing.text(4, plot.top - 12, name, "muted", size=11)
    scale, ticks, name = across
    last = -1e9
    for value, label in ticks:
        x, half = scale(value), text_width(label, 11) / 2
        drawing.line([(x, plot.bottom), (x, plot.bottom + 4)], "axis")
        if x - half > last + 6:
            drawing.text(x, plot.bottom + 17, label, "muted", anchor="middle", size=11)
            last = x + half
    drawing.line([(plot.left, plot.bottom), (plot.right, plot.bottom)], "axis")
    if name:
        drawing.text((plot.left + plot.right) / 2, plot.bottom + 36, name, "muted", anchor="middle", size=11)


def left_margin(ticks: Sequence[Tick]) -> float:
    """Width of the labels on the left axis."""
    return 14 + max((text_width(label, 11) for _, label in ticks), default=20)


def origin_mark(drawing: Drawing, record: AnyRun, height: float, *, left_out: str = "") -> None:
    """Draw SIMULATED or REPLAYED in the lower left corner if no machine was rented: a picture may be shared alone.

    left_out  what the picture does not show, after it
    """
    if text := "; ".join(filter(None, (origin_word(record), left_out))):
        drawing.text(4, height - 8, text, "muted", size=10)


def empty(drawing: Drawing, width: float, height: float, text: str) -> None:
    """Draw a sentence in the middle, for a picture without content."""
    drawing.text(width / 2, height / 2, text, "muted", anchor="middle", size=13)
