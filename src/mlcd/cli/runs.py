import click

from mlcd.cli.output import print_csv, print_json, print_text, rows_option, table


@click.command()
@click.option("--restore", is_flag=True, help="Put a damaged store right, from its readable runs and the backup.")
@rows_option
def runs(restore: bool, output: str) -> None:
    """List all runs, newest first.

    A run that was killed shows as stopped: `mlcd resume RUN` continues it. A run whose record is damaged shows as
    damaged; --restore takes such runs from the newest backup, and keeps the damaged file.
    """
    from mlcd.store.store import Store, home
    from mlcd.trial.outcome import Status

    if restore:
        _restore("text" if output == "csv" else output)
        return
    with Store(home(), reading=True) as store:
        found = store.runs()
        unfinished = [run.run_id for run in found if run.status is not None and not run.status.is_final]
        live = {run_id for run_id in unfinished if store.is_live(run_id)}
    stopped = {run.run_id for run in found if run.status is Status.RUNNING} - live
    rows = [
        {
            "run_id": run.run_id,
            "kind": run.kind,
            "created": run.created,
            "cloud": run.cloud,
            "strategy": run.strategy,
            "status": "damaged" if run.damage else str(run.status),
            "damage": run.damage,
            "live": run.run_id in live,
            "trials": run.trials,
            "spent_usd": run.spent.dollars,
        }
        for run in found
    ]
    if output == "json":
        print_json({"runs": rows})
    elif output == "csv":
        print_csv(rows)
    elif not found:
        print_text(f"There are no runs in {home()} yet. Start with: mlcd demo")
    else:
        lines = [["run", "kind", "started", "cloud", "strategy", "status", "trials", "spent"]]
        lines += [
            [
                run.run_id,
                "" if run.damage else run.kind,
                run.created[:16].replace("T", " "),
                run.cloud,
                run.strategy,
                "damaged" if run.damage else "stopped" if run.run_id in stopped else str(run.status),
                str(run.trials),
                str(run.spent),
            ]
            for run in found
        ]
        click.echo(table(lines, "<<<<<<>>"))
        stopped_runs = [run_id for run_id in unfinished if run_id not in live]
        if stopped_runs:
            print_text("", f"To continue a stopped run: mlcd resume {stopped_runs[0]}")
    if damaged := [run for run in found if run.damage]:
        run = damaged[0]
        click.echo(
            f"mlcd: the records of {len(damaged)} of {len(found)} runs are damaged, such as {run.run_id}: {run.damage};"
            " to put them right: mlcd runs --restore",
            err=True,
        )


def _restore(output: str) -> None:
    from mlcd.store.restore import restore
    from mlcd.store.store import home

    folder = home()
    done = restore(folder)
    if output == "json":
        print_json(
            {
                "damaged_file": str(done.damaged),
                "saved": done.saved,
                "from_backup": done.from_backup,
                "backup_date": done.backup_date,
                "lost": done.lost,
                "missing": done.missing,
            }
        )
        return
    lines = [f"Restored the store in {folder}. The damaged file is kept as {done.damaged.name}."]
    if done.saved:
        lines.append(f"Read from the damaged file: {', '.join(done.saved)}.")
    if done.from_backup:
        lines.append(
            f"Taken from the backup of {done.backup_date}: {', '.join(done.from_backup)}. What they did and paid for"
            " after that is not recorded: a resumed run would not count it."
        )
    if done.lost:
        lines.append(f"Lost: {', '.join(done.lost)}. They cannot be read, and no backup has them.")
    if done.missing:
        lines.append(
            f"Missing: {', '.join(done.missing)}. There are files of these runs in {folder}, but no record of what they"
            " paid for; `mlcd down` shows what still runs."
        )
    print_text(*lines)
