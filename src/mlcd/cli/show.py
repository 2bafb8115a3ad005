import click

from mlcd.cli.examples import examples
from mlcd.cli.output import output_option, print_run
from mlcd.cli.run_argument import named_or_latest, run_argument


@click.command(epilog=examples("mlcd show RUN", "mlcd show RUN -o json"))
@run_argument
@output_option
def show(run: str | None, output: str) -> None:
    """Show a run's verdict, receipt and plot again.

    RUN is a name from `mlcd runs`, a unique prefix of one, or a job's name for its newest run; by default the newest
    run.
    """
    from mlcd.store.store import Store, home

    with Store(home(), reading=True) as store:
        print_run(store.load(named_or_latest(store, run)), output)
