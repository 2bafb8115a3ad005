from typing import TYPE_CHECKING

import click

from mlcd.cli.output import output_option, print_json, table
from mlcd.errors import BadInput

if TYPE_CHECKING:
    from mlcd.bench.serverless.compare import Row
    from mlcd.bench.serverless.ec2 import Finding
    from mlcd.bench.serverless.toy import ToyRow


@click.command()
@click.option("--budgets", default="50,100,200,300", metavar="USD,USD", help="Budgets in US dollars.")
@click.option("--seeds", type=click.IntRange(min=1), default=20, help="Trainings of each workload and budget.")
@click.option("--first-seed", type=click.IntRange(min=0), default=0, help="Where the seeds begin.")
@click.option("--workloads", default="paper", metavar="A,B", help="paper, unseen (12 of them), or names.")
@click.option(
    "--schedulers",
    default="static-n,static,siren,mpc,oracle",
    metavar="A,B",
    help="Also: mpc-first, mpc-again, oracle-whole.",
)
@click.option("--jobs", type=int, default=-1, help="Processes; -1 is one a core. Other than 1 needs mlcd[bench].")
@click.option("--toy", is_flag=True, help="The paper's toy table instead.")
@click.option("--ec2", is_flag=True, help="The comparison with instances instead.")
@output_option
def serverless(  # noqa: PLR0917 - click passes options by name
    budgets: str,
    seeds: int,
    first_seed: int,
    workloads: str,
    schedulers: str,
    jobs: int,
    toy: bool,
    ec2: bool,
    output: str,
) -> None:
    """Schedulers of functions side by side, or what Siren's paper (INFOCOM 2019) shows beside the simulator's figures.

    Everything is simulated. static-n and static are given the best fixed fleet by a grid search that is not paid for.
    """
    if toy and ec2:
        raise BadInput("say either --toy or --ec2")
    if toy:
        _toy(output)
    elif ec2:
        _ec2(output)
    else:
        _compare(budgets, seeds, first_seed, workloads, schedulers, jobs, output)


def _compare(  # noqa: PLR0917 - the command's own options
    budgets: str, seeds: int, first_seed: int, workloads: str, schedulers: str, jobs: int, output: str
) -> None:
    from mlcd.bench.serverless.compare import Comparison, as_json, compare, scheduler_names, workload_names

    comparison = Comparison(
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
    click.echo("\nSimulated. Times over another's, less 1, are on trainings that both finished, pair by pair.")


def _budgets(text: str) -> tuple[float, ...]:
    try:
        budgets = tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise BadInput(
            f"--budgets: amounts in US dollars with commas between, such as 100,200 (got {text!r})"
        ) from error
    if not all(0 < budget < 1e9 for budget in budgets):
        raise BadInput(f"--budgets: must be more than 0 (got {text!r})")
    return budgets


def _table(rows: "list[Row]") -> str:
    from mlcd.bench.serverless.compare import smallest_budgets, summarise, versus

    pairs = {(line.scheduler, line.budget_usd): line for line in versus(rows)}
    needed = smallest_budgets(rows)
    head = ["scheduler", "budget", "runs", "seconds", "USD", "over budget", "infeasible", "enough"]
    lines = [[*head, "vs static-n", "vs static", "vs oracle"]]
    for s in summarise(rows):
        pair = pairs.get((s.scheduler, s.budget_usd))
        others = (pair.against_static_n, pair.against_static, pair.against_oracle) if pair else (None, None, None)
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


def _toy(output: str) -> None:
    from mlcd.bench.serverless.toy import as_json, toy_table

    if output == "json":
        print_json(as_json())
        return
    click.echo(_toy_table(toy_table()))
    click.echo("\nSimulated; the paper measured on AWS. Costs are those of the functions, as in the paper.")


def _toy_table(rows: "list[ToyRow]") -> str:
    lines = [["what", "epochs", "loss: paper", "ours", "seconds: paper", "ours", "USD: paper", "ours", "with storage"]]
    for r in rows:
        losses = (f"{r.paper_loss:.6f}", f"{r.loss:.6f}")
        costs = (f"{r.paper_usd:.3f}", f"{r.usd:.4f}", f"{r.usd_with_storage:.4f}")
        lines.append([r.what, str(r.epochs), *losses, f"{r.paper_seconds:.2f}", f"{r.seconds:.2f}", *costs])
    return table(lines, "<>>>>>>>>")


def _ec2(output: str) -> None:
    from mlcd.bench.serverless.ec2 import as_json, findings

    if output == "json":
        print_json(as_json())
        return
    click.echo(_ec2_table(findings()))
    click.echo(
        "\nSimulated; the speed of an instance's core is set so that LeNet, paid by the hour, gives the paper's 44.3%."
    )


def _ec2_table(found: "list[Finding]") -> str:
    head = ["workload", "paid by the", "less time at equal cost", "fastest: functions", "instances"]
    lines = [[*head, "cheapest: functions", "instances"]]
    for f in found:
        less = "none payable" if f.most_less_time is None else f"up to {f.most_less_time:.1%}"
        fastest = (f"{f.fastest_functions.seconds:,.0f} s", f"{f.fastest_instances.seconds:,.0f} s")
        cheapest = (f"${f.cheapest_functions.usd:.3f}", f"${f.cheapest_instances.usd:.3f}")
        lines.append([f.workload, f.paid_by, less, *fastest, *cheapest])
    return table(lines, "<<>>>>>")
