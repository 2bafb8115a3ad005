"""A served model's operators with their shares of its time, and the known models that it resembles."""

from functools import partial

from mlcd.known.resemblance import Resemblance
from mlcd.report.frame import legend, origin_mark
from mlcd.report.labels import Box, text_width
from mlcd.report.picture import Picture, PictureTable, table_of
from mlcd.report.svg import Drawing
from mlcd.report.ticks import Scale
from mlcd.report.wording import shortened
from mlcd.run.run import SearchRun

_BAR = 22.0


def operators(record: SearchRun) -> Picture | None:
    """Bars of operators and of models; None if nothing was known of the model in advance."""
    alike = record.serving.resemblance if record.serving else None
    if alike is None or not (alike.operators or alike.nearest):
        return None
    table = _table(alike)
    return Picture(
        name="operators",
        title="Operators, and models like it",
        description=f"Where the model spends its time, by operator, and how much it resembles models that were measured"
        f" before ({alike.source}). {alike.covered:.0%} of its time is in operators that were measured: {alike.word}.",
        table=table,
        draw=partial(_svg, record, alike, table),
    )


def _table(alike: Resemblance) -> PictureTable:
    rows = [
        ["operator", name, f"{share:.1%} of its time", "measured before" if seen else "never measured before"]
        for name, share, seen in alike.operators
    ]
    rows += [["known model", name, f"{share:.0%} alike", alike.source] for name, share in alike.nearest]
    return table_of("what|name|>share|known", rows)


def _svg(record: SearchRun, alike: Resemblance, table: PictureTable, width: float) -> str:
    counts = len(alike.operators), len(alike.nearest)
    height = 78.0 + _BAR * sum(counts) + 30 * sum(count > 0 for count in counts)
    drawing = Drawing(
        width=width,
        height=height,
        title="Operators by their share of the model's time, and known models by their resemblance",
        description="; ".join(f"{name} {share:.0%}" for name, share, _ in alike.operators[:5])
        + ". Nearest: "
        + "; ".join(f"{name} {share:.0%}" for name, share in alike.nearest),
    )
    items: list[tuple[str, str, int | str]] = []
    if any(seen for _, _, seen in alike.operators):
        items.append(("measured before", "c-s0", "box"))
    if any(not seen for _, _, seen in alike.operators):
        items.append(("never measured before", "foreseen", "box"))
    if alike.nearest:
        items.append(("known model", "c-s2", "box"))
    y = legend(drawing, items, width) + 8
    names = [*(name for name, _, _ in alike.operators), *(name for name, _ in alike.nearest)]
    left = min(width * 0.36, 12 + max(text_width(name, 11) for name in names))
    most = max((share for _, share, _ in alike.operators), default=1.0) or 1.0
    bars = [(n, share / most, f"{share:.1%}", "c-s0" if seen else "foreseen") for n, share, seen in alike.operators]
    groups = [("share of its time", bars)] if bars else []
    groups.append(("alike", [(name, share, f"{share:.0%}", "c-s2") for name, share in alike.nearest]))
    row = 0
    for title, group in groups:
        if not group:
            continue
        drawing.text(left + 2, y + 14, title, "muted", size=11)
        y += 22
        across = Scale(low=0.0, high=1.0, start=left, end=width - 60)
        for name, share, text, css in group:
            shown = name if text_width(name, 11) <= left - 10 else shortened(name, max(6, int((left - 10) / 6.6)))
            drawing.text(left - 6, y + _BAR / 2 + 4, shown, "muted", anchor="end", size=11)
            bar = Box(left, y + 3, max(across(min(share, 1.0)), left + 1), y + _BAR - 3)
            drawing.rect(bar, css, table.hover(row))
            drawing.text(bar.right + 6, y + _BAR / 2 + 4, text, size=11)
            y, row = y + _BAR, row + 1
        y += 8
    origin_mark(drawing, record, height)
    return drawing.render()
