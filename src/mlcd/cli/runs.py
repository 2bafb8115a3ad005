import click

from mlcd.cli.output import output_option, print_json, print_text, table


@click.command()
@output_option
def runs(output: str) -> None:
    """List all runs, newest first.

    A run that was killed shows as stopped: `mlcd resume RUN` continues it.
    """
    from mlcd.store.store import Store, home
    from mlcd.trial.outcome import Status

    with Store(home()) as store:
        found = store.runs()
        live = {run.run_id for run in found if not run.status.is_final and store.is_live(run.run_id)}
    stopped = {run.run_id for run in found if run.status is Status.RUNNING} - live
    if output == "json":
        print_json(
            {
                "runs": [
                    {
                        "run_id": run.run_id,
                        "kind": run.kind,
                        "created": run.created,
                        "cloud": run.cloud,
                        "strategy": run.strategy,
                        "status": str(run.status),
                        "live": run.run_id in live,
                        "trials": run.trials,
                        "spent_usd": run.spent.dollars,
                    }
                    for run in found
                ]
            }
        )
    elif not found:
        print_text(f"There are no runs in {home()} yet. Start with: mlcd demo")
    else:
        rows = [["run", "kind", "started", "cloud", "strategy", "status", "trials", "spent"]]
        rows += [
            [
                run.run_id,
                run.kind,
                run.created[:16].replace("T", " "),
                run.cloud,
                run.strategy,
                "stopped" if run.run_id in stopped else str(run.status),
                str(run.trials),
                str(run.spent),
            ]
            for run in found
        ]
        click.echo(table(rows, "<<<<<<>>"))
        unfinished = [run.run_id for run in found if not run.status.is_final and run.run_id not in live]
        if unfinished:
            print_text("", f"To continue a stopped run: mlcd resume {unfinished[0]}")
