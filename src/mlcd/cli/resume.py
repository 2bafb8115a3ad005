import click

from mlcd.cli.env_option import env_option
from mlcd.cli.output import RunName, output_option, print_run, progress


@click.command()
@click.argument("run", type=RunName())
@env_option
@output_option
@click.pass_context
def resume(ctx: click.Context, run: str, envs: dict[str, str], output: str) -> None:
    """Continue a run that was interrupted or killed.

    Finished trials are not run or paid again; the limits count from the first start. A finished run is shown again with
    its exit code. Values of environment variables are kept until the run has ended; --env gives them anew.

    RUN is a name from `mlcd runs`, or a unique prefix of one.
    """
    from mlcd.jobs.prepared import continue_run
    from mlcd.kinds import kind_of
    from mlcd.store.store import Store, home

    with Store(home()) as store:
        found = store.load(run)
        if not found.status.is_final:
            prepared = kind_of(found.kind).prepare_again(found, store.spec(found.run_id, envs=envs), store.folder)
            with progress(prepared) as observer:
                found = continue_run(found, prepared, store=store, observer=observer)
    print_run(found, output)
    ctx.exit(found.status.exit_code)
