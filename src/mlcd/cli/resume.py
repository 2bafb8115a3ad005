import sys
from typing import TYPE_CHECKING

import click

from mlcd.cli.output import output_option, print_record, progress

if TYPE_CHECKING:
    from mlcd.store.store import Store
    from mlcd.trial.record import RunRecord


@click.command()
@click.argument("run")
@output_option
@click.pass_context
def resume(ctx: click.Context, run: str, output: str) -> None:
    """Go on with a run that was interrupted or killed.

    No finished trial is run or paid again; the limits count from the first start. A finished run is shown again, with
    its exit code. RUN is a name from `mlcd runs`, or the beginning of one.
    """
    from mlcd.store.store import Store, home

    with Store(home()) as store:
        if store.kind(run) == "serverless":
            ctx.exit(_trained_on_functions(run, store, output))
        before = store.record(run)
        if before.kind == "serve":
            record = _served(before, store)
        else:
            from mlcd.jobs.train import resume as resume_job

            with progress(before.cloud, before.problem) as observer:
                record = resume_job(run, store=store, observer=observer)
    print_record(record, output)
    ctx.exit(record.status.exit_code)


def _served(before: "RunRecord", store: "Store") -> "RunRecord":
    from mlcd.jobs.serve import resume as resume_serving
    from mlcd.report.serving_progress import ServingProgress

    with ServingProgress(sys.stderr, before.problem.goal, problem=before.problem) as observer:
        return resume_serving(before.run_id, store=store, observer=observer)


def _trained_on_functions(run: str, store: "Store", output: str) -> int:
    from mlcd.cli.output import print_training
    from mlcd.jobs.serverless import resume as resume_training
    from mlcd.report.serverless_progress import EpochProgress
    from mlcd.store.epochs import EpochBook

    before = EpochBook(store).record(run)
    with EpochProgress(sys.stderr, before.problem.target_loss) as observer:
        record = resume_training(before.run_id, store=store, observer=observer)
    print_training(record, output)
    return record.status.exit_code
