from typing import TYPE_CHECKING

import click

from mlcd.cli.examples import examples
from mlcd.cli.output import output_option, print_json, print_text, table
from mlcd.errors import BadInput

if TYPE_CHECKING:
    from mlcd.bench.serverless.compare import ServerlessRow


@click.command(epilog=examples("mlcd bench serverless --seeds 3"))
@click.option("--budgets", default="50,100,200,300", metavar="USD,USD", help="Budgets in US dollars.")
@click.option("--seeds", type=click.IntRange(1, 100_000), default=20, help="Trainings of each workload and budget.")
@click.option("--first-seed", type=click.IntRange(0, 2**31), default=0, help="First seed.")
@click.option("--workloads", default="paper", metavar="A,B", help="paper, unseen or wide (12 each), or names.")
@click.option(
    "--schedulers",
    default="static-n,static,siren-untrained,siren,mpc,informed",
    metavar="A,B",
    help="Schedulers; also mpc-first, mpc-again, informed-whole.",
)
@click.option(
    "--jobs",
    type=click.IntRange(-1, 1024),
    default=-1,
    help="Processes; -1: one per core. More than one needs joblib (extra `bench`).",
)
@output_option
def serverless(  # noqa: PLR0917 - click passes options by name
    budgets: str,
    seeds: int,
    first_seed: int,
    workloads: str,
    schedulers: str,
    jobs: int,
    output: str,
) -> None:
    """Compare schedulers of functions.

    Everything is simulated. static-n and static get the best fixed fleet from a grid search that costs nothing.
    """
    from mlcd.bench.serverless.compare import ServerlessComparison, as_json, compare, scheduler_names, workload_names

    comparison = ServerlessComparison(
        workloads=workload_names(workloads),
        schedulers=scheduler_names(schedulers),
        budgets=_budgets(budgets),
        seeds=seeds,
        first_seed=first_seed,
        jobs=jobs,
    )
    rows = compare(comparison)
    if output == "json":
        print_json(as_json(rows))
        return
    click.echo(_table(rows))
    print_text("", "Simulated. vs columns: relative difference in time, over pairs of trainings that both finished.")


def _budgets(text: str) -> tuple[float, ...]:
    try:
        budgets = tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise BadInput(f"--budgets: must be US dollars separated by commas, such as 100,200 (got {text!r})") from error
    if not all(0 < budget < 1e9 for budget in budgets):
        raise BadInput(f"--budgets: must be more than 0 (got {text!r})")
    return budgets


def _table(rows: "list[ServerlessRow]") -> str:
    from mlcd.bench.serverless.compare import smallest_budgets, summarise, versus

    pairs = {(line.scheduler, line.budget_usd): line for line in versus(rows)}
    needed = smallest_budgets(rows)
    head = ["scheduler", "budget", "runs", "seconds", "USD", "over budget", "infeasible", "enough"]
    lines = [[*head, "vs static-n", "vs static", "vs informed"]]
    for s in summarise(rows):
        pair = pairs.get((s.scheduler, s.budget_usd))
        others = (pair.against_static_n, pair.against_static, pair.against_informed) if pair else (None, None, None)
        enough = needed.get((s.scheduler, s.budget_usd))
        lines.append(
            [
                s.scheduler,
                f"${s.budget_usd:g}",
                str(s.runs),
                "-" if s.mean_seconds is None else f"{s.mean_seconds:,.1f}",
                "-" if s.mean_usd is None else f"{s.mean_usd:,.2f}" if s.mean_usd >= 1 else f"{s.mean_usd:.4f}",
                str(s.violations),
                str(s.infeasible),
                "" if enough is None else f"${enough:g}",
                *("-" if other is None else f"{other:+.1%}" for other in others),
            ]
        )
    return table(lines, "<>>>>>>>>>>")
