import click

from mlcd.cli.output import output_option, print_record, progress


@click.command()
@click.argument("run")
@output_option
@click.pass_context
def resume(ctx: click.Context, run: str, output: str) -> None:
    """Go on with a run that was interrupted or killed.

    No finished trial is run or paid again; the limits count from the first start. A finished run is shown again, with
    its exit code. RUN is a name from `mlcd runs`, or the beginning of one.
    """
    from mlcd.jobs.train import resume as resume_job
    from mlcd.store.store import Store, home

    with Store(home()) as store:
        record = resume_job(run, store=store, observer=progress(store.record(run).cloud))
    print_record(record, output)
    ctx.exit(record.status.exit_code)
