from pathlib import Path

import click

from mlcd.cli.env_option import env_option
from mlcd.cli.output import (
    FilePath,
    ask_to_spend,
    output_option,
    print_run,
    print_text,
    progress,
    seed_option,
    svg_name,
    writable,
    write_file,
)


@click.command()
@click.argument("job", metavar="JOB.yaml")
@click.option("--on", metavar="INFRA", help="Where to run, such as sim/aws; overrides resources.infra.")
@click.option("--budget", metavar="MONEY", help="Cap on search and training together, such as '100 USD'.")
@click.option("--deadline", metavar="TIME", help="Deadline, such as 6h30m or 2026-12-01T18:00Z.")
@click.option(
    "--strategy", metavar="NAME[:OPTIONS]", help="Search strategy, such as heterbo or convbo:acquisition=ucb."
)
@click.option("--parallel", metavar="N", help="Trials in parallel.")
@env_option
@seed_option
@click.option("--dry-run", is_flag=True, help="Show what would be done; spend and write nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask before spending real money.")
@click.option(
    "--picture",
    metavar="FILE.svg",
    type=FilePath(),
    help="Draw speed over nodes to this file, or time against cost if the batch is chosen.",
)
@output_option
@click.pass_context
def train(
    ctx: click.Context,
    *,
    job: str,
    on: str | None,
    budget: str | None,
    deadline: str | None,
    strategy: str | None,
    parallel: str | None,
    envs: dict[str, str],
    seed: int,
    dry_run: bool,
    yes: bool,
    picture: Path | None,
    output: str,
) -> None:
    """Find the best deployment for a job, then train there.

    JOB.yaml is a job file; `mlcd init` writes one. Trials and training together stay within the job's budget and
    deadline. The verdict goes to standard output, progress to standard error. The exit code says how the run ended.
    """
    from mlcd.jobs.prepared import begin
    from mlcd.jobs.train import prepare
    from mlcd.kinds import kind_of
    from mlcd.spec import read_train, with_overrides
    from mlcd.store.store import Store, home

    spec = with_overrides(
        read_train(job), on=on, budget=budget, deadline=deadline, strategy=strategy, parallel=parallel, envs=envs
    )
    if picture is not None:
        svg_name(writable(picture), "--picture")
    prepared = prepare(spec, seed=seed)
    if dry_run:
        from mlcd.cli.dry_run import print_dry_run

        ctx.exit(print_dry_run(prepared, output))
    if not yes:
        ask_to_spend(prepared)
    for note in prepared.notes:
        print_text(f"Note: {note}", err=True)
    with Store(home()) as store, progress(prepared) as observer:
        run = begin(prepared, store=store, observer=observer)
    print_run(run, output)
    if picture is not None:
        kind = kind_of(run.kind)
        write_file(picture, kind.picture(run, kind.pictures(run)[0]))
    ctx.exit(run.status.exit_code)
