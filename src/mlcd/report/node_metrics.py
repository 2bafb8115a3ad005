"""What the cloud's own monitoring measured on the nodes of trials and trainings, as text and as a section of a page."""

from mlcd.report.page import Cell, Column, PagePart, Table, TableRow
from mlcd.report.text import Item, Line, Rows
from mlcd.report.thinning import MOST_LINES, MOST_ROWS, ends, left_out_text
from mlcd.run.run import SearchRun
from mlcd.trial.markets import with_markets
from mlcd.trial.node_metrics import NodeMetrics
from mlcd.trial.trial import Measurement

_NOUN = "steps with node metrics"
_HEADS = ("CPU", "received", "sent", "GPU", "GPU memory")


def metrics_text(record: SearchRun) -> list[Item]:
    """A table with a row for each trial and training that has node metrics, and the share of the peak that is used.

    Empty if nothing is known.
    """
    found = _found(record)
    flops = flops_text(record)
    share: list[Item] = [Line(flops, is_wrapped=True)] if flops else []
    if not found:
        return share
    heads = _known_heads(found)
    rows = [[f"Per node, by {_sources(found)}", *heads]]
    rows += [[f"  {label}", *(_cells(metrics)[head] for head in heads)] for label, metrics in ends(found, MOST_LINES)]
    items: list[Item] = [Rows(rows=rows, align=f"<{'>' * len(heads)}")]
    if text := left_out_text(len(found), MOST_LINES, _NOUN, record.run_id):
        items.append(Line(f"  {text}", is_wrapped=True))
    return [*items, *share]


def flops_text(record: SearchRun) -> str:
    """How much of the machines' peak the choice's trial reached; "" where the model is not described."""
    choice = record.choice
    if choice is None or choice.config not in record.problem.space:
        return ""
    known = with_markets(record.problem, record.history).measured
    speeds = [trial.samples_per_second for trial in known if trial.config == choice.config]
    share = record.problem.flops_share(choice.config, speeds[-1]) if speeds else None
    return "" if share is None else f"Model FLOPs utilisation of the choice: {share:.1%} of the peak by data sheets"


def metrics_table(record: SearchRun) -> Table:
    """The same as a section of a page; without rows if nothing has node metrics."""
    found = _found(record)
    heads = _known_heads(found)
    rows = [
        TableRow(cells=[Cell.head(PagePart(label)), *(Cell.of(_cells(metrics)[head], "n", head) for head in heads)])
        for label, metrics in ends(found, MOST_ROWS)
    ]
    text = left_out_text(len(found), MOST_ROWS, _NOUN, record.run_id)
    return Table(
        title="What the cloud measured on the nodes",
        note=" ".join(
            filter(
                None,
                (
                    f"Means per node by {_sources(found)}, as far as it had reported when the nodes were released.",
                    flops_text(record),
                ),
            )
        ),
        columns=[Column("Step"), *(Column(head[:1].upper() + head[1:], True) for head in heads)],
        rows=rows,
        stacks=True,
        after=[text] if text else [],
    )


def bytes_text(count: float) -> str:
    """`950 B`, `1.2 MB`, `34 GB`, in powers of 1,000: one decimal below 10, none from there on."""
    size, unit = count, "B"
    for larger in ("kB", "MB", "GB", "TB", "PB"):
        if round(size) < 1000:
            break
        size, unit = size / 1000, larger
    return f"{size:.1f} {unit}" if unit != "B" and size < 9.95 else f"{round(size):,} {unit}"


def _found(record: SearchRun) -> list[tuple[str, NodeMetrics]]:
    """(step in words, its node metrics), in order."""
    found = [
        (f"trial {step.number}: {step.trial.config}", step.trial.node_metrics)
        for step in record.trials
        if isinstance(step.trial, Measurement)
    ]
    found += [(f"training: {attempt.config}", attempt.node_metrics) for attempt in record.attempts]
    return [(label, metrics) for label, metrics in found if metrics is not None]


def _sources(found: list[tuple[str, NodeMetrics]]) -> str:
    return ", ".join(sorted({metrics.source for _, metrics in found}))


def _cells(metrics: NodeMetrics) -> dict[str, str]:
    """The text of each column, `-` for what is not known."""
    percents = {"CPU": metrics.cpu_percent, "GPU": metrics.gpu_percent}
    sizes = {"received": metrics.received_bytes, "sent": metrics.sent_bytes}
    gib = metrics.gpu_memory_gib
    return {
        **{head: "-" if value is None else f"{value:.0f}%" for head, value in percents.items()},
        **{head: "-" if value is None else bytes_text(value) for head, value in sizes.items()},
        "GPU memory": "-" if gib is None else f"{gib:.1f} GiB",
    }


def _known_heads(found: list[tuple[str, NodeMetrics]]) -> tuple[str, ...]:
    """The columns of which something is known."""
    return tuple(head for head in _HEADS if any(_cells(metrics)[head] != "-" for _, metrics in found))
