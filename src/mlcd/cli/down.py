from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mlcd.cli.examples import examples
from mlcd.cli.output import RunName, output_option, print_json, print_text, table
from mlcd.errors import BadInput, MlcdError, ProviderError

if TYPE_CHECKING:
    from mlcd.clouds.nodes import Leftover, Unproved

NOTHING_RUNS = "Nothing that mlcd started is running."


@click.command(
    epilog=examples(
        "mlcd down --dry-run",
        "mlcd down my-training-3f21c0",
        "mlcd down --on aws -y",
        after="RUN is a name from `mlcd runs`, or a unique prefix of one.",
    )
)
@click.argument("run", type=RunName(), required=False)
@click.option("--dry-run", is_flag=True, help="Only list what is running.")
@click.option("--on", metavar="INFRA", help="Search only this cloud, such as minicloud or aws.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask before ending it.")
@output_option
@click.pass_context
def down(ctx: click.Context, *, run: str | None, dry_run: bool, on: str | None, yes: bool, output: str) -> None:
    """End what is still running of one run, or of all.

    Searches every cloud that this machine can reach for anything with mlcd's name, however its run ended, lists it and
    asks before it ends it. With RUN, only what belongs to that run is ended, and mlcd asks only if the run is active.
    Anything that may or may not belong to a run is listed and left alone, with exit code 1.
    """
    from mlcd.jobs.down import end_abandoned, end_all, leftovers, run_named, sweep, unproved, was_used
    from mlcd.store.store import home

    folder = Path(home())
    run_id = None if run is None else run_named(folder, run)
    found, unreachable = leftovers(folder, on=on, run_id=run_id)
    if found and not dry_run and not yes:
        _ask(found, run_id)
    failed = () if dry_run else end_all(folder, found)
    if not dry_run and run_id is None:
        sweep(folder, on=on)
    elif not dry_run and run_id is not None and on in (None, "local"):
        end_abandoned(folder, run_id)
    listed = unproved(folder, on=on, run_id=run_id)
    if output == "json":
        print_json(
            {
                "found": [_as_json(x, ended=not dry_run and x not in [one for one, _ in failed]) for x in found],
                "unproved": list(map(_unproved_json, listed)),
                "not_looked": dict(unreachable),
                "failed": [str(error) for _, error in failed],
            }
        )
    else:
        nothing = NOTHING_RUNS if run_id is None else f"Nothing of {run_id} is running."
        _print(found, listed, state="found" if dry_run else "ended", nothing=nothing)
        for cloud, reason in unreachable:
            if was_used(folder, cloud):
                print_text(f"Not searched: {cloud}: {reason}", err=True)
    if failed:
        raise ProviderError("; ".join(str(error) for _, error in failed))
    if listed and not dry_run:
        count = "1 thing" if len(listed) == 1 else f"{len(listed)} things"
        raise MlcdError(f"{count} may belong to mlcd's runs and cannot be proved to: not ended; look, then end by hand")
    ctx.exit(0)


def _ask(found: "Sequence[Leftover]", run_id: str | None) -> None:
    """List what would be ended and ask. Of one run, ask only about what an active mlcd uses. Raises BadInput if not."""
    import sys

    owned = sum(leftover.owned for leftover in found)
    if run_id is not None and not owned:
        return
    click.echo(_table(found, "found"), err=True)
    this = "this lease" if len(found) == 1 else f"these {len(found)} leases"
    used = (", which is in use" if len(found) == 1 else f", {owned} of them in use") if owned else ""
    if not sys.stdin.isatty():
        raise BadInput(f"this would end {this}{used}, and there is no terminal to ask on: give -y, RUN or --dry-run")
    if not click.confirm(f"End {this}{used}?", err=True):
        raise BadInput("nothing was ended")


def _print(found: "Sequence[Leftover]", listed: "Sequence[Unproved]", *, state: str, nothing: str) -> None:
    from mlcd.untrusted import printable

    if found:
        click.echo(_table(found, state))
    else:
        click.echo("Nothing that is proved to be mlcd's is running." if listed else nothing)
    for one in listed:
        if one.pid is None:
            line = f"Not proved: {one.what}: {one.reason}"
        else:
            line = f"May belong to {one.run_id or one.lease_id}: {one.what}: it {one.reason}"
        print_text(printable(line), err=True)


def _table(found: "Sequence[Leftover]", state: str) -> str:
    lines = [[x.cloud, x.lease_id, x.what, f"{state}, in use" if x.owned else state] for x in found]
    return table([["cloud", "lease", "what", "state"], *lines], "<<<<")


def _as_json(found: "Leftover", *, ended: bool) -> dict[str, object]:
    return {
        "cloud": found.cloud,
        "lease": found.lease_id,
        "what": found.what,
        "in_use": found.owned,
        "ended": ended,
    }


def _unproved_json(one: "Unproved") -> dict[str, object]:
    return {
        "cloud": one.cloud,
        "lease": one.lease_id,
        "run": one.run_id or None,
        "what": one.what,
        "pid": one.pid,
        "reason": one.reason,
    }
