import os

import click

from mlcd.cli.examples import examples
from mlcd.cli.group import CommandGroup
from mlcd.cli.output import output_option, print_json, print_text
from mlcd.errors import BadInput


@click.group(
    cls=CommandGroup,
    invoke_without_command=True,
    epilog=examples("mlcd store init --spender ana --reader bo", "mlcd store copy ~/.mlcd $MLCD_STORE"),
)
@click.pass_context
def store(ctx: click.Context) -> None:
    """Keep a team's runs on a PostgreSQL server.

    MLCD_STORE=postgresql://USER@HOST/DATABASE makes all commands use it; without it, runs are in MLCD_HOME. Passwords
    come from PGPASSWORD or ~/.pgpass.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@store.command(epilog=examples("mlcd store init", "mlcd store init postgresql://HOST/team --spender ana --reader bo"))
@click.argument("url", metavar="[URL]", required=False)
@click.option("--reader", "readers", metavar="ROLE", multiple=True, help="A role that may see all runs. Repeatable.")
@click.option("--spender", "spenders", metavar="ROLE", multiple=True, help="A role that may start runs. Repeatable.")
@output_option
def init(url: str | None, readers: tuple[str, ...], spenders: tuple[str, ...], output: str) -> None:
    """Make the tables in a database, and say who may use them.

    URL is by default $MLCD_STORE. Whoever runs this owns the store, and alone can delete runs. Tables that are there
    stay as they are; roles can be added at any time. ROLE is a role of the server: CREATE ROLE ana LOGIN.
    """
    from mlcd.extras import require
    from mlcd.store.store import URL_VARIABLE

    address = url or os.environ.get(URL_VARIABLE, "")
    if not address:
        raise BadInput(f"URL: give the address of a database, or set {URL_VARIABLE} to it")
    require("postgres", "a store on PostgreSQL")
    from mlcd.store.team import make_store

    made = make_store(address, what="URL" if url else URL_VARIABLE, readers=readers, spenders=spenders)
    if output == "json":
        print_json({"store": made.where, "made": made.is_new, "readers": made.readers, "spenders": made.spenders})
        return
    lines = [f"{'Made the store' if made.is_new else 'The store is there:'} {made.where}"]
    lines += [f"May see all runs: {', '.join(made.readers)}"] if made.readers else []
    lines += [f"May start runs: {', '.join(made.spenders)}"] if made.spenders else []
    print_text(*lines, f"To use it: export {URL_VARIABLE}=postgresql://ROLE@HOST/DATABASE")


@store.command(
    epilog=examples("mlcd store copy ~/.mlcd postgresql://HOST/team", "mlcd store copy $MLCD_STORE ./archive")
)
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@output_option
@click.pass_context
def copy(ctx: click.Context, source: str, target: str, output: str) -> None:
    """Copy the records of all runs to another store.

    FROM and TO are each a folder, such as MLCD_HOME, or postgresql://USER@HOST/DATABASE. Every row is checked before it
    is copied and read back. Runs that are in TO stay; repeat the command after an interruption. Logs, checkpoints and
    outputs stay where they are. The exit code is 1 if a run could not be copied.
    """
    from mlcd.store.copying import copy_runs

    done = copy_runs(source, target, told=_tell if output == "text" else lambda *_: None)
    left = {"busy": done.busy, "damaged": [name for name, _ in done.damaged], "differing": done.differing}
    if output == "json":
        counts = {"copied": done.copied, "continued": done.continued, "unchanged": done.unchanged}
        print_json({**counts, **left, "complete": done.is_complete})
    else:
        print_text(
            f"Copied {len(done.copied):,} runs; added steps to {len(done.continued):,};"
            f" {len(done.unchanged):,} were there.",
            *(f"Not copied: {name} is in use by another mlcd process." for name in done.busy),
            *(f"Not copied: {name} is damaged: {what}." for name, what in done.damaged),
            *(f"Not copied: {name} is there with other steps; delete one." for name in done.differing),
        )
    ctx.exit(0 if done.is_complete else 1)


def _tell(name: str, number: int, total: int) -> None:
    """A line for every hundredth run."""
    if number % 100 == 0:
        click.echo(f"{number:,} of {total:,} runs: {name}", err=True)
