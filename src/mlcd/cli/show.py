import click

from mlcd.cli.output import output_option, print_record


@click.command()
@click.argument("run")
@output_option
def show(run: str, output: str) -> None:
    """Show a run's verdict, receipt and plot again.

    RUN is a name from `mlcd runs`, or the beginning of one that is no other's.
    """
    from mlcd.store.store import Store, home

    with Store(home()) as store:
        if store.kind(run) == "serverless":
            from mlcd.cli.output import print_training
            from mlcd.store.epochs import EpochBook

            print_training(EpochBook(store).record(run), output)
            return
        print_record(store.record(run), output)
