import fnmatch
from typing import TYPE_CHECKING

import click

from mlcd.cli.complete import complete_runs
from mlcd.cli.examples import examples
from mlcd.cli.group import CommandGroup
from mlcd.cli.output import RunName, output_option, print_csv, print_json, print_text, rows_option, table
from mlcd.errors import BadInput, nearest
from mlcd.untrusted import on_one_line

if TYPE_CHECKING:
    from mlcd.clouds.nodes import Unproved
    from mlcd.store.store import RunSummary, Store

KINDS = ("train", "serve", "serverless")


@click.group(
    cls=CommandGroup, invoke_without_command=True, epilog=examples("mlcd runs", "mlcd runs --status stopped -o json")
)
@click.option("--restore", is_flag=True, help="Repair a damaged store from its readable runs and the backup.")
@click.option("--kind", type=click.Choice(KINDS), help="Only runs of this kind.")
@click.option("--status", metavar="NAME", help="Only runs in this state, such as done, stopped or damaged.")
@click.option("--on", metavar="INFRA", help="Only runs on this cloud, or a glob such as 'sim/*'.")
@click.option("--name", metavar="GLOB", help="Only runs whose name matches, such as 'resnet*'.")
@click.option("-n", "--last", metavar="N", type=click.IntRange(1), help="Only the newest N.")
@rows_option
@click.pass_context
def runs(
    ctx: click.Context,
    *,
    restore: bool,
    kind: str | None,
    status: str | None,
    on: str | None,
    name: str | None,
    last: int | None,
    output: str,
) -> None:
    """List runs, newest first.

    A run that was killed shows as stopped: `mlcd resume RUN` continues it. A run whose record is damaged shows as
    damaged; --restore takes such runs from the newest backup, and keeps the damaged file. `mlcd runs rm RUN` deletes
    runs.
    """
    if ctx.invoked_subcommand is not None:
        return
    if restore:
        _restore("text" if output == "csv" else output)
        return
    from mlcd.store.store import Store, home

    state = None if status is None else _known_status(status)
    with Store(home(), reading=True) as store:
        is_filtered = any(value is not None for value in (kind, status, on, name))
        every = store.runs() if last is None or is_filtered else tuple(store.newest(last))
        live = _live(store, every)
        where = store.place
    shown = [
        run
        for run in every
        if (kind is None or (run.kind == kind and not run.damage))
        and (state is None or run.state(live=run.run_id in live) == state)
        and (on is None or fnmatch.fnmatchcase(run.cloud, on))
        and (name is None or fnmatch.fnmatchcase(run.run_id, name))
    ][:last]
    if output == "json":
        print_json({"runs": [run.row(live=run.run_id in live) for run in shown]})
    elif output == "csv":
        print_csv([run.row(live=run.run_id in live) for run in shown])
    elif not every:
        print_text(f"There are no runs in {where} yet. Start with: mlcd demo")
    elif not shown:
        print_text(f"None of the {len(every)} runs matches these filters.")
    else:
        _print(shown, live)
    _report_damage(every)


def _live(store: "Store", found: "tuple[RunSummary, ...]") -> set[str]:
    """The runs that a process works on now."""
    unfinished = [run.run_id for run in found if run.status is not None and not run.status.is_final]
    return {run_id for run_id in unfinished if store.is_live(run_id)}


def _known_status(name: str) -> str:
    from mlcd.trial.outcome import Status

    allowed = (*map(str, Status), "stopped", "damaged")
    if name not in allowed:
        near = nearest(name, allowed)
        hint = f"; did you mean {near!r}?" if near else ""
        raise BadInput(f"--status: there is no such state (got {name!r}); allowed: {', '.join(allowed)}{hint}")
    return name


def _print(shown: "list[RunSummary]", live: set[str]) -> None:
    is_shared = any(run.made_by for run in shown)
    by = ["by"] if is_shared else []
    rows = [["run", "started", *by, "cloud", "status", "trials", "spent"]]
    rows += [
        [
            run.run_id,
            run.created[:16].replace("T", " "),
            *([run.made_by] if is_shared else []),
            run.cloud,
            run.state(live=run.run_id in live),
            str(run.trials),
            str(run.spent),
        ]
        for run in shown
    ]
    notes = [f"{run.goal}: {run.choice}" if run.choice else run.goal for run in shown]
    click.echo(table(rows, "<<<<<>>" if is_shared else "<<<<>>", notes=notes))
    stopped = [run for run in shown if run.status is not None and not run.status.is_final and run.run_id not in live]
    if stopped:
        print_text("", f"To continue a stopped run: mlcd resume {stopped[0].run_id}")


def _report_damage(found: "tuple[RunSummary, ...]") -> None:
    if damaged := [run for run in found if run.damage]:
        run = damaged[0]
        print_text(
            f"mlcd: the records of {len(damaged)} of {len(found)} runs are damaged, such as {on_one_line(run.run_id)}:"
            f" {on_one_line(run.damage)}; to put them right: mlcd runs --restore",
            err=True,
        )


@runs.command(epilog=examples("mlcd runs rm RUN", "mlcd runs rm RUN --force -y"))
@click.argument("names", metavar="RUN...", nargs=-1, required=True, type=RunName(), shell_complete=complete_runs)
@click.option("--force", is_flag=True, help="Also runs that have not ended; they cannot be resumed then.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@output_option
def rm(names: tuple[str, ...], force: bool, yes: bool, output: str) -> None:
    """Delete runs: their record, logs and outputs.

    RUN is a name from `mlcd runs`, or a unique prefix of one. Either all are deleted or none. Processes that a
    killed mlcd left on this machine are ended, and those that may be theirs are listed; rented machines are not ended:
    use `mlcd down`.
    """
    import sys

    from mlcd.jobs.down import end_abandoned, forget_leases
    from mlcd.store.store import Store, home

    folder = home()
    left: list[Unproved] = []
    with Store(folder) as store:
        found = list(dict.fromkeys(store.load(name).run_id for name in names))
        for run_id in found:
            if store.is_live(run_id):
                raise BadInput(f"RUN: {run_id} is running now; end it with Ctrl-C first")
            if not store.status(run_id).is_final and not force:
                raise BadInput(
                    f"RUN: {run_id} has not ended; `mlcd resume {run_id}` continues it, --force deletes it nevertheless"
                )
        if not yes:
            if not sys.stdin.isatty():
                raise BadInput("there is no terminal to ask on: give -y")
            if not click.confirm(f"Delete {', '.join(found)}, with logs and outputs?", err=True):
                raise BadInput("nothing was deleted")
        for run_id in found:
            left += end_abandoned(folder, run_id)
            store.remove(run_id)
            forget_leases(folder, run_id)
    if output == "json":
        print_json({"removed": found})
    else:
        print_text(f"Deleted {', '.join(found)}.")
    for one in left:
        print_text(f"May belong to {one.run_id}, and was not ended: {one.what}: it {one.reason}", err=True)


def _restore(output: str) -> None:
    import os

    from mlcd.store.restore import restore
    from mlcd.store.store import URL_VARIABLE, home

    if os.environ.get(URL_VARIABLE):
        raise BadInput(
            f"--restore: {URL_VARIABLE} is set, and a server is restored from its own backups; without it, the store of"
            f" {home()} is restored"
        )
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
