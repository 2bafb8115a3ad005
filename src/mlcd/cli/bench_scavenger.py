from pathlib import Path
from typing import TYPE_CHECKING

import click

from mlcd.cli.output import output_option, print_json, table

if TYPE_CHECKING:
    from mlcd.bench.scavenger.score import Row, Summary


@click.command()
@click.option(
    "--tables",
    type=click.Path(path_type=Path),
    metavar="DIR",
    required=True,
    help="Measured trainings, a folder a model with steps.csv and convergence.csv.",
)
@click.option("--models", default="", metavar="A,B", help="Only these; the others still lend their coefficients.")
@click.option("--modes", default="full,partial,universal,goodput", metavar="A,B", help="Also: universal-blind.")
@output_option
def scavenger(tables: Path, models: str, modes: str, output: str) -> None:
    """How well time and cost over cluster and batch are predicted, mode by mode.

    Errors are over the configurations that a mode did not see; regret is what its choice loses against the best.
    """
    from mlcd.bench.case import is_unseen
    from mlcd.bench.scavenger.score import as_json, score, summarise
    from mlcd.bench.scavenger.truth import load_truths

    rows = score(load_truths(tables), models=_names(models), modes=_names(modes))
    if output == "json":
        print_json(as_json(rows))
        return
    click.echo(_rows_table(rows))
    click.echo("\nMedian over models:")
    click.echo(_summary_table(summarise(rows)))
    held_out = [row for row in rows if is_unseen(row.model)]
    if held_out and len(held_out) < len(rows):
        click.echo("\nThe models whose sha256(name) is even, apart:")
        click.echo(_summary_table(summarise(held_out)))
    click.echo("\nReplayed from measured tables: nothing was run.")


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _rows_table(rows: "list[Row]") -> str:
    head = ["model", "mode", "step", "iterations", "time", "cost"]
    lines = [[*head, "regret: time", "cost", "knee", "overhead"]]
    for r in rows:
        errors = (r.step_mape, r.iterations_mape, r.time_mape, r.cost_mape)
        regrets = (r.regret_time, r.regret_cost, r.regret_knee, r.overhead)
        lines.append([r.model, r.mode, *(f"{value:.1%}" for value in (*errors, *regrets))])
    return table(lines, "<<>>>>>>>>")


def _summary_table(summaries: "list[Summary]") -> str:
    lines = [["mode", "time", "cost", "regret: time", "cost", "overhead"]]
    for s in summaries:
        errors = (s.median_time_mape, s.median_cost_mape)
        values = (*errors, s.median_regret_time, s.median_regret_cost, s.median_overhead)
        lines.append([s.mode, *(f"{value:.1%}" for value in values)])
    return table(lines, "<>>>>>")
