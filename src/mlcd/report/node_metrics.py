"""What the cloud's own monitoring measured on the nodes of trials and trainings, as text and as a section of a page."""

from mlcd.report.page import Cell, Column, PagePart, Table, TableRow
from mlcd.report.text import Item, Line, Rows
from mlcd.report.thinning import MOST_LINES, MOST_ROWS, ends, left_out_text
from mlcd.run.run import SearchRun
from mlcd.trial.node_metrics import NodeMetrics
from mlcd.trial.trial import Measurement

_NOUN = "steps with node metrics"
_HEADS = ("CPU", "received", "sent")


def metrics_text(record: SearchRun) -> list[Item]:
    """A table with a row for each trial and training that has node metrics; empty if none has."""
    found = _found(record)
    if not found:
        return []
    rows = [[f"Per node, by {_sources(found)}", *_HEADS]]
    rows += [[f"  {label}", *_cells(metrics)] for label, metrics in ends(found, MOST_LINES)]
    items: list[Item] = [Rows(rows=rows, align="<>>>")]
    if text := left_out_text(len(found), MOST_LINES, _NOUN, record.run_id):
        items.append(Line(f"  {text}", is_wrapped=True))
    return items


def metrics_table(record: SearchRun) -> Table:
    """The same as a section of a page; without rows if nothing has node metrics."""
    found = _found(record)
    rows = [
        TableRow(cells=[Cell.head(PagePart(label)), *(Cell.of(text, "n", head) for head, text in _labelled(metrics))])
        for label, metrics in ends(found, MOST_ROWS)
    ]
    text = left_out_text(len(found), MOST_ROWS, _NOUN, record.run_id)
    return Table(
        title="What the cloud measured on the nodes",
        note=f"Means per node by {_sources(found)}, as far as it had reported when the nodes were released.",
        columns=[Column("Step"), *(Column(head[:1].upper() + head[1:], True) for head in _HEADS)],
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


def _cells(metrics: NodeMetrics) -> list[str]:
    cpu = "-" if metrics.cpu_percent is None else f"{metrics.cpu_percent:.0f}%"
    return [cpu, *("-" if n is None else bytes_text(n) for n in (metrics.received_bytes, metrics.sent_bytes))]


def _labelled(metrics: NodeMetrics) -> list[tuple[str, str]]:
    return list(zip(_HEADS, _cells(metrics), strict=True))
