from pathlib import Path
from typing import TYPE_CHECKING

import click

from mlcd.cli.output import FilePath, output_option, print_json, table

if TYPE_CHECKING:
    from mlcd.bench.scavenger.score import ScavengerRow, ScavengerSummary


@click.command()
@click.option(
    "--tables",
    type=FilePath(),
    metavar="DIR",
    required=True,
    help="Measured trainings: one folder per model with steps.csv and convergence.csv.",
)
@click.option(
    "--models", default="", metavar="A,B", help="Only these models; the others are earlier runs for universal."
)
@click.option(
    "--modes", default="full,partial,universal,goodput", metavar="A,B", help="Modes of scavenger-MODE to compare."
)
@click.option(
    "--jobs",
    type=click.IntRange(-1, 1024),
    default=-1,
    help="Processes; -1: one per core. More than one needs mlcd[bench].",
)
@output_option
def scavenger(tables: Path, models: str, modes: str, jobs: int, output: str) -> None:
    """Compare the modes of `mlcd train` with an open batch on measured trainings.

    Trials are paid and continue the training. Errors are those of the predictions for untried configurations; regret is
    the loss of the training against the best; total is all time / the time of the best training.
    """
    from mlcd.bench.case import is_unseen
    from mlcd.bench.scavenger.score import as_json, score, summarise
    from mlcd.bench.scavenger.truth import load_truths

    rows = score(load_truths(tables), models=_names(models), modes=_names(modes), jobs=jobs)
    if output == "json":
        print_json(as_json(rows))
        return
    click.echo(_rows_table(rows))
    click.echo("\nMedian over models:")
    click.echo(_summary_table(summarise(rows)))
    held_out = [row for row in rows if is_unseen(row.model)]
    if held_out and len(held_out) < len(rows):
        click.echo("\nThe held-out models (sha256(name) is even):")
        click.echo(_summary_table(summarise(held_out)))
    click.echo("\nReplayed from measured tables: nothing was run.")


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _rows_table(rows: "list[ScavengerRow]") -> str:
    head = ["model", "mode", "trials", "moves", "step", "iterations", "time"]
    lines = [[*head, "regret: time", "cost", "knee", "overhead", "total"]]
    for r in rows:
        values = (r.step_mape, r.iterations_mape, r.time_mape, r.regret_time, r.regret_cost, r.regret_knee, r.overhead)
        counts = (str(r.trials), str(r.restarts))
        lines.append([r.model, r.mode, *counts, *(_percent(value) for value in values), f"{r.total_ratio:.2f}"])
    return table(lines, "<<>>>>>>>>>>")


def _summary_table(summaries: "list[ScavengerSummary]") -> str:
    lines = [["mode", "time", "regret: time", "cost", "overhead", "total"]]
    for s in summaries:
        values = (s.median_time_mape, s.median_regret_time, s.median_regret_cost, s.median_overhead)
        lines.append([s.mode, *(_percent(value) for value in values), f"{s.median_total_ratio:.2f}"])
    return table(lines, "<>>>>>")


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
