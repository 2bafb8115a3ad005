import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mlcd.cli.complete import complete_clouds, complete_jobs, complete_strategies
from mlcd.cli.env_option import env_option
from mlcd.cli.examples import examples
from mlcd.cli.output import (
    FilePath,
    ask_to_spend,
    output_option,
    print_run,
    print_text,
    progress,
    seed_option,
    svg_name,
    track_option,
    writable,
    write_file,
)

if TYPE_CHECKING:
    from mlcd.run.run import Run


@click.command(
    epilog=examples(
        "mlcd train job.yaml",
        "mlcd train job.yaml --dry-run",
        "mlcd train job.yaml --budget '50 USD' --deadline 6h -y",
        "mlcd train job.yaml --search-only && mlcd train RUN",
    )
)
@click.argument("job", metavar="JOB.yaml|RUN", shell_complete=complete_jobs)
@click.option(
    "--on",
    metavar="INFRA",
    shell_complete=complete_clouds,
    help="Where to run, such as sim/aws, or a list: sim/aws,sim/gcp. Overrides resources.infra.",
)
@click.option("--budget", metavar="MONEY", help="Cap on search and training together, such as '100 USD'.")
@click.option("--deadline", metavar="TIME", help="Deadline, such as 6h30m or 2026-12-01T18:00Z.")
@click.option(
    "--strategy",
    metavar="NAME[:OPTIONS]",
    shell_complete=complete_strategies,
    help="Search strategy, such as auto, heterbo or convbo:acquisition=ucb.",
)
@click.option("--parallel", metavar="N", help="Trials in parallel.")
@env_option
@seed_option
@click.option("--dry-run", is_flag=True, help="Show what would be done; spend and write nothing.")
@click.option("--search-only", is_flag=True, help="Stop when the search has chosen; `mlcd train RUN` trains there.")
@click.option(
    "--reuse/--fresh",
    default=None,
    help="Use or ignore trials of the same job in earlier runs; used where trials cost real money, unless --fresh.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask before spending real money.")
@click.option(
    "--picture",
    metavar="FILE.svg",
    type=FilePath(),
    help="Draw speed over nodes to this file, or time against cost if the batch is chosen.",
)
@track_option
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
    search_only: bool,
    reuse: bool | None,
    yes: bool,
    picture: Path | None,
    track: tuple[str, ...],
    output: str,
) -> None:
    """Find the best deployment for a job, then train there.

    JOB.yaml is a job file; `mlcd init` writes one, and - reads it from standard input. Trials and training together
    stay within the job's budget and deadline. The verdict goes to standard output, progress to standard error. The exit
    code says how the run ended.

    RUN is a run that has not ended: one that --search-only stopped trains on what it chose. Its limits count from its
    first start, and its job cannot be changed.
    """
    from mlcd.cli.resume import continued
    from mlcd.jobs.prepared import begin
    from mlcd.jobs.train import prepare
    from mlcd.spec import read_train, with_overrides
    from mlcd.spec.document import STANDARD_INPUT, read_text
    from mlcd.spec.template import mark_notes
    from mlcd.store.store import Store, home

    if picture is not None:
        svg_name(writable(picture), "--picture")
    is_input = job == STANDARD_INPUT
    if not is_input and not os.path.exists(job) and not _is_run(job):  # noqa: PTH110 - False where the name is too long
        is_url = "://" in job
        hint = "mlcd fetches no job files: download it first" if is_url else "`mlcd runs` lists the runs"
        read_text(job, missing=f"there is no such file or run; {hint}")
    if not is_input and _is_run(job):
        _refuse_changes(ctx)
        run = continued(job, envs, search_only=search_only, ask=not yes, track=track)
        _show(run, output, picture)
        ctx.exit(run.status.exit_code)
    spec = with_overrides(
        read_train(job), on=on, budget=budget, deadline=deadline, strategy=strategy, parallel=parallel, envs=envs
    )
    prepared = prepare(spec, seed=seed, reuse=reuse)
    prepared = replace(prepared, notes=(*mark_notes(job, spec.source), *prepared.notes))
    if dry_run:
        from mlcd.cli.dry_run import print_dry_run

        ctx.exit(print_dry_run(prepared, output))
    if not yes:
        ask_to_spend(prepared)
    for note in prepared.notes:
        print_text(f"Note: {note}", err=True)
    with Store(home()) as store, progress(prepared, track) as observer:
        run = begin(prepared, store=store, observer=observer, search_only=search_only)
    _show(run, output, picture)
    ctx.exit(run.status.exit_code)


def _show(run: "Run[Any]", output: str, picture: Path | None) -> None:
    from mlcd.kinds import kind_of

    print_run(run, output)
    if picture is not None:
        write_file(picture, kind_of(run.kind).pictures(run)[0].svg)


def _is_run(job: str) -> bool:
    """Whether `job` is no file, and the name of a training in the store or a unique prefix of one."""
    from mlcd.errors import BadInput
    from mlcd.run.kind import Kind
    from mlcd.store.store import Store, has_store, home

    if os.path.exists(job) or not has_store(home()):  # noqa: PTH110 - False where the name is too long
        return False
    with Store(home(), reading=True) as store:
        try:
            return store.kind(job) is Kind.TRAIN
        except BadInput:
            return False


def _refuse_changes(ctx: click.Context) -> None:
    """Raises BadInput for an option that would change the job of a run."""
    from click.core import ParameterSource

    from mlcd.errors import BadInput

    for name in ("on", "budget", "deadline", "strategy", "parallel", "seed", "dry_run", "reuse"):
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise BadInput(f"--{name.replace('_', '-')}: the job of a run that has begun cannot be changed")
