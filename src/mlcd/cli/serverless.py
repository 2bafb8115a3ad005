from pathlib import Path
from typing import TYPE_CHECKING

import click

from mlcd.cli.complete import complete_clouds, complete_jobs, complete_strategies
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
    from mlcd.functions import FunctionProblem
    from mlcd.jobs.prepared import Prepared


@click.command(
    epilog=examples(
        "mlcd serverless job.yaml --dry-run",
        "mlcd serverless job.yaml --on sim/lambda --budget '3 USD'",
        "mlcd serverless job.yaml --picture fleets.svg",
    )
)
@click.argument("job", metavar="JOB.yaml", shell_complete=complete_jobs)
@click.option(
    "--on",
    metavar="INFRA",
    shell_complete=complete_clouds,
    help="Where to run: lithops/localhost, lithops/aws_lambda or sim/lambda.",
)
@click.option("--budget", metavar="MONEY", help="Cap on the whole training, such as '3 USD'.")
@click.option("--deadline", metavar="TIME", help="Deadline, such as 30min or 2026-12-01T18:00Z.")
@click.option(
    "--strategy",
    metavar="NAME[:OPTIONS]",
    shell_complete=complete_strategies,
    help="Scheduler: mpc, siren, static or static-n.",
)
@click.option("--sync", metavar="MODE", help="Synchronisation: hsp, bsp or asp.")
@click.option("--functions", metavar="N..M", help="Allowed numbers of functions, such as 1..64.")
@click.option("--memory", metavar="MB,...", help="Allowed memory sizes, such as 512,1769.")
@seed_option
@click.option("--dry-run", is_flag=True, help="Show what would be trained; start nothing.")
@click.option("--fresh", is_flag=True, help="Ignore earlier runs of the same training, which mpc learns from.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask before spending real money.")
@click.option("--picture", metavar="FILE.svg", type=FilePath(), help="Draw fleets and loss to this file.")
@track_option
@output_option
@click.pass_context
def serverless(
    ctx: click.Context,
    /,
    *,
    job: str,
    seed: int,
    dry_run: bool,
    fresh: bool,
    yes: bool,
    picture: Path | None,
    track: tuple[str, ...],
    output: str,
    **flags: str | None,
) -> None:
    """Train on functions, choosing their number and memory before every epoch.

    JOB.yaml has the model, the target loss and the budget. An epoch starts only if the budget covers its worst case.
    Loss, time and money of each epoch go to standard error; the answer and the receipt to standard output. The exit
    code says how the run ended.
    """
    from mlcd.jobs.prepared import begin
    from mlcd.jobs.serverless import prepare
    from mlcd.kinds import kind_of
    from mlcd.spec.functions import read_serverless, with_function_flags
    from mlcd.store.store import Store, home
    from mlcd.trial.outcome import Status

    spec = with_function_flags(read_serverless(job), flags)
    if picture is not None:
        svg_name(writable(picture), "--picture")
    prepared = prepare(spec, seed=seed, fresh=fresh)
    if dry_run:
        ctx.exit(0 if _print_dry_run(prepared, output) else Status.INFEASIBLE.exit_code)
    if not yes:
        ask_to_spend(prepared)
    for note in prepared.notes:
        print_text(f"Note: {note}", err=True)
    with Store(home()) as store, progress(prepared, track) as observer:
        run = begin(prepared, store=store, observer=observer)
    print_run(run, output)
    if picture is not None:
        kind = kind_of(run.kind)
        write_file(picture, kind.picture(run, kind.pictures(run)[0]))
    ctx.exit(run.status.exit_code)


def _print_dry_run(prepared: "Prepared[FunctionProblem]", output: str) -> bool:
    from dataclasses import asdict

    from mlcd.cli.output import print_json
    from mlcd.deciders.decision import End, Start
    from mlcd.report.wording import plural

    problem = prepared.problem
    decision = prepared.decider.next(prepared.new_run(), 0.0)
    first = decision.requests[0].authorisation.fleet if isinstance(decision, Start) else None
    ended = decision.verdict if isinstance(decision, End) else None
    model = prepared.functions.model if prepared.functions else ""
    if output == "json":
        print_json(
            {
                "kind": str(prepared.kind),
                "name": problem.name,
                "infra": prepared.cloud,
                "fleets": len(problem.functions) * len(problem.memory_mb),
                "samples": problem.samples,
                "batch": problem.batch,
                "target_loss": problem.target_loss,
                "prices": problem.prices.name,
                "first_fleet": None if first is None else asdict(first),
                "stopped": ended.stopped if ended else "",
                "ways_out": [way.text for way in ended.relaxations] if ended else [],
                "notes": list(prepared.notes),
            }
        )
        return first is not None
    print_text(f"{problem.name}: {model} on {prepared.cloud}, {problem.samples:,} samples an epoch")
    counts, sizes = (len(problem.functions), "number"), (len(problem.memory_mb), "size")
    print_text(f"  {plural(*counts)} of functions, {plural(*sizes)} of memory to choose from")
    print_text(f"  first: {'none fits the limits' if first is None else first}")
    print_text(f"  prices: {problem.prices.name}, {problem.prices.date.isoformat()}")
    for note in prepared.notes:
        print_text(f"Note: {note}")
    if ended is not None:
        print_text(f"Nothing fits: {ended.stopped}.")
        print_text(*(f"Nearest way out: {way.text}" for way in ended.relaxations))
    return first is not None
