"""Money over trials: spent, reserved for the training, and the cap, as stacked steps."""

from mlcd.report.frame import axes, empty, left_margin, legend, origin_mark
from mlcd.report.labels import Box, text_width
from mlcd.report.svg import Drawing
from mlcd.report.thinning import drawn_text, thinned
from mlcd.report.ticks import Scale, Tick, money_ticks
from mlcd.report.wording import plural
from mlcd.run.run import SearchRun
from mlcd.trial.trial import Failure

_FAR_CAP_FACTOR = 4.0  # a cap this many times above the spending would flatten the picture


def money_picture(record: SearchRun, width: float) -> str:
    """The SVG: one step per trial, then the training itself. A long run is thinned."""
    height = 340.0
    paid, cap = record.train_findings.receipt, record.problem.goal.budget
    predicted = " (predicted)" if paid.run_is_predicted else ""
    drawing = Drawing(
        key=f"money-{width:.0f}",
        width=width,
        height=height,
        title="Money spent and reserved after each trial",
        description=f"The search took {paid.search_usd}"
        + (f", the training {paid.run_usd}{predicted}" if paid.run_usd is not None else "")
        + (f"; the cap is {cap}." if cap is not None else "; there is no cap."),
    )
    steps = record.train_findings.account
    if not steps:
        empty(drawing, width, height, "No trial was run.")
        return drawing.render()
    items: list[tuple[str, str, int | str]] = [("spent on trials", "spent", "box")]
    if any(step.reserved.micros for step in steps):
        items.append(("reserved for the training", "kept", "box"))
    if paid.run_usd is not None:
        items.append(
            ("training, predicted", "run-predicted", "box")
            if paid.run_is_predicted
            else (f"training{', failed' * paid.run_failed}", "run", "box")
        )
    if paid.earlier:
        items.append(("restarted training", "muted", "box"))
    highest = max(*((step.spent + step.reserved).dollars for step in steps), paid.total_usd.dollars, 1e-6)
    far = cap is not None and cap.dollars > _FAR_CAP_FACTOR * highest
    if cap is not None:
        items.append((f"cap {cap}{', far above' if far else ''}", "limit", "line"))
        highest = highest if far else max(highest, cap.dollars)
    if record.history.failures:
        items.append(("failed trial", "x-other", "cross"))
    top = legend(drawing, items, width) + 24
    up = Scale(low=0.0, high=highest * 1.06, start=height - 48, end=top)
    ticks = money_ticks(up, 6)
    plot = Box(left_margin(ticks), top, width - 12, height - 48)
    _steps(drawing, record, plot, up, ticks)
    if cap is not None and not far:
        drawing.line([(plot.left, up(cap.dollars)), (plot.right, up(cap.dollars))], "limit")
    drawn = len(thinned(steps))
    origin_mark(drawing, record, height, left_out=drawn_text(drawn, len(steps), "trials"))
    return drawing.render()


def _steps(drawing: Drawing, record: SearchRun, plot: Box, up: Scale, up_ticks: tuple[Tick, ...]) -> None:
    paid = record.train_findings.receipt
    pairs = thinned(list(zip(record.train_findings.account, record.trials, strict=True)))
    steps = [step for step, _ in pairs]
    runs = paid.run_usd is not None or bool(paid.earlier)
    bands = len(steps) + (1.6 if runs else 0)
    across = Scale(low=0.0, high=bands, start=plot.left, end=plot.right)
    each = (plot.right - plot.left) / bands
    every = max(1, round(text_width(str(len(steps)), 11) * 1.7 / each + 0.5)) if steps else 1
    ticks = [(at + 0.5, str(step.trial)) for at, step in enumerate(steps) if at % every == 0]
    if runs:
        ticks.append((len(steps) + 0.8, "training" if each > 34 else "run"))
    axes(drawing, plot, across=(across, (), "trial"), up=(up, up_ticks, "USD"))
    base = up(0.0)
    spent, kept = [(plot.left, base)], [(plot.left, base)]
    for at, step in enumerate(steps):
        left, right = across(at), across(at + 1)
        y, z = up(step.spent.dollars), up((step.spent + step.reserved).dollars)
        spent += [(left, y), (right, y)]
        kept += [(left, z), (right, z)]
    end = across(len(steps))
    drawing.area([*kept, (end, base)], "kept")
    if runs:
        end, spent = plot.right, [*spent, (plot.right, spent[-1][1])]
    drawing.area([*spent, (end, base)], "spent")
    if paid.run_usd is not None:
        base_usd = paid.sunk_usd
        css = "run-predicted" if paid.run_is_predicted else "run"
        words = "is predicted to cost" if paid.run_is_predicted else "failed, at" if paid.run_failed else "took"
        title = f"The training {words} {paid.run_usd}: {paid.total_usd} in all"
        left, low, high = across(len(steps)), up(base_usd.dollars), up(paid.total_usd.dollars)
        drawing.rect(Box(left, high, plot.right, low), css, title)
    if paid.earlier:
        left, low, high = across(len(steps)), up(paid.search_usd.dollars), up(paid.sunk_usd.dollars)
        title = f"{plural(len(paid.earlier), 'restarted training')}: {paid.sunk_usd - paid.search_usd}"
        drawing.rect(Box(left, high, plot.right, low), "muted", title)
    cap = record.problem.goal.budget
    for at, (step, row) in enumerate(pairs):
        free = "" if cap is None else f", free {cap - step.spent - step.reserved}"
        best = f"\nbest so far: {step.incumbent.config}" if step.incumbent else "\nnothing measured fits yet"
        title = f"After trial {step.trial} ({row.trial.config}, {row.trial.usd}):\nspent {step.spent}"
        title += f", reserved {step.reserved}{free}{best}"
        drawing.rect(Box(across(at), plot.top, across(at + 1), base), "touch", title)
        if isinstance(row.trial, Failure):
            drawing.cross(
                across(at + 0.5), plot.top - 9, "x-other", f"Trial {row.number}: {row.trial.kind}", radius=3.5
            )
    axes(drawing, plot, across=(across, ticks, ""), up=(up, (), ""))
