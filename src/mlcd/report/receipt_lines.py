"""The lines of a receipt, for runs of every kind; text and HTML show the same ones."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mlcd.report.page import Cell, Column, PagePart, Table, TableRow
from mlcd.report.text import Rows
from mlcd.report.thinning import MOST_NAMED
from mlcd.report.wording import plural, restart_text, sentence
from mlcd.run.attempt import Attempt, Ending
from mlcd.run.findings import Receipt
from mlcd.run.run import EpochRun, SearchRun
from mlcd.units import Usd, format_seconds

_PAGE_WORDS = {"run": "training"}  # first word of a line -> its word on a page


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptLine:
    """One line; None where it has no time or no money.

    is_sum   whether it adds up the lines above it
    is_part  whether it is contained in the line above it
    """

    label: str
    seconds: float | None
    usd: Usd | None
    is_sum: bool = False
    is_part: bool = False

    def cells(self, missing: str = "-") -> list[str]:
        """Label, time and money as text."""
        time = missing if self.seconds is None else format_seconds(self.seconds)
        return [f"  {self.label}" if self.is_part else self.label, time, missing if self.usd is None else str(self.usd)]


def train_lines(paid: Receipt, *, is_final: bool) -> list[ReceiptLine]:
    """Search, restarted trainings, the training, their total, and what remains of the limits.

    Before a training that is only predicted, what was paid so far.
    """
    lines = [_line(_search(paid, "trial"), paid.search_seconds, paid.search_usd)]
    lines += [_line(f"training {restart_text(run)}", run.seconds, run.usd) for run in paid.earlier[:MOST_NAMED]]
    lines += _further(paid.earlier[MOST_NAMED:], "restarted training")
    word = " (predicted)" if paid.run_is_predicted else ""
    if paid.run_is_predicted:
        lines.append(_total(paid.sunk_seconds, paid.sunk_usd, is_final=False))
    if paid.run_seconds is not None:
        lines.append(_line(f"run{word or ' (failed)' * paid.run_failed}", paid.run_seconds, paid.run_usd))
    if paid.beside_seconds > 0:
        label = "of which beside the search, counted once"
        lines.append(ReceiptLine(label=label, seconds=paid.beside_seconds, usd=None, is_part=True))
    if paid.data_usd > 0:
        label = "of which for bringing data to the nodes"
        lines.append(ReceiptLine(label=label, seconds=None, usd=paid.data_usd, is_part=True))
    spot = paid.spot
    if spot is not None and spot.interruptions:
        label = f"of which lost to {plural(spot.interruptions, 'interruption')} of spot nodes"
        lines.append(ReceiptLine(label=label, seconds=spot.lost_seconds, usd=spot.lost_usd, is_part=True))
    if paid.run_is_predicted:
        lines.append(_line("total (predicted)", paid.total_seconds, paid.total_usd, is_sum=True))
    else:
        lines.append(_total(paid.total_seconds, paid.total_usd, is_final=is_final))
        if spot is not None:
            label = "the same on demand, without interruptions"
            lines.append(ReceiptLine(label=label, seconds=spot.on_demand_seconds, usd=spot.on_demand_usd, is_part=True))
    return lines + _limits((paid.cap_seconds, paid.cap_usd), (paid.left_seconds, paid.left_usd), label=f"left{word}")


def serving_lines(record: SearchRun) -> list[ReceiptLine]:
    """Search, verifications, their total, and what remains of the limits."""
    paid = record.serve_findings.receipt
    lines = [_line(_search(paid, "load test"), paid.search_seconds, paid.search_usd)]
    for run in paid.earlier[:MOST_NAMED]:
        word = "failed" if run.ending is Ending.MOVED else restart_text(run)
        label = f"verification of {run.config}, {word}"
        if run.ending is Ending.MOVED and record.choice is not None and run.config == record.choice.config:
            label = f"verification, failed: {run.message.partition(', over the ')[0]}"  # at a higher rate
        lines.append(_line(label, run.seconds, run.usd))
    lines += _further(paid.earlier[MOST_NAMED:], "unfinished verification")
    if paid.run_seconds is not None:
        lines.append(_line("verification", paid.run_seconds, paid.run_usd))
    lines.append(_total(paid.total_seconds, paid.total_usd, is_final=record.status.is_final))
    return lines + _limits((paid.cap_seconds, paid.cap_usd), (paid.left_seconds, paid.left_usd))


def serverless_lines(record: EpochRun) -> list[ReceiptLine]:
    """The epochs, the failed part of them, the total with the time between them, and what remains of the limits."""
    paid = record.serverless_findings.receipt
    lines = [_line("training", paid.training_seconds, paid.total_usd)]
    if record.failed_epochs:
        label = "of which failed"
        lines.append(ReceiptLine(label=label, seconds=paid.failed_seconds, usd=paid.failed_usd, is_part=True))
    lines.append(_total(paid.elapsed_seconds, paid.total_usd, is_final=record.status.is_final))
    deadline = record.problem.goal.deadline_seconds
    left = None if deadline is None else deadline - paid.elapsed_seconds
    return lines + _limits((deadline, paid.cap_usd), (left, paid.left_usd))


def receipt_rows(lines: Sequence[ReceiptLine]) -> Rows:
    """The receipt as a table of text."""
    rows = [["Receipt", "time", "money"]]
    for line in lines:
        label, time, usd = line.cells()
        rows.append([f"  {label}", time, usd])
    return Rows(rows=rows, align="<>>")


def receipt_table(lines: Sequence[ReceiptLine], note: str = "") -> Table:
    """The receipt as a section of a page."""
    rows = [_row(line) for line in lines]
    columns = (Column(""), Column("Time", True), Column("Money", True))
    return Table(title="Receipt", note=note, columns=columns, rows=rows)


def _row(line: ReceiptLine) -> TableRow:
    _, time, usd = line.cells(missing="")
    first, space, rest = line.label.partition(" ")
    label = f"{_PAGE_WORDS.get(first, first)}{space}{rest}"
    head = Cell.head(PagePart(sentence(label), "dim" if line.is_part else ""))
    return TableRow(cells=[head, Cell.of(time, "n"), Cell.of(usd, "n")], css="sum" if line.is_sum else "")


def _line(label: str, seconds: float | None, usd: Usd | None, *, is_sum: bool = False) -> ReceiptLine:
    return ReceiptLine(label=label, seconds=seconds, usd=usd, is_sum=is_sum)


def _limits(
    cap: tuple[float | None, Usd | None], left: tuple[float | None, Usd | None], *, label: str = "left"
) -> list[ReceiptLine]:
    """(time, money) of the limits and what remains of them; nothing without limits."""
    if cap == (None, None):
        return []
    return [_line("cap", *cap), _line(label, *left, is_sum=True)]


def _further(attempts: Sequence[Attempt], noun: str) -> list[ReceiptLine]:
    """The attempts that have no line of their own, as one sum."""
    if not attempts:
        return []
    usd = Usd(sum(attempt.usd.micros for attempt in attempts))
    return [_line(f"{len(attempts):,} more {noun}s", math.fsum(attempt.seconds for attempt in attempts), usd)]


def _search(paid: Receipt, noun: str) -> str:
    parts = [plural(paid.trials, noun), *[f"{paid.failed} failed"] * bool(paid.failed)]
    parts += [f"{paid.interrupted} interrupted"] * bool(paid.interrupted)
    return f"search ({', '.join(parts)})"


def _total(seconds: float, usd: Usd, *, is_final: bool) -> ReceiptLine:
    return _line("total" if is_final else "so far", seconds, usd, is_sum=True)
