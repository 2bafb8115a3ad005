import click

from mlcd.cli.examples import examples
from mlcd.cli.output import RunName, output_option, print_run


@click.command(epilog=examples("mlcd show RUN", "mlcd show RUN -o json"))
@click.argument("run", type=RunName())
@output_option
def show(run: str, output: str) -> None:
    """Show a run's verdict, receipt and plot again.

    RUN is a name from `mlcd runs`, or a unique prefix of one.
    """
    from mlcd.store.store import Store, home

    with Store(home(), reading=True) as store:
        print_run(store.load(run), output)
