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
    """Train on functions; choose how many for each epoch.

    Before every epoch, mlcd chooses the number of functions and their memory. JOB.yaml has the model, the target loss
    and the budget. An epoch starts only if the budget covers its worst case. Loss, time and money of each epoch go to
    standard error; the answer and the receipt to standard output. The exit code says how the run ended.
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
        write_file(picture, kind_of(run.kind).pictures(run)[0].svg)
    ctx.exit(run.status.exit_code)


def _print_dry_run(prepared: "Prepared[FunctionProblem]", output: str) -> bool:
    from dataclasses import asdict

    from mlcd.cli.output import print_json
    from mlcd.deciders.decision import End, Start
    from mlcd.report.text import Line, Rows, Style
    from mlcd.report.wording import plural
    from mlcd.units import format_seconds

    problem = prepared.problem
    decision = prepared.decider.next(prepared.new_run(), 0.0)
    allowed = decision.requests[0].authorisation if isinstance(decision, Start) else None
    first = None if allowed is None else allowed.fleet
    goal = problem.goal
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
                "budget_usd": None if goal.budget is None else goal.budget.dollars,
                "deadline_seconds": goal.deadline_seconds,
                "strategy": prepared.strategy,
                "first_fleet": None if first is None else asdict(first),
                "first_authorised_usd": None if allowed is None else allowed.usd.dollars,
                "first_authorised_seconds": None if allowed is None else allowed.seconds,
                "stopped": ended.stopped if ended else "",
                "ways_out": [way.text for way in ended.relaxations] if ended else [],
                "notes": list(prepared.notes),
            }
        )
        return first is not None
    real = "simulated: nothing real is spent" if prepared.simulated else "real money"
    if not prepared.simulated and not prepared.charged:
        real = "functions of this machine: nobody is charged"
    counts, sizes = plural(len(problem.functions), "number"), plural(len(problem.memory_mb), "size")
    facts = [
        ["job", f"{problem.name}: {model} to a loss of {problem.target_loss:g}, {goal}"],
        ["where", f"{prepared.cloud} ({real}), prices of {problem.prices.name}, {problem.prices.date.isoformat()}"],
        ["data", f"{problem.samples:,} samples an epoch, batches of {problem.batch:,}"],
        ["space", f"{counts} of functions, {sizes} of memory"],
        ["budget", "none" if goal.budget is None else f"{goal.budget}, for the whole training"],
        ["deadline", "none" if goal.deadline_seconds is None else f"{format_seconds(goal.deadline_seconds)} in all"],
        ["scheduler", prepared.strategy],
        ["first epoch", "none fits the limits" if first is None else str(first)],
    ]
    if allowed is not None:
        facts.append(["", f"authorised for at most {allowed.usd} and {format_seconds(allowed.seconds)}"])
    facts += [["notes" if at == 0 else "", note] for at, note in enumerate(prepared.notes)]
    print_text(Line("Dry run: nothing is spent and nothing is written.", Style.HEADING))
    print_text(Rows(rows=facts, align="<<", indent=2, has_heads=False))
    if ended is not None:
        print_text(f"Nothing fits: {ended.stopped}.")
        print_text(*(f"Nearest way out: {way.text}" for way in ended.relaxations))
    return first is not None
