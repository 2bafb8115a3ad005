"""A training on functions as one HTML file: how it ended, the pictures, every epoch, the receipt. Works offline."""

from mlcd.report.decisions import decisions, decisions_note
from mlcd.report.origin import origin
from mlcd.report.page import Cell, Page, Table, plain_table, render
from mlcd.report.pictures import pictures_of
from mlcd.report.receipt_lines import receipt_table, serverless_lines
from mlcd.report.serverless import epoch_cells, goal_text, headline, instances_text, model_text, ways_out
from mlcd.report.thinning import MOST_ROWS, ends, left_out_text
from mlcd.report.wording import sentence
from mlcd.run.run import EpochRun
from mlcd.run.step import Step
from mlcd.trial.epoch import Epoch

_HEADS = ">epoch|>samples|>functions|>memory|>loss|>time|>money|>fetch|>compute|>update|>calls|>repeated"


def serverless_html(record: EpochRun, *, whole: bool = True) -> str:
    """The page, or what is inside it (see `render`): no script, nothing loaded from elsewhere, every value escaped."""
    word, meaning = origin(record)
    page = Page(
        name=record.problem.name,
        run_id=record.run_id,
        created=record.created,
        asked=goal_text(record),
        answer=headline(record),
        footer=f"mlcd {record.version}",
        origin_word=word,
        origin_text=meaning,
        leads=[
            text
            for text in (sentence(record.stopped), *ways_out(record), model_text(record), instances_text(record))
            if text
        ],
    )
    return render(
        "tables.html.j2",
        page,
        whole=whole,
        pictures=pictures_of(record),
        decisions=decisions(record),
        decisions_note=decisions_note(record),
        tables=serverless_tables(record),
    )


def serverless_tables(record: EpochRun) -> list[Table]:
    """The tables of the page: the receipt, and every epoch."""
    tables = [receipt_table(serverless_lines(record))]
    if record.epoch_steps:
        rows = [_cells(row) for row in ends(record.epoch_steps, MOST_ROWS)]
        left_out = left_out_text(len(record.epoch_steps), MOST_ROWS, "epochs", record.run_id)
        tables.append(plain_table("Epochs", _HEADS, rows, after=[left_out] if left_out else []))
    return tables


def _cells(row: Step) -> list[str | Cell]:
    done = row.epoch
    start = epoch_cells(done)
    if not isinstance(done, Epoch):
        why = Cell.of(f"failed: {done.message}", "what")
        return [*start, why, f"{done.seconds:.1f} s", str(done.usd), "-", "-", "-", "-", "-"]
    phases = [f"{phase.mean_seconds:.2f} s" for phase in (done.fetch, done.compute, done.update)]
    counts = [str(done.calls), str(done.failed)]
    return [*start, f"{done.loss:.4f}", f"{done.seconds:.1f} s", str(done.usd), *phases, *counts]
