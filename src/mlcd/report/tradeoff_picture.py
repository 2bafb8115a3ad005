"""Time against cost of every measured deployment: the Pareto front, the limits, and the choice."""

from functools import partial
from itertools import pairwise

from mlcd.report.frame import Plane, axes, curve_of, empty, left_margin, legend, legend_items, origin_mark, series
from mlcd.report.labels import Box, Label, place
from mlcd.report.picture import Picture, PictureTable, table_of
from mlcd.report.svg import Drawing
from mlcd.report.thinning import MOST_LABELS, MOST_MARKS, drawn_text, listed, thinned
from mlcd.report.ticks import Scale, fitted_scale, money_ticks, time_ticks
from mlcd.report.wording import plural
from mlcd.run.findings import Untried, best_expected
from mlcd.run.run import SearchRun
from mlcd.space import Config
from mlcd.trial.plan import Plan
from mlcd.units import Usd, format_seconds

MOST_TYPES = 8
"""Types without a trial whose best is drawn."""
_FAR_LIMIT_FACTOR = 4.0  # a limit this many times beyond all deployments is named but not drawn


def tradeoff(record: SearchRun) -> Picture:
    """Time against cost. A long run is thinned, in the table too."""
    table = _table(record)
    return Picture(
        name="tradeoff",
        title="Time against cost",
        description="What the whole training takes on each measured deployment, and on the best that is predicted"
        " of a type without a trial. No other measured deployment is both faster and cheaper than one on the front; at"
        " the knee, time x cost is least. Whiskers reach to the upper bound.",
        table=table,
        draw=partial(_svg, record, table),
    )


