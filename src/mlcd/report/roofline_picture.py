"""A language model's load tests against what the GPUs' data sheets allow."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from mlcd.known.ceilings import most_tokens
from mlcd.known.language_models import TokenLengths
from mlcd.report.frame import axes, left_margin, legend, origin_mark
from mlcd.report.labels import Box
from mlcd.report.palette import SERIES
from mlcd.report.picture import Picture, PictureTable, table_of
from mlcd.report.svg import Drawing
from mlcd.report.thinning import MOST_LABELS, MOST_MARKS, drawn_text, thinned
from mlcd.report.ticks import fitted_scale, number_ticks
from mlcd.report.wording import plural, speed_text
from mlcd.run.run import SearchRun
from mlcd.trial.trial import Measurement

ROOFLINE_PICTURE = "roofline"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """One pace of one node: requests in flight, output tokens a second, and what the data sheets allow at most."""

    users: float
    tokens: float
    most: float
    bound: str

    @property
    def percent(self) -> float:
        return 100 * self.tokens / self.most


def roofline(record: SearchRun) -> Picture | None:
    """Where each pace is under the roofline; None where the model's sizes or the GPUs are not known."""
    every = _places(record)
    if not every:
        return None
    choice = record.serve_findings.choice
    chosen = str(choice.config) if choice is not None else ""
    names = sorted(every, key=lambda name: (name != chosen, -max(place.percent for place in every[name])))
    each = max(2, MOST_MARKS // min(len(names), MOST_LABELS))
    curves = {name: thinned(every[name], each) for name in names[:MOST_LABELS]}
    rows = [
        [
            f"{name}, chosen" if name == chosen else name,
            f"{place.users:.0f}",
            speed_text(place.tokens),
            speed_text(place.most),
            f"{place.percent:.1f}%",
            place.bound,
        ]
        for name, of in curves.items()
        for place in of
    ]
    heads = "configuration|>in flight|>output tokens/s|>at most|>share|bound by"
    table = table_of(heads, rows, note=drawn_text(len(curves), len(every), "configurations"))
    return Picture(
        name=ROOFLINE_PICTURE,
        title="Position under the roofline",
        description="Output tokens per second of one node, as a share of what the GPU's data sheet allows for the"
        " model's sizes: reading weights and cache at full bandwidth, or computing at full speed. A line that falls"
        " early is held up by the server, not by the GPU.",
        table=table,
        draw=partial(_svg, record, curves, chosen, table),
    )


def _places(record: SearchRun) -> dict[str, Sequence[_Place]]:
    facts = record.serving
    found: dict[str, Sequence[_Place]] = {}
    if facts is None or facts.language is None:
        return found
    for step in record.trials:
        trial = step.trial
        if not isinstance(trial, Measurement) or trial.load is None or trial.load.tokens is None:
            continue
        machine = facts.machines.get(str(dict(trial.config.values).get("instance", "")))
        tokens = trial.load.tokens
        if machine is None or min(tokens.input_tokens, tokens.output_tokens) <= 0:
            continue
        lengths = TokenLengths(input_tokens=tokens.input_tokens, output_tokens=tokens.output_tokens)
        nodes = trial.config.nodes
        places = []
        for point in sorted(tokens.front, key=lambda point: point.concurrency):
            users = point.concurrency / nodes
            if users > 0 and point.output_tokens_per_second > 0:
                most, bound = most_tokens(facts.language, machine, lengths, users)
                per_node = point.output_tokens_per_second / nodes
                places.append(_Place(users=users, tokens=per_node, most=most, bound=bound))
        if places:
            found[str(trial.config)] = places
    return found


def _svg(
    record: SearchRun, curves: Mapping[str, Sequence[_Place]], chosen: str, table: PictureTable, width: float
) -> str:
    """A line for each configuration through its paces."""
    height = 420.0 if width > 560 else 380.0
    drawing = Drawing(
        width=width,
        height=height,
        title="Share of what the data sheets allow, against requests in flight",
        description=f"{plural(len(curves), 'configuration')} at several paces each",
    )
    items: list[tuple[str, str, int | str]] = [
        (f"chosen: {name}" if name == chosen else name, f"mark f-{_css(at)}", at % SERIES)
        for at, name in enumerate(curves)
        if at < SERIES
    ]
    if len(curves) > SERIES:
        items.append((f"{len(curves) - SERIES} more", "mark f-other", 0))
    top = legend(drawing, items, width) + 24
    places = [place for of in curves.values() for place in of]
    up = fitted_scale([place.percent for place in places], height - 48, top, spread_for_log=50, floor=True)
    ticks = number_ticks(up, 6)
    plot = Box(left_margin(ticks), top, width - 16, height - 48)
    across = fitted_scale([place.users for place in places], plot.left, plot.right, spread_for_log=12, floor=True)
    suffix = " (logarithmic)"
    axes(
        drawing,
        plot,
        across=(
            across,
            number_ticks(across, 6 if width > 560 else 4),
            "requests in flight on a node" + suffix * across.log,
        ),
        up=(up, ticks, "% of what the data sheets allow" + suffix * up.log),
    )
    row = 0
    for at, (name, of) in enumerate(curves.items()):
        drawn = [(across(place.users), up(place.percent)) for place in of]
        if len(drawn) > 1:
            drawing.line(drawn, f"l-{_css(at)}" if name == chosen else f"w-{_css(at)}")
        for x, y in drawn:
            drawing.mark(at if at < SERIES else 0, x, y, f"mark f-{_css(at)}", table.hover(row))
            row += 1
    origin_mark(drawing, record, height, left_out=table.note)
    return drawing.render()


def _css(at: int) -> str:
    return f"s{at}" if at < SERIES else "other"
