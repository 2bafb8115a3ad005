import click

from mlcd.cli.output import output_option, print_json, table


@click.command()
@output_option
def runs(output: str) -> None:
    """List all runs, the newest first."""
    from mlcd.store.store import Store, home

    with Store(home()) as store:
        found = store.runs()
    if output == "json":
        print_json(
            {
                "runs": [
                    {
                        "run_id": run.run_id,
                        "created": run.created,
                        "cloud": run.cloud,
                        "strategy": run.strategy,
                        "status": str(run.status),
                        "trials": run.trials,
                        "spent_usd": run.spent.dollars,
                    }
                    for run in found
                ]
            }
        )
    elif not found:
        click.echo(f"There are no runs in {home()} yet. Start with: mlcd demo")
    else:
        rows = [["run", "started", "cloud", "strategy", "status", "trials", "spent"]]
        rows += [
            [
                run.run_id,
                run.created[:16].replace("T", " "),
                run.cloud,
                run.strategy,
                str(run.status),
                str(run.trials),
                str(run.spent),
            ]
            for run in found
        ]
        click.echo(table(rows, "<<<<<>>"))
