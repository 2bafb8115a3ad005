from pathlib import Path

import click

from mlcd.cli.output import output_option, print_json, table
from mlcd.errors import BadInput, MlcdError, ProviderError

NOTHING_RUNS = "Nothing that mlcd started is running."


@click.command()
@click.option("--dry-run", is_flag=True, help="Only list what is running.")
@click.option("--on", metavar="INFRA", help="Search only this cloud, such as minicloud or aws.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask before ending what an active run uses.")
@output_option
@click.pass_context
def down(ctx: click.Context, *, dry_run: bool, on: str | None, yes: bool, output: str) -> None:
    """End everything that mlcd started and that is still running.

    Searches every cloud that this machine can reach for anything with mlcd's name, whichever run started it and however
    that run ended. mlcd asks before it ends what an active run uses. What may belong to a run and cannot be proved to
    is listed and left alone; the exit code is 1 then.
    """
    from mlcd.jobs.down import end_all, leftovers, sweep, unproved
    from mlcd.store.store import home

    found, unreachable = leftovers(Path(home()), on=on)
    owned = [leftover for leftover in found if leftover.owned]
    if owned and not dry_run and not yes:
        _ask(len(owned))
    failed = () if dry_run else end_all(Path(home()), found)
    if not dry_run:
        sweep(Path(home()), on=on)
    listed = unproved(Path(home()), on=on)
    if output == "json":
        rows = [
            {
                "cloud": leftover.cloud,
                "lease": leftover.lease_id,
                "what": leftover.what,
                "in_use": leftover.owned,
                "ended": not dry_run and leftover not in [one for one, _ in failed],
            }
            for leftover in found
        ]
        print_json(
            {
                "found": rows,
                "unproved": [
                    {
                        "cloud": one.cloud,
                        "lease": one.lease_id,
                        "run": one.run_id or None,
                        "what": one.what,
                        "pid": one.pid,
                        "reason": one.reason,
                    }
                    for one in listed
                ],
                "not_looked": dict(unreachable),
                "failed": [str(error) for _, error in failed],
            }
        )
    else:
        if found:
            state = "found" if dry_run else "ended"
            lines = [[x.cloud, x.lease_id, x.what, "in use" if x.owned else state] for x in found]
            click.echo(table([["cloud", "lease", "what", "state"], *lines], "<<<<"))
        else:
            click.echo("Nothing that is proved to be mlcd's is running." if listed else NOTHING_RUNS)
        for one in listed:
            if one.pid is None:
                click.echo(f"Not proved: {one.what}: {one.reason}", err=True)
            else:
                click.echo(f"May belong to {one.run_id or one.lease_id}: {one.what}: it {one.reason}", err=True)
        for cloud, reason in unreachable:
            click.echo(f"Not searched: {cloud}: {reason}", err=True)
    if failed:
        raise ProviderError("; ".join(str(error) for _, error in failed))
    if listed and not dry_run:
        count = "1 thing" if len(listed) == 1 else f"{len(listed)} things"
        raise MlcdError(f"{count} may belong to mlcd's runs and cannot be proved to: not ended; look, then end by hand")
    ctx.exit(0)


def _ask(count: int) -> None:
    import sys

    what = f"{count} of these {'is' if count == 1 else 'are'} used by an active run"
    if not sys.stdin.isatty():
        raise BadInput(f"{what} and there is no terminal to ask on: give -y, or --dry-run to only list them")
    if not click.confirm(f"{what}. End all?", err=True):
        raise BadInput("nothing was ended")
