from pathlib import Path

import click

from mlcd.cli.examples import examples
from mlcd.cli.output import (
    FilePath,
    html_name,
    output_option,
    print_run,
    print_text,
    progress,
    seed_option,
    writable,
    write_file,
)


@click.command(epilog=examples("mlcd demo", "mlcd demo --seed 7 --out demo.html"))
@click.option(
    "--out",
    metavar="FILE.html",
    type=FilePath(),
    default=Path("mlcd-demo.html"),
    show_default=True,
    help="Where to write the report.",
)
@seed_option
@output_option
@click.pass_context
def demo(ctx: click.Context, out: Path, seed: int, output: str) -> None:
    """Watch a whole search, on a simulated cloud.

    Trains ResNet-152 on ImageNet on AWS as fast as $500 allows, search included. Nothing is rented and nothing is paid.
    The job is the one that `mlcd init` writes.
    """
    from mlcd.jobs.prepared import begin
    from mlcd.jobs.train import prepare
    from mlcd.kinds import kind_of
    from mlcd.report.text import Line, Style
    from mlcd.spec import parse_train, template
    from mlcd.store.store import Store, home
    from mlcd.units import Usd

    writable(html_name(out))
    spec = parse_train(template(), file="(demo)")
    prepared = prepare(spec, seed=seed)
    problem = prepared.problem
    types = len({config.instance for config in problem.space})
    prices = [Usd(int(micros)) for micros in problem.worst_trial_micros]
    print_text(
        Line("mlcd demo: which instance type and how many nodes should train ResNet-152?", Style.HEADING),
        f"Goal: {problem.goal}, search and training together.",
        f"{len(problem.space):,} deployments of {types} instance types on {spec.resources.infra}; one short trial of"
        f" one may cost {min(prices)} to {max(prices)}.",
        "The cost of finishing on the best deployment so far, at its upper bound, is always reserved.",
        "",
        err=True,
    )
    with Store(home()) as store, progress(prepared) as observer:
        run = begin(prepared, store=store, observer=observer)
    click.echo("", err=True)
    print_run(run, output)
    write_file(out, kind_of(run.kind).html(run))
    print_text("", f"The same as a page with pictures: {out.absolute()}", err=output == "json")
    click.echo("Your own job: mlcd init --list, or mlcd init for this one", err=True)
    ctx.exit(run.status.exit_code)
