from pathlib import Path
from typing import TYPE_CHECKING

import click

from mlcd.cli.examples import examples
from mlcd.cli.output import FilePath, output_option, print_json, table

if TYPE_CHECKING:
    from mlcd.bench.scavenger.score import ScavengerRow, ScavengerSummary, Spread


@click.command(epilog=examples("mlcd bench scavenger --tables DIR --seeds 3"))
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
    "--seeds",
    type=click.IntRange(1, 1000),
    default=3,
    help="Runs of each model and mode, with other speeds, start times and gradients.",
)
@click.option(
    "--rule",
    type=click.Choice(["linear", "sqrt", "adascale", "fixed"]),
    default="adascale",
    help="learning_rate.rule of the jobs; it counts until the noise is measured.",
)
@click.option(
    "--known-length",
    is_flag=True,
    help="The job files have the true epochs at the smallest batch, not those that the scripts plan.",
)
@click.option(
    "--jobs",
    type=click.IntRange(-1, 1024),
    default=-1,
    help="Processes; -1: one per core. More than one needs joblib (extra `bench`).",
)
@output_option
def scavenger(
    *, tables: Path, models: str, modes: str, seeds: int, rule: str, known_length: bool, jobs: int, output: str
) -> None:
    """Compare the modes of `mlcd train` with an open batch on measured trainings.

    Trials are paid and continue the training. Errors are those of the predictions for untried configurations when the
    search ends; regret is the loss of the training from then on against the best, restarts included; total is all time
    / the time of the best training. Medians over models and seeds, quartiles in brackets.
    """
    from mlcd.bench.case import is_unseen
    from mlcd.bench.scavenger.score import as_json, score, summarise
    from mlcd.bench.scavenger.truth import load_truths
    from mlcd.spec.batches import RateRule

    rows = score(
        load_truths(tables),
        models=_names(models),
        modes=_names(modes),
        seeds=seeds,
        rule=RateRule(rule),
        known_length=known_length,
        jobs=jobs,
    )
    if output == "json":
        print_json(as_json(rows))
        return
    click.echo(_rows_table(rows))
    click.echo("\nMedian over models and seeds:")
    click.echo(_summary_table(summarise(rows)))
    held_out = [row for row in rows if is_unseen(row.model)]
    if held_out and len(held_out) < len(rows):
        click.echo("\nThe held-out models (sha256(name) is even):")
        click.echo(_summary_table(summarise(held_out)))
    click.echo("\nReplayed from measured tables: nothing was run.")


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _rows_table(rows: "list[ScavengerRow]") -> str:
    head = ["model", "mode", "seed", "trials", "moves", "done", "step", "iterations", "time"]
    lines = [[*head, "regret: time", "cost", "knee", "overhead", "total"]]
    for r in rows:
        values = (r.step_mape, r.iterations_mape, r.time_mape, r.regret_time, r.regret_cost, r.regret_knee, r.overhead)
        counts = (str(r.seed), str(r.trials), str(r.restarts), f"{r.done_share:.0%}")
        lines.append([r.model, r.mode, *counts, *(_percent(value) for value in values), f"{r.total_ratio:.2f}"])
    return table(lines, "<<>>>>>>>>>>>>")


def _summary_table(summaries: "list[ScavengerSummary]") -> str:
    lines = [["mode", "runs", "met in trials", "time", "regret: time", "cost", "overhead", "total"]]
    for s in summaries:
        values = (s.time_mape, s.regret_time, s.regret_cost, s.overhead)
        total = "-" if s.total_ratio is None else f"{s.total_ratio.median:.2f}"
        lines.append([s.mode, str(s.runs), str(s.met_in_trials), *(_spread(value) for value in values), total])
    return table(lines, "<>>>>>>>")


def _spread(value: "Spread | None") -> str:
    return "-" if value is None else f"{value.median:.1%} ({value.low:.1%} to {value.high:.1%})"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
