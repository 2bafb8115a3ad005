from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from mlcd.cli.env_option import env_option
from mlcd.cli.examples import examples
from mlcd.cli.output import ask_to_spend, output_option, print_run, print_text, progress, track_option
from mlcd.cli.run_argument import named_or_latest, run_argument

if TYPE_CHECKING:
    from mlcd.run.run import Run


@click.command(epilog=examples("mlcd resume RUN", "mlcd resume RUN --env TOKEN=..."))
@run_argument
@env_option
@click.option(
    "-y", "--yes", is_flag=True, expose_value=False, help="Accepted as in `mlcd train`; a resumed run never asks."
)
@track_option
@output_option
@click.pass_context
def resume(ctx: click.Context, run: str | None, envs: dict[str, str], track: tuple[str, ...], output: str) -> None:
    """Continue an interrupted, killed or search-only run.

    Finished trials are not run or paid again; the limits count from the first start. A finished run is shown again with
    its exit code. Values of environment variables are kept until the run has ended; --env sets them again.

    RUN is a name from `mlcd runs`, a unique prefix of one, or a job's name for its newest run; by default the newest
    run that has not ended.
    """
    from mlcd.store.store import Store, home

    with Store(home(), reading=True) as store:
        name = named_or_latest(store, run, unfinished=True)
    if run is None:
        print_text(f"Continuing {name}", err=True)
    found = continued(name, envs, track=track)
    print_run(found, output)
    ctx.exit(found.status.exit_code)


def continued(
    run: str, envs: Mapping[str, str], *, search_only: bool = False, ask: bool = False, track: Sequence[str] = ()
) -> "Run[Any]":
    """The stored run, continued to its end, or with `search_only` to its verdict. One that has ended is only read.

    ask    whether to ask before spending real money
    track  the trackers that are told
    """
    from mlcd.jobs.prepared import check_here, continue_run
    from mlcd.kinds import kind_of
    from mlcd.store.store import Store, home

    with Store(home()) as store:
        found = store.load(run)
        if found.status.is_final:
            print_text(f"{found.run_id} has ended ({found.status}): nothing was run; its result again:", err=True)
            return found
        check_here(found, store)
        prepared = kind_of(found.kind).prepare_again(found, store.spec(found.run_id, envs=envs), store.folder)
        if ask:
            ask_to_spend(prepared)
        with progress(prepared, track) as observer:
            return continue_run(found, prepared, store=store, observer=observer, search_only=search_only)