def _front_drawn(record: SearchRun) -> tuple[Plan, ...]:
    return tuple(thinned(record.train_findings.pareto, MOST_MARKS // 4))


def _plans(record: SearchRun) -> tuple[Plan, ...]:
    """The measured deployments in the picture."""
    kept = {plan.config for plan in _front_drawn(record)} | ({record.choice.config} if record.choice else set())
    return tuple(thinned(record.train_findings.measured, keep=lambda plan: plan.config in kept))


def _untried(record: SearchRun) -> tuple[Plan, ...]:
    """What was only predicted: the best of each type without a trial, naive choices, and a choice without a trial."""
    measured = {plan.config for plan in record.train_findings.measured}
    tried = record.history.tried
    plans = _best_of_types(record, {config.instance for config in tried})
    of_types = {config.instance for config in plans}
    naive = [n.plan for n in record.naive if n.plan.config not in tried and n.plan.config.instance not in of_types]
    plans |= {plan.config: plan for plan in naive}
    if record.choice and record.choice.config not in measured:
        plans.setdefault(record.choice.config, record.choice)
    return tuple(plans.values())


def _best_of_types(record: SearchRun, tried: set[str]) -> dict[Config, Plan]:
    """Of each of a few types without a trial, the best that the model expects: the one that the reasons name."""
    types: dict[str, list[Untried]] = {}
    for each in record.train_findings.untried:
        if each.config.instance not in tried:
            types.setdefault(each.config.instance, []).append(each)
    best = [best_expected(record.problem.goal, entries) for entries in types.values()]
    return {
        b.config: Plan(config=b.config, seconds=b.seconds, usd=b.usd, worst_seconds=b.seconds, worst_usd=b.usd)
        for b in best[:MOST_TYPES]
        if b is not None and b.seconds is not None and b.usd is not None
    }


def _knee(record: SearchRun) -> Plan | None:
    """The plan of the front with the least time x cost; None if there is no front to have one."""
    front = record.train_findings.pareto
    return min(front, key=lambda plan: plan.seconds * plan.usd.dollars) if len(front) > 2 else None


def _table(record: SearchRun) -> PictureTable:
    plans, knee = _plans(record), _knee(record)
    front = {plan.config for plan in record.train_findings.pareto}
    rows = []
    for at, plan in enumerate((*plans, *_untried(record))):
        is_measured = at < len(plans)
        words = ["measured" if is_measured else "not tried: predicted"]
        words += ["on the front"] * (plan.config in front) + ["the knee"] * (plan == knee)
        words += ["chosen"] * (record.choice is not None and plan.config == record.choice.config)
        amounts = [format_seconds(plan.seconds), str(plan.usd)]
        worst = [format_seconds(plan.worst_seconds), str(plan.worst_usd)] if is_measured else ["", ""]
        rows.append([str(plan.config), *amounts, *worst, ", ".join(words)])
    note = drawn_text(len(plans), len(record.train_findings.measured), "deployments")
    return table_of("deployment|>training time|>training cost|>time at most|>cost at most|what it is", rows, note=note)


def _svg(record: SearchRun, table: PictureTable, width: float) -> str:
    """Shaded areas are beyond the limits that remain after the search; whiskers reach to the upper bound."""
    height = 440.0 if width > 560 else 400.0
    found = record.train_findings
    front, plans, untried, knee = _front_drawn(record), _plans(record), _untried(record), _knee(record)
    drawing = Drawing(
        width=width,
        height=height,
        title="Training time against training cost of the measured deployments",
        description=f"{plural(len(found.measured), 'deployment')}; {len(found.pareto)} on the Pareto front: "
        + listed([f"{p.config} {format_seconds(p.seconds)} {p.usd}" for p in found.pareto], separator="; "),
    )
    if not plans:
        empty(drawing, width, height, "No deployment was measured.")
        return drawing.render()
    looks, usd_left, seconds_left = series(record), found.receipt.run_cap_usd, found.receipt.run_cap_seconds
    items = _items(record, usd_left, seconds_left)
    top = legend(drawing, items, width) + 24
    shown = (*plans, *untried)
    # The bounds of what was only predicted are not drawn: they may be thousands of times its value.
    monies = [p.usd.dollars for p in shown] + [p.worst_usd.dollars for p in plans]
    times = [p.seconds for p in shown] + [p.worst_seconds for p in plans]
    if usd_left is not None and 0 < usd_left.dollars < _FAR_LIMIT_FACTOR * max(monies):
        monies += [usd_left.dollars, usd_left.dollars * 1.15]
    if seconds_left is not None and 0 < seconds_left < _FAR_LIMIT_FACTOR * max(times):
        times += [seconds_left, seconds_left * 1.15]
    up = fitted_scale(monies, height - 48, top, spread_for_log=12, floor=False)
    up_ticks = money_ticks(up, 6)
    plot = Box(left_margin(up_ticks), top, width - 16, height - 48)
    across = fitted_scale(times, plot.left, plot.right, spread_for_log=12, floor=False)
    plane = Plane(plot=plot, across=across, up=up)
    _limits(drawing, plane, usd_left, seconds_left)
    suffix = " (logarithmic)"
    axes(
        drawing,
        plot,
        across=(across, time_ticks(across, 6 if width > 560 else 4), "training time" + suffix * across.log),
        up=(up, up_ticks, "training cost" + suffix * up.log),
    )
    steps = _front(front, across, up)
    if len(steps) > 1:
        drawing.line(steps, "front")
    for at, plan in enumerate(shown):
        x, y = across(plan.seconds), up(plan.usd.dollars)
        if at >= len(plans):
            drawing.circle(x, y, 5, "hollow", table.hover(at))
        else:
            look = looks[curve_of(record, plan.config)]
            drawing.line([(x, y), (across(plan.worst_seconds), up(plan.worst_usd.dollars))], f"w-{look.css}")
            drawing.mark(look.shape, x, y, f"mark f-{look.css}", table.hover(at))
        if plan == knee:
            drawing.mark(3, x, y, "knee", table.hover(at), radius=11)
        if record.choice and plan.config == record.choice.config:
            drawing.circle(x, y, 10, "ring", table.hover(at))
    _labels(drawing, record, shown, plane)
    origin_mark(drawing, record, height, left_out=drawn_text(len(plans), len(found.measured), "deployments"))
    return drawing.render()


def _items(record: SearchRun, usd_left: Usd | None, seconds_left: float | None) -> list[tuple[str, str, int | str]]:
    """The legend."""
    named = {curve_of(record, plan.config) for plan in _plans(record)}
    drawn = {name: look for name, look in series(record).items() if name in named}
    items: list[tuple[str, str, int | str]] = [
        (text, f"mark f-{look.css}", look.shape) for text, look in legend_items(drawn) if look
    ]
    items.append(("Pareto front", "front", "line"))
    if _untried(record):
        items.append(("not tried: predicted", "hollow", 0))
    if _knee(record) is not None:
        items.append(("knee", "knee", 3))
    if usd_left is not None:
        items.append((f"over the {usd_left} left for training", "limit", "line"))
    if seconds_left is not None:
        items.append((f"after the {format_seconds(seconds_left)} left", "limit", "line"))
    return items


def _limits(drawing: Drawing, plane: Plane, usd_left: Usd | None, seconds_left: float | None) -> None:
    plot, across, up = plane.plot, plane.across, plane.up
    if usd_left is not None:
        y = min(plot.bottom, max(plot.top, up(usd_left.dollars)))
        drawing.rect(Box(plot.left, plot.top, plot.right, y), "shade")
        if y > plot.top:
            drawing.line([(plot.left, y), (plot.right, y)], "limit")
    if seconds_left is not None:
        x = min(plot.right, max(plot.left, across(seconds_left)))
        drawing.rect(Box(x, plot.top, plot.right, plot.bottom), "shade")
        if x < plot.right:
            drawing.line([(x, plot.top), (x, plot.bottom)], "limit")


def _front(front: tuple[Plan, ...], across: Scale, up: Scale) -> list[tuple[float, float]]:
    points: list[tuple[float, float]] = []
    for plan in front:
        x, y = across(plan.seconds), up(plan.usd.dollars)
        if points:
            points.append((x, points[-1][1]))
        points.append((x, y))
    return points


def _labels(drawing: Drawing, record: SearchRun, shown: tuple[Plan, ...], plane: Plane) -> None:
    plot, across, up = plane.plot, plane.across, plane.up
    front = {plan.config for plan in record.train_findings.pareto}
    naive = {n.plan.config for n in record.naive}
    chosen = record.choice.config if record.choice else None

    def weight(plan: Plan) -> int:
        return (plan.config == chosen) * 4 + (plan.config in front) * 2 + (plan.config in naive)

    labels = []
    for plan in sorted(shown, key=weight, reverse=True)[:MOST_LABELS]:
        text = f"chosen: {plan.config}" if plan.config == chosen else str(plan.config)
        x, y = across(plan.seconds), up(plan.usd.dollars)
        size, gap = (12.5, 14.0) if plan.config == chosen else (11.0, 8.0)
        labels.append(Label(text=text, x=x, y=y, size=size, gap=gap, must=plan.config == chosen))
    marks = []
    for plan in shown:
        x, y, r = across(plan.seconds), up(plan.usd.dollars), 10 if plan.config == chosen else 5
        marks.append(Box(x - r, y - r, x + r, y + r))
    steps = _front(_front_drawn(record), across, up)
    marks += [Box(min(a, c) - 1, min(b, d) - 1, max(a, c) + 1, max(b, d) + 1) for (a, b), (c, d) in pairwise(steps)]
    for placed in place(labels, Box(plot.left + 2, plot.top, plot.right + 10, plot.bottom), marks):
        css = "halo chosen" if placed.label.size > 12 else "halo"
        drawing.text(placed.x, placed.y, placed.label.text, css, anchor="middle", size=placed.label.size)
